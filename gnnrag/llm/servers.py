"""Several servers of one model: read their addresses, share the requests out, leave out one that fails.

A line of the file is an address and facts, `http://node7:20123/v1 job=4711 key=...`. A server adds its line once it
answers and removes it when it ends (`slurm/vllm_server.sbatch`); one that was killed leaves a stale line.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from gnnrag.common.yaml_config import address
from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm.http import open_client, take_apart

if TYPE_CHECKING:
    import openai


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
