"""Requests to the backends that run a model in this process, one at a time, many at once, and from several threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from gnnrag.llm.base import Message, Request


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
