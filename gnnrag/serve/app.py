"""The application: routes, tools and the page behind the guard."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from mcp.server.transport_security import TransportSecuritySettings
from starlette.exceptions import HTTPException
from tqdm import tqdm

from gnnrag import __version__
from gnnrag.errors import GnnragError
from gnnrag.serve import chat, rest
from gnnrag.serve.asking import Desk, Problem
from gnnrag.serve.guard import Guard, as_response, current_caller, failed
from gnnrag.serve.settings import Service, read_callers, read_service
from gnnrag.serve.tools import make_tools
from gnnrag.serve.writer import VARIABLE

_PAGE = files("gnnrag.serve") / "page"


def make_app(service: Service) -> Guard:
    """Return the application of one worker. ConfigError: the tokens file cannot be used."""
    callers = read_callers(service.own, tuple(service.indexes))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        desk = app.state.desk = Desk(service)
        tools = make_tools(desk, current_caller.get)
        # The guard has looked at host and origin; without sessions any worker answers.
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        inner = tools.streamable_http_app(
            streamable_http_path="/mcp", stateless_http=True, json_response=True, transport_security=unchecked
        )
        app.router.routes.extend(inner.routes)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(desk.at_work())
            await stack.enter_async_context(inner.router.lifespan_context(inner))
            yield

    app = FastAPI(
        title="gnnrag",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # its page would come from elsewhere
        redoc_url=None,
        description="Questions over graphs of documents: docs/serving.md.",
    )
    app.include_router(rest.router)
    app.include_router(chat.router)
    app.mount("/page", StaticFiles(directory=str(_PAGE)))
    app.add_route("/", _index)
    for kind in (Problem, HTTPException, RequestValidationError, GnnragError):
        app.add_exception_handler(kind, _told)
    return Guard(app, service.own, callers)


async def _index(request: Request) -> FileResponse:
    return FileResponse(str(_PAGE / "index.html"), headers={"cache-control": "no-cache"})


async def _told(request: Request, error: Exception) -> JSONResponse:
    """Answer an error in one line that quotes little of what was sent."""
    if isinstance(error, GnnragError):
        error = failed(error)
    elif isinstance(error, HTTPException) and request.state.refused:
        error = request.state.refused
    elif isinstance(error, HTTPException):
        is_unknown = (error.status_code, error.detail) == (404, "Not Found")
        more = "there is nothing at this address; /openapi.json lists what there is" if is_unknown else ""
        error = Problem(error.status_code, more or str(error.detail)[:200])
    elif isinstance(error, RequestValidationError):
        rows = [f"{'.'.join(map(str, row['loc'][:6]))[:100]}: {row['msg'][:200]}" for row in error.errors()[:5]]
        is_told_json = "json" in request.headers.get("content-type", "")
        if not is_told_json and [row["loc"] for row in error.errors()] == [("body",)]:
            rows = ["body: give JSON, with the header Content-Type: application/json"]
        is_json = any(row["type"] == "json_invalid" for row in error.errors())
        error = Problem(400 if is_json else 422, "; ".join(rows))
    return as_response(error)  # type: ignore[arg-type]


def from_environment() -> Guard:
    """Return the application that the environment tells of: uvicorn calls it in each worker."""
    tqdm.set_lock(threading.RLock())  # its own, shared by processes, is told of as leaked when a signal ends this one
    return make_app(read_service(json.loads(os.environ[VARIABLE])["arguments"]))
