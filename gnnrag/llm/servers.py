"""HTTP with bounded tries, waits and sizes; several servers of one model, that share requests, without one that fails.

A line of the file is an address and facts, `http://node7:20123/v1 job=4711 key=...`. A server adds its line once it
answers and removes it when it ends (`slurm/vllm_server.sbatch`); one that was killed leaves a stale line.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import shutil
import subprocess
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit
from weakref import WeakKeyDictionary

from gnnrag.common.yaml_config import address, host
from gnnrag.errors import ConfigError, LLMError

if TYPE_CHECKING:
    import openai


logger = logging.getLogger(__name__)
T = TypeVar("T")
MAX_WAIT_S = 120.0  # a server that asks for more is out of quota, not busy


@dataclass
class RetryableError(Exception):
    """A failure that may pass; `error` is raised when it does not.

    `wait_s` is the server's wish; `is_connection`: not reached at all; `reason` is in our words, safe for the log.
    """

    error: LLMError
    wait_s: float | None = None
    is_connection: bool = False
    reason: str = ""
    server: str = ""


@dataclass
class RefusedError(Exception):
    """A 400 that may be about the response format."""

    error: LLMError


def import_openai() -> Any:
    """Import the client on first use: it costs half a second, and most runs need no server."""
    try:
        import openai
    except ImportError as error:
        raise LLMError("the openai package is not installed; run: pip install openai") from error
    return openai


async def with_retries(call: Callable[[], Awaitable[T]], attempts: int, backoff_s: float) -> T:
    """Await `call()` until it does not raise RetryableError, `attempts` times at most; each failure is logged at once.

    Waits as long as the server asks, else a random time below `backoff_s` * 2^n (at most 30 s), so that callers that
    failed together do not come back together. Raises the LLMError of the last attempt, or of one not worth repeating.
    """
    for number in range(attempts):
        try:
            return await call()
        except RetryableError as failure:
            wait = failure.wait_s
            if wait is None:
                wait = random.uniform(0.0, min(30.0, backoff_s * 2**number))  # for pauses only
            is_last = number + 1 == attempts
            then = "given up" if is_last else f"the next in {wait:.1f} s"
            tried = f"try {number + 1} of {attempts} failed ({failure.reason or 'no reply'})"
            logger.warning("%s: %s, %s", failure.server or "the server", tried, then)
            if is_last:
                raise
        await asyncio.sleep(wait)
    raise ValueError(f"attempts={attempts}: must be at least 1")


MAX_BODY = 8 << 20  # bytes of a reply: 60 for each of 130,000 tokens
_SHORT_SECRET, _SHORT_VALUE = 4, 8  # characters below which hiding would only make a message unreadable
_LOGGERS = ("httpx", "httpx2", "openai._base_client")  # they write addresses as they were called


class BodyError(ValueError):
    """What a server sent is not received any further."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address of a server, without user, password and query in `base`; `basic` is an Authorization header or empty.

    `query` goes with every request; `secrets` must not show in messages, in any spelling a server could quote.
    """

    base: str
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    basic: str = field(default="", repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


def take_apart(url: str, name: str = "llm.base_url") -> Address:
    """Return the parts of an address; ConfigError (names the setting, shows no credentials): it is none of a server."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its text quotes a part, which may be of the password
        is_address = False
    if not is_address:
        shown = url.rpartition("@")[2].partition("?")[0]
        fix = "give a URL such as http://127.0.0.1:8000/v1 (in a password, / ? # @ are %2F %3F %23 %40)"
        raise ConfigError(f"{name}={shown!r}: {fix}")
    user = parts.netloc.rpartition("@")[0]
    basic = b64encode(":".join(map(unquote, user.partition(":")[::2])).encode()).decode() if user else ""
    query = tuple(parse_qsl(parts.query, keep_blank_values=True))
    return Address(address(url), query, f"Basic {basic}" if user else "", frozenset(_secrets(parts, basic)))


def _secrets(parts: SplitResult, basic: str) -> Iterable[str]:
    user = parts.netloc.rpartition("@")[0]
    if user:
        yield from (user, unquote(user), basic, basic.rstrip("="))
    if parts.password and len(parts.password) >= _SHORT_SECRET:
        yield from spellings(unquote(parts.password))
        yield parts.password
    for _, value in parse_qsl(parts.query):
        if len(value) >= _SHORT_VALUE:
            yield from spellings(value)


def spellings(secret: str) -> set[str]:
    """Return a secret as it may stand in a message: as it is, in a URL, and in base64."""
    if len(secret) < _SHORT_SECRET:
        return set()
    return {secret, quote(secret, safe=""), b64encode(secret.encode("utf-8", "replace")).decode().rstrip("=")}


