"""The application: routes, tools and the page behind the guard."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

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
from gnnrag.serve.desk import Desk, Problem, as_problem
from gnnrag.serve.guard import Guard, as_response, current_caller
from gnnrag.serve.settings import Service, read_service
from gnnrag.serve.tools import make_tools
from gnnrag.serve.writer import VARIABLE

_PAGE = files("gnnrag.serve") / "page"


def make_app(service: Service) -> Guard:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        desk = app.state.desk = Desk(service)
        # The guard has looked at host and origin; without sessions any worker answers.
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        tools = make_tools(desk, current_caller.get).streamable_http_app(
            streamable_http_path="/mcp", stateless_http=True, json_response=True, transport_security=unchecked
        )
        app.router.routes.extend(tools.routes)
        async with desk.at_work(), tools.router.lifespan_context(tools):
            yield

    about: Any = {"title": "gnnrag", "version": __version__, "description": "Questions over graphs of documents."}
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, **about)  # their pages would come from elsewhere
    app.include_router(rest.router)
    app.include_router(chat.router)
    app.mount("/page", StaticFiles(directory=str(_PAGE)))
    app.add_route("/", _index)
    app.add_exception_handler(HTTPException, _refused)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _invalid)  # type: ignore[arg-type]
    for kind in (GnnragError, Exception):
        app.add_exception_handler(kind, _failed)
    return Guard(app, service)


async def _index(request: Request) -> FileResponse:
    return FileResponse(str(_PAGE / "index.html"), headers={"cache-control": "no-cache"})


async def _refused(request: Request, error: HTTPException) -> JSONResponse:
    if (error.status_code, error.detail) == (404, "Not Found"):
        error = Problem(404, "there is nothing at this address; /openapi.json lists what there is")
    return as_response(error)


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    """Say what is wrong with a body, quoting nothing of it."""
    rows = [f"{'.'.join(map(str, row['loc'][:6]))[:100]}: {row['msg'][:200]}" for row in error.errors()[:5]]
    is_json = "json" in request.headers.get("content-type", "")
    if not is_json and [row["loc"] for row in error.errors()] == [("body",)]:
        rows = ["body: give JSON, with the header Content-Type: application/json"]
    is_broken = any(row["type"] == "json_invalid" for row in error.errors())
    return as_response(Problem(400 if is_broken else 422, "; ".join(rows)))


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return as_response(as_problem(error))


def from_environment() -> Guard:
    """Return the application of the command line in the environment: uvicorn calls it in each worker."""
    tqdm.set_lock(threading.RLock())  # the default lock is shared by processes, and reported as leaked at a signal
    return make_app(read_service(json.loads(os.environ[VARIABLE])["arguments"]))
