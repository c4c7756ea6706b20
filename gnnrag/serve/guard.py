"""What every connection and request passes first: limits of connections; host, origin, token, size of a body."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, ClassVar

import h11
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from gnnrag.serve.indexes import Problem, as_problem
from gnnrag.serve.settings import NOBODY, Caller, Service

MAX_JSON = 1 << 20  # bytes of a body that is no document
_HEADERS_S = 20.0  # that the headers of a request may take, and up to twice that
_FILES, _OWN_FILES = 8192, 512  # descriptors to ask for; those for files, and for what is accepted but not counted yet
_BODY_S = 30.0  # that a body may take, and so much more for each 8 MB of the limit
_DRAIN = 1 << 24
_PUBLIC = ("/", "/api/health", "/openapi.json")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"x-frame-options": b"DENY",
}
# Who sent the request that is being answered: tools of MCP have no request at hand.
current_caller: ContextVar[Caller] = ContextVar("caller", default=NOBODY)


def most_connections() -> int:
    """Raise the limit of open files, as far as this process may, and return how many connections that leaves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FILES:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES if hard < 0 else min(hard, _FILES), hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(_OWN_FILES, (_FILES if soft < 0 else min(soft, _FILES)) - _OWN_FILES)


class Connection(H11Protocol):
    """A connection that is closed if no request begins in time; beyond `most` connections, an idle one is closed."""

    most: ClassVar[int]  # set where a server starts

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begun: Any = None  # the last request that was seen
        self._waiting = self.loop.call_later(_HEADERS_S, self._check)
        every: Any = self.connections
        if len(every) > self.most:
            idle = (c for c in every if c.cycle is None and c is not self and not c.transport.is_closing())
            next(idle, self).transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.cancel()
        super().connection_lost(exc)

    def _check(self) -> None:
        if self.conn.their_state is h11.IDLE and self.cycle is self._begun:
            self.transport.close()
        else:
            self._begun = self.cycle
            self._waiting = self.loop.call_later(_HEADERS_S, self._check)

    def send_400_response(self, msg: str) -> None:
        body = bytes(as_response(Problem(400, msg)).body)
        head = f"HTTP/1.1 400 \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
        self.transport.write(head.encode() + b"\r\n\r\n" + body)
        self.transport.close()


class Guard:
    """The outermost application (ASGI). What it refuses reaches nothing behind it."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service, self.limits = app, service, service.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        has_begun = False
        scope["state"] = state = {**scope.get("state", {})}

        async def respond(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                message["headers"] = [*{**HEADERS, **dict(message["headers"])}.items()]
            await send(message)

        try:
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            self._check_origin(headers.get(b"host", "").lower(), headers.get(b"origin", "").lower())
            scheme, _, token = headers.get(b"authorization", "").partition(" ")
            caller = self.service.caller(token.strip() if scheme.lower() == "bearer" else "")
            if caller is None and scope["path"] not in _PUBLIC and not scope["path"].startswith("/page/"):
                raise Problem(401, "give a token that this server knows: Authorization: Bearer TOKEN")
            state["caller"] = caller or NOBODY
            current_caller.set(state["caller"])
            limit = self.limits.document_bytes if scope["method"] == "PUT" else MAX_JSON
            await self.app(scope, _bounded(receive, limit), respond)
        except Exception as error:  # noqa: BLE001 - nobody is behind this to answer it
            if not has_begun:
                await as_response(as_problem(error, self.service))(scope, receive, respond)

    def _check_origin(self, host: str, origin: str) -> None:
        name, _, port = host.rpartition(":")
        if (name if port.isdecimal() else host) not in (
            *_LOOPBACK,
            *map(str.lower, [self.limits.host, *self.limits.hosts]),
        ):
            raise Problem(421, "this server has another name; serve.hosts lists those that it may be called by")
        if origin and origin.partition("://")[2] != host:
            raise Problem(403, "pages from elsewhere may not ask this server")


def as_response(problem: HTTPException) -> JSONResponse:
    """Return a problem in the form that OpenAI's clients read."""
    headers = dict(problem.headers or {})
    if problem.status_code == 401:
        headers["www-authenticate"] = "Bearer"
    if problem.status_code in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not waited for
    kind = "invalid_request_error" if problem.status_code < 500 else "server_error"
    error = {"message": problem.detail[:2000], "type": kind, "code": problem.status_code, "param": None}
    return JSONResponse({"error": error}, problem.status_code, headers)


def _bounded(receive: Receive, limit: int) -> Receive:
    """Return a `receive` that ends a body which is too large, or too slow."""
    size, is_whole, deadline = 0, False, time.monotonic() + _BODY_S * (1 + limit / (1 << 23))

    async def bounded() -> Message:
        nonlocal size, is_whole
        if is_whole:  # what comes now is that the client has left
            return await receive()
        while True:
            try:
                message = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise Problem(413 if size > limit else 408, f"give at most {limit} bytes, and faster") from None
            size += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if size <= limit:
                return message
            if is_whole or size > limit + _DRAIN:  # most clients hear of a refusal only when they have sent all
                raise Problem(413, f"a body of more than {limit} bytes")

    return bounded
