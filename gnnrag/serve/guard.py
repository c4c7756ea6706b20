"""What every request passes first: host, origin, token, rate, size and time of its body; and the log of its end."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gnnrag.errors import described
from gnnrag.serve.asking import Problem
from gnnrag.serve.settings import LOCAL, Caller, ServeConfig, find_caller

logger = logging.getLogger("gnnrag.serve")
MAX_JSON = 1 << 20  # bytes of a body that is no document
_BODY_S = 30.0  # that a body may take, and so much more a megabyte
_PUBLIC = ("/", "/api/health", "/openapi.json")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_DRAIN, _DRAIN_S = 1 << 24, 2.0
_CALLERS = 10_000  # whose rates are remembered
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
# Of the request that is being answered, for what has no request at hand: the tools of MCP.
current_caller: ContextVar[Caller] = ContextVar("caller", default=LOCAL)


class Guard:
    """The outermost application. What it refuses reaches nothing behind it."""

    def __init__(self, app: ASGIApp, own: ServeConfig, callers: Sequence[Caller]) -> None:
        self.app, self.own, self.callers = app, own, callers
        self._rates: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; ASGI."""
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, told = time.perf_counter(), {"status": 0, "bytes": 0}
        scope["state"] = state = {**scope.get("state", {}), "log": {}, "refused": None}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                if state["refused"] and message["status"] == 413:
                    await _drained(scope, receive)
                told["status"] = message["status"]
                have = {name for name, _ in message["headers"]}
                more = {**HEADERS, **self._cors(scope)}.items()
                message["headers"] += [(k.encode(), v.encode()) for k, v in more if k.encode() not in have]
            told["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            if is_preflight := self._check(scope):
                await JSONResponse({}, 200, headers=is_preflight)(scope, receive, answer)
            else:
                await self.app(scope, _bounded(scope, receive, self._limit(scope)), answer)
        except Problem as problem:
            if not told["status"]:
                if problem.status != 408:
                    await _drained(scope, receive)
                await as_response(problem)(scope, receive, answer)
        except Exception as error:
            logger.exception("request failed: %s", type(error).__name__)
            if not told["status"]:
                await as_response(Problem(500, "the server failed; its log says why"))(scope, receive, answer)
        finally:
            self._log(scope, state["log"], told, time.perf_counter() - started)

    def _check(self, scope: Scope) -> Mapping[str, str] | None:
        """Let a request pass with its caller, or return the answer to a preflight; Problem: it may not."""
        headers = dict(scope["headers"])
        host, origin = (headers.get(name, b"").decode("latin-1").lower() for name in (b"host", b"origin"))
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name not in (*_LOOPBACK, self.own.host.lower(), *(known.lower() for known in self.own.hosts)):
            raise Problem(421, "this server has another name; serve.hosts lists those that it may be called by")
        is_own = origin.partition("://")[2] == host or not origin
        if not is_own and origin not in self.own.origins:
            raise Problem(403, "pages from elsewhere may not ask this server; serve.origins lists those that may")
        if scope["method"] == "OPTIONS" and origin:
            allowed = {"access-control-allow-headers": "authorization, content-type", "access-control-max-age": "600"}
            return {"access-control-allow-methods": "GET, POST, PUT, DELETE", **allowed}
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        caller = find_caller(self.callers, token.strip() if scheme.lower() == "bearer" else None)
        self._pace(caller.name if caller and caller is not LOCAL else str((scope.get("client") or ("",))[0]))
        if caller is None and scope["path"] not in _PUBLIC and not scope["path"].startswith("/page/"):
            raise Problem(401, "give a token that this server knows: Authorization: Bearer TOKEN")
        scope["state"]["caller"] = caller
        current_caller.set(caller or Caller("nobody", "", frozenset(), frozenset()))
        return None

    def _pace(self, who: str) -> None:
        """Count a request of a caller; Problem: too many in a second, by a bucket that refills."""
        now, rate = time.monotonic(), float(self.own.rate)
        level, last = self._rates.pop(who, (rate, now))
        level = min(rate, level + (now - last) * rate)
        # A refusal takes nothing: else whoever goes on too fast would be refused everything, not what is too much.
        self._rates[who] = (level - 1 if level >= 1 else level, now)
        if len(self._rates) > _CALLERS:
            self._rates.popitem(last=False)
        if level < 1:
            raise Problem(429, f"more than {self.own.rate} requests a second", 1)

    def _limit(self, scope: Scope) -> int:
        return self.own.document_bytes if scope["method"] == "PUT" else MAX_JSON

    def _cors(self, scope: Scope) -> Mapping[str, str]:
        origin = dict(scope["headers"]).get(b"origin", b"").decode("latin-1").lower()
        return {"access-control-allow-origin": origin, "vary": "origin"} if origin in self.own.origins else {}

    def _log(self, scope: Scope, more: Mapping[str, Any], told: Mapping[str, int], seconds: float) -> None:
        """Log one line of JSON: where, who, how it ended; of names, questions and texts nothing unless asked for."""
        if self.own.log == "off":
            return
        caller, route = scope["state"].get("caller"), scope.get("route")
        line = {
            "time": round(time.time(), 3),
            "method": scope["method"],
            "route": getattr(route, "path", "/mcp" if scope["path"].startswith("/mcp") else "-"),
            "status": told["status"],
            "ms": round(seconds * 1000, 1),
            "bytes": told["bytes"],
            "caller": caller.name if caller else None,
        }
        shown = more if self.own.log == "contents" else {k: v for k, v in more.items() if k in ("id", "index", "job")}
        logger.info("%s", json.dumps({**line, **shown}, ensure_ascii=True))


def as_response(problem: Problem) -> JSONResponse:
    """Return a problem in the form that OpenAI's clients read."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    headers = {"retry-after": str(problem.retry_s)} if problem.retry_s else {}
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    if problem.status in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not waited for
    told = {"message": problem.message[:2000], "type": kind, "code": problem.status, "param": None}
    return JSONResponse({"error": told}, problem.status, headers=headers)


def _bounded(scope: Scope, receive: Receive, limit: int) -> Receive:
    """Return a `receive` that ends a body which is too large, or too slow."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if length.isdigit() and int(length[:20]) > limit:
        raise Problem(413, f"a body of {length[:20].decode()} bytes; at most {limit} here")
    seen, is_whole, deadline = 0, False, time.monotonic() + _BODY_S * (1 + limit / (1 << 23))

    async def bounded() -> Message:
        nonlocal seen, is_whole
        if is_whole:  # what comes now is that the client has left
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise _refused(scope, Problem(408, "the body took too long")) from None
        seen += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if seen > limit:
            raise _refused(scope, Problem(413, f"a body of more than {limit} bytes"))
        return message

    return bounded


def _refused(scope: Scope, problem: Problem) -> Problem:
    """Note why a body ended: FastAPI tells of whatever ends one that it could not be read."""
    scope["state"]["refused"] = problem
    return problem


async def _drained(scope: Scope, receive: Receive) -> None:
    """Read what a client is still sending, up to a bound: most hear of a refusal only when they have sent all."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            seen = 0
            while seen < _DRAIN and scope["method"] in ("POST", "PUT"):
                message = await receive()
                seen += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def failed(error: Exception) -> Problem:
    """Return what a client is told of an error of the library."""
    from gnnrag.errors import ConfigError, DataError

    return Problem(400 if isinstance(error, ConfigError | DataError) else 503, described(error))
