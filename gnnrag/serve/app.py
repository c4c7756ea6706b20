"""The application behind its guard, and the one process that runs it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from mcp.server.transport_security import TransportSecuritySettings
from starlette.exceptions import HTTPException

from gnnrag import __version__
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.serve import chat, rest
from gnnrag.serve.guard import Connection, Guard, as_response, current_caller, most_connections
from gnnrag.serve.indexes import Problem, Server, as_problem
from gnnrag.serve.settings import Service
from gnnrag.serve.tools import make_tools

_PAGE = files("gnnrag.serve") / "page"


def make_app(service: Service) -> Guard:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        server = app.state.server = Server(service)
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the guard checks host and origin
        tools = make_tools(server, current_caller.get).streamable_http_app(
            streamable_http_path="/mcp", stateless_http=True, json_response=True, transport_security=unchecked
        )
        app.router.routes.extend(tools.routes)
        async with tools.router.lifespan_context(tools):
            yield
        await asyncio.to_thread(server.close)

    about: Any = {"title": "gnnrag", "version": __version__, "description": "Questions over graphs of documents."}
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, **about)  # their pages load scripts from elsewhere
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
    elif error.detail == "There was an error parsing the body":
        error = Problem(400, "body: JSON in UTF-8, no number of thousands of digits, no brackets thousands deep")
    return as_response(error)


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    """Say what is wrong with a body, quoting nothing of it."""
    rows = [f"{'.'.join(map(str, row['loc'][:6]))[:100]}: {row['msg'][:200]}" for row in error.errors()[:5]]
    is_json = "json" in request.headers.get("content-type", "")
    if not is_json and [row["loc"] for row in error.errors()] == [("body",)]:
        rows = ["body: give JSON, with the header Content-Type: application/json"]
    is_broken = any(row["type"] == "json_invalid" for row in error.errors())
    is_chat = request.url.path.startswith("/v1/")  # 400 is what OpenAI answers
    return as_response(Problem(400 if is_broken or is_chat else 422, "; ".join(rows)))


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return as_response(as_problem(error, request.app.state.server.service))


def make_server(service: Service) -> uvicorn.Server:
    Connection.most = most_connections()
    config = uvicorn.Config(
        make_app(service), http=Connection, log_level="info" if service.limits.log else "warning", server_header=False,
        timeout_keep_alive=20, timeout_graceful_shutdown=5, h11_max_incomplete_event_size=1 << 15, ws="none",
        backlog=128,  # asyncio accepts up to so many at once, and tries all again if descriptors run out
    )  # fmt: skip
    return uvicorn.Server(config)


def run(service: Service, on_listening: Callable[[str], None] = lambda address: None) -> None:
    """Serve until a signal ends it; `on_listening` is called with the address once it is taken.

    Raises ConfigError where it cannot listen there.
    """
    host, port = service.limits.host, service.limits.port
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family)
    except OSError as error:
        raise ConfigError(f"serve.host={host} serve.port={port}: {error.strerror}; give others") from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a kept connection takes 40 ms a request
    with listening:
        on_listening(f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}")
        make_server(service).run([listening])
