"""Requests to the backends that run a model in this process, one at a time, many at once, and from several threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from gnnrag.llm.base import Message, Reply, Request


def ask(backend: Any, *requests: Request) -> list[Any]:
    """Return the replies to requests that are in flight together, or the exceptions in their places."""

    async def go() -> list[Any]:
        return await asyncio.gather(*(backend.generate(r) for r in requests), return_exceptions=True)

    return asyncio.run(go())


def request(text: str, **settings: Any) -> Request:
    """Return a request for a brief reply."""
    return Request((Message("system", "Be brief."), Message("user", text)), **{"max_tokens": 12, **settings})


def texts_from_threads(backend: Any) -> list[str]:
    """Return what the same request gets in three threads, each with an event loop of its own."""
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(ask(backend, request("a"))[0].text)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def reply_beside_a_cancelled_one(backend: Any, max_tokens: int = 30_000) -> Reply:
    """Return the reply to a request whose neighbour, which would take minutes, is cancelled in its middle."""

    async def go() -> Reply:
        endless = asyncio.create_task(backend.generate(request("a", max_tokens=max_tokens)))
        await asyncio.sleep(0.1)
        endless.cancel()
        reply = await asyncio.wait_for(backend.generate(request("b")), 60)
        assert endless.done()
        return reply

    return asyncio.run(go())
