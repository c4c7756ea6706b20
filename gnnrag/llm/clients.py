"""Connections of one event loop to one server, or to several that are asked in turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from gnnrag.llm.http import open_client, take_apart
from gnnrag.llm.servers import Replicas, Server

if TYPE_CHECKING:
    import openai


@dataclass(slots=True)
class _LoopState:
    """What is bound to one event loop: a client for each server, and what bounds their use."""

    slots: asyncio.Semaphore
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    clients: dict[tuple[str, str], openai.AsyncOpenAI] = field(default_factory=dict)  # by address and key


class Clients:
    """Clients of the OpenAI protocol, made on first use for each event loop: connections cannot move between loops.

    Args:
        own: returns the server, and its key, where there is no file of servers; called where it is needed.
        timeout_s: of one request.
        concurrency: requests in flight in one event loop.
        replicas: servers of a file, instead of that one.
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
        """Return the client of the server whose turn it is, and the server; waits until one of a file answers.

        Raises:
            ConfigError: its address is none.
            LLMError: no server of the file answers.
        """
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