def open_client(at: Address, key: str, timeout_s: float) -> openai.AsyncOpenAI:
    """Return a client of a server; a `key` is sent in place of user and password."""
    _hide_in_logs()
    headers = {"Accept-Encoding": "identity"}  # what is counted while it arrives is then what fills the memory
    if at.basic:
        headers["Authorization"] = at.basic
    return import_openai().AsyncOpenAI(
        api_key=key or "none",  # the client insists on one; servers without keys ignore it
        base_url=at.base,
        timeout=timeout_s,
        max_retries=0,
        default_headers=headers,
        http_client=_bounded_client()(at.query, timeout_s),
    )


@cache
def _bounded_client() -> Any:
    """Return the class of the HTTP client: made here, since what it is derived from takes half a second to import."""

    class BoundedClient(import_openai().DefaultAsyncHttpxClient):  # type: ignore[misc]
        def __init__(self, query: tuple[tuple[str, str], ...], timeout_s: float) -> None:
            # A key and a prompt are for the host that they were meant for.
            super().__init__(timeout=timeout_s, follow_redirects=False)
            self.query = query

        async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            if self.query:
                request.url = request.url.copy_merge_params(self.query)
            response = await super().send(request, stream=True, **(options | {"follow_redirects": False}))
            try:
                return await _received(response)
            finally:
                await response.aclose()

    return BoundedClient


async def _received(response: Any) -> Any:
    """Return a response with its whole body. Raises BodyError where that is too large, or packed."""
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise BodyError(f"its body is packed ({packed[:40]}), which was not asked for")
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > MAX_BODY:
            raise BodyError(f"its body has more than {MAX_BODY:,} bytes")
    return type(response)(
        response.status_code,
        headers=response.headers,
        content=bytes(body),
        request=response.request,
        extensions=response.extensions,
    )


@cache
def _hide_in_logs() -> None:
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_without_queries)


def _without_queries(record: logging.LogRecord) -> bool:
    """Take the query, which may hold a key, from addresses that a library is about to log."""
    if isinstance(record.args, tuple):
        record.args = tuple(_bare(one) if "://" in str(one) else one for one in record.args)
    return True


def _bare(value: Any) -> str:
    try:
        return address(str(value)) if host(str(value)) else str(value)
    except ValueError:
        return "(an address)"


# ---------------------------------------------------------------------------------------------------- several servers
PAUSE_S = 2.0  # between two looks
HEALTH_S = 5.0  # for one answer
REMIND_S = 60.0  # a person is told again what is waited for
_HANDLERS = (
    *(urllib.request.HTTPHandler, urllib.request.HTTPSHandler),
    *(urllib.request.HTTPErrorProcessor, urllib.request.HTTPDefaultErrorHandler),
)
_OVER = "has ended"


@dataclass(frozen=True)
class Server:
    """A server: the address for a client, SLURM's number of its job, and the key that it wants; empty for none."""

    url: str = field(repr=False)
    job: str = ""
    key: str = field(default="", repr=False)


def read_servers(path: Path) -> list[Server]:
    """Return the servers of a file, none where there is no file yet; LLMError: a line is no address and facts."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(lines, start=1):
        url, *facts = line.split() or [""]
        pairs = dict(fact.split("=", 1) for fact in facts if "=" in fact)
        if url and (not _is_address(url) or len(pairs) != len(facts)):
            raise LLMError(f"{path}, line {number}: not of the form http://HOST:PORT/v1 job=NUMBER key=KEY")
        if url:
            found.append(Server(url.rstrip("/"), pairs.get("job", ""), pairs.get("key", "")))
    return found


def _is_address(url: str) -> bool:
    try:
        return bool(take_apart(url))
    except ConfigError:
        return False


def is_healthy(server: Server) -> bool:
    """Tell whether a server answers at `/health`: asked directly, past all proxies; a redirect is no answer."""
    at = take_apart(server.url)
    parts = urlsplit(at.base)
    opener = urllib.request.OpenerDirector()
    for handler in _HANDLERS:
        opener.add_handler(handler())
    asked = urllib.request.Request(f"{parts.scheme}://{parts.netloc}/health")
    if at.basic:
        asked.add_header("Authorization", at.basic)
    try:
        with opener.open(asked, timeout=HEALTH_S) as reply:  # its body is not read
            return bool(reply.status == 200)
    except (OSError, ValueError, HTTPException):  # the last: it speaks another protocol
        return False


def job_state(job: str) -> str:
    """Return what SLURM says of a job: its state, `has ended` where it knows it no more; empty without SLURM."""
    if not job or shutil.which("squeue") is None:
        return ""
    command = ["squeue", "--noheader", f"--jobs={job}", "--format=%T"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return ""
    if done.returncode:
        return _OVER if "Invalid job id" in done.stderr else ""
    return f"is {done.stdout.split()[0].lower()}" if done.stdout.strip() else _OVER


async def wait_for_servers(path: Path, wait_s: float, tell: Callable[[str], None]) -> list[Server]:
    """Return the servers of a file that answer, once there is one; LLMError: none did within `wait_s`, and why.

    `tell` is notified of what is waited for, at once and every minute.
    """
    started, reminded, before = time.monotonic(), 0.0, ""
    while True:
        servers = read_servers(path)
        answers = await asyncio.gather(*(_answers(server) for server in servers))
        if healthy := [server for server, answer in zip(servers, answers, strict=True) if answer]:
            return healthy
        why = await asyncio.to_thread(_why_not, path, servers)
        waited = time.monotonic() - started
        if waited >= wait_s:
            raise LLMError(
                f"no language-model server within {wait_s:g} s (llm.server_wait_s): {why}; "
                "start one: sbatch slurm/vllm_server.sbatch MODEL"
            )
        if why != before or waited - reminded >= REMIND_S:
            tell(f"{why}; waiting for a server, {waited:.0f} of at most {wait_s:.0f} s")
            before, reminded = why, waited
        await asyncio.sleep(min(PAUSE_S, max(0.0, wait_s - waited)))


async def _answers(server: Server) -> bool:
    """Tell whether a server answers in time: HEALTH_S is for one byte, of which a slow one sends many."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(is_healthy, server), 2 * HEALTH_S)
    except TimeoutError:
        return False


def _why_not(path: Path, servers: Sequence[Server]) -> str:
    if not servers:
        return f"there is no {path} yet" if not path.exists() else f"{path} names no server"
    told = []
    for server in servers:
        state = job_state(server.job)
        about = f" (job {server.job} {state}{': this line is stale' if state == _OVER else ''})" if state else ""
        told.append(f"{address(server.url)} does not answer{about}")
    return f"{path}: " + ", ".join(told)


class Replicas:
    """Servers of a file, in turn, without those that cannot be reached; waits `wait_s` again once none is left."""

    def __init__(self, path: str | Path, wait_s: float) -> None:
        self.path, self.wait_s = Path(path), wait_s
        self._servers: list[Server] = []
        self._turn = itertools.count()

    async def pick(self, lock: asyncio.Lock) -> Server:
        """Return the server whose turn it is; `lock` is the running loop's, so that one caller alone waits."""
        async with lock:
            if not self._servers:
                self._servers = await wait_for_servers(self.path, self.wait_s, logging.getLogger(__name__).warning)
            return self._servers[next(self._turn) % len(self._servers)]

    def lost(self, server: Server) -> None:
        """Leave a server out that could not be reached."""
        self._servers = [other for other in self._servers if other != server]

    def forget(self) -> None:
        """Read the file again before the next call: a server that was started anew has another key."""
        self._servers = []


@dataclass(slots=True)
class _LoopState:
    """What is bound to one event loop: a client for each server, and what bounds their use."""

    slots: asyncio.Semaphore
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    clients: dict[tuple[str, str], openai.AsyncOpenAI] = field(default_factory=dict)  # by address and key


class Clients:
    """Clients of the OpenAI protocol, made on first use for each event loop: connections cannot move between loops.

    `own` returns the server and its key where there are no `replicas`; `concurrency` is per event loop.
    """

    def __init__(
        self, own: Callable[[], Server], timeout_s: float, concurrency: int, replicas: Replicas | None = None
    ) -> None:
        self.own, self.timeout_s, self.concurrency, self.replicas = own, timeout_s, concurrency, replicas
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState] = WeakKeyDictionary()
        self._guard = threading.Lock()

    @property
    def slots(self) -> asyncio.Semaphore:
        """What a request of the running loop has to hold."""
        return self._state().slots

    async def pick(self) -> tuple[openai.AsyncOpenAI, Server]:
        """Return the client and server in turn, once one answers; LLMError: none does; ConfigError: bad address."""
        state = self._state()
        server = await self.replicas.pick(state.lock) if self.replicas else self.own()
        known = (server.url, server.key)  # a server that its job starts again has the old address and a new key
        if known not in state.clients:
            state.clients[known] = open_client(take_apart(server.url), server.key, self.timeout_s)
        return state.clients[known], server

    def lost(self, server: Server) -> None:
        """Note that a server could not be reached: another one of its file is asked."""
        if self.replicas:
            self.replicas.lost(server)

    def refused(self) -> bool:
        """Note that a server did not take its key; tells whether there is a file, which is then read again."""
        if self.replicas:
            self.replicas.forget()
        return self.replicas is not None

    async def close(self) -> None:
        """Close the running loop's connections."""
        with self._guard:
            state = self._loops.pop(asyncio.get_running_loop(), None)
        for client in state.clients.values() if state else ():
            await client.close()

    def _state(self) -> _LoopState:
        loop = asyncio.get_running_loop()
        with self._guard:
            if loop not in self._loops:
                for ended in [other for other in self._loops if other.is_closed()]:
                    del self._loops[ended]  # its connections keep it alive otherwise
                self._loops[loop] = _LoopState(asyncio.Semaphore(self.concurrency))
            return self._loops[loop]
