"""A response cache around any backend: one SQLite file, shared by threads and processes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError
from gnnrag.llm.base import Backend, Reply, Request
from gnnrag.llm.cache_file import SELECT, open_cache, read_entry

logger = logging.getLogger(__name__)


class CachedBackend:
    """Serves a request from disk if it was answered before, and keeps the answer if not.

    The key covers the backend's identity, the messages, every sampling parameter and the schema. Only complete
    replies (`stop`) are kept. Identical requests in flight at once are sent once. A reply from the cache counts as a
    call with the tokens and the cost that it had when it was made, and says that it is cached. An entry that is no
    reply is asked for again and replaced.

    The file must be on a local disk: SQLite's write-ahead log does not work on network file systems.

    Args:
        backend: answers what the cache does not hold.
        path: the file; made with its folders on first use.

    Raises:
        ArtefactError: the file exists and is damaged, or is no response cache.

    Attributes:
        unreadable: keys of the entries that were no replies.
    """

    def __init__(self, backend: Backend, path: str | Path) -> None:
        self.backend, self.path = backend, Path(path)
        self.unreadable: set[str] = set()
        self._connections: dict[tuple[int, int], sqlite3.Connection] = {}
        self._in_flight: dict[str, Future[Reply | None]] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._connection()

    @property
    def identity(self) -> Mapping[str, Any]:
        """The wrapped backend's: caching changes no reply."""
        return self.backend.identity

    @property
    def wants_small(self) -> bool:
        """Whether the wrapped backend gets the small variant of prompts."""
        return bool(getattr(self.backend, "wants_small", False))

    async def generate(self, request: Request) -> Reply:
        """Answer one request, from disk if possible."""
        key = self.key(request)
        while True:
            if hit := self._read(key):
                return hit
            with self._lock:
                future = self._in_flight.get(key)
                if future is None:
                    mine: Future[Reply | None] = Future()
                    mine.set_running_or_notify_cancel()  # so that a waiter who gives up cannot cancel it for all
                    self._in_flight[key] = mine
            if future is None:
                return await self._lead(key, request, mine)
            shared = await asyncio.wrap_future(future)
            if shared is not None:
                return replace(shared, cached=True)
            # The one who asked was cancelled: try again, perhaps as the one who asks.

    async def close(self) -> None:
        """Close the backend's and the cache's connections."""
        await self.backend.close()
        if len(self.unreadable) > 1:
            logger.warning("response cache %s: %d replies could not be read", self.path, len(self.unreadable))
        with self._lock:
            connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def key(self, request: Request) -> str:
        """SHA-256 of all that decides a reply."""
        parts = {"backend": dict(self.backend.identity), "request": asdict(request)}
        return hashlib.sha256(
            json.dumps(parts, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
        ).hexdigest()

    async def _lead(self, key: str, request: Request, mine: Future[Reply | None]) -> Reply:
        """Ask the backend on behalf of all who wait for the same reply."""
        try:
            reply = self._read(key)  # once more: it may have been written just before this call became the first
            if reply is None:
                reply = await self.backend.generate(request)
                if reply.finish_reason == "stop":
                    self._write(key, reply)
        except BaseException as error:
            if isinstance(error, Exception):
                mine.set_exception(error)
            raise
        else:
            mine.set_result(reply)
            return reply
        finally:
            with self._lock:
                del self._in_flight[key]
            if not mine.done():
                mine.set_result(None)

    def _read(self, key: str) -> Reply | None:
        try:
            row = self._connection().execute(SELECT, (key,)).fetchone()
        except sqlite3.DataError:  # an entry beyond all measure
            row = (None,)
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error
        try:
            return read_entry(row[0]) if row else None
        except ValueError as error:
            if not self.unreadable:
                what = "asks again for replies that cannot be read, and replaces them"
                logger.warning("response cache %s %s (the first: %s)", self.path, what, error)
            self.unreadable.add(key)
            return None

    def _write(self, key: str, reply: Reply) -> None:
        """Keep a reply. A full disk or a lock held too long costs the entry, never the reply."""
        value = {k: v for k, v in asdict(reply).items() if k != "cached"}
        try:
            with self._writing:
                self._connection().execute(
                    "INSERT OR REPLACE INTO replies (key, value) VALUES (?, ?)", (key, json.dumps(value))
                )
        except sqlite3.OperationalError as error:
            logger.warning("response cache %s: reply not kept (%s)", self.path, error)
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _connection(self) -> sqlite3.Connection:
        """Return this thread's connection; a forked child never uses its parent's."""
        me = (os.getpid(), threading.get_ident())
        with self._lock:
            if me not in self._connections:
                self._connections[me] = self._open()
            return self._connections[me]

    def _open(self) -> sqlite3.Connection:
        try:
            return open_cache(self.path)
        except sqlite3.OperationalError as error:
            raise ArtefactError(f"response cache {self.path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> ArtefactError:
        return ArtefactError(f"response cache {self.path} is damaged ({error}); delete it, replies will be asked anew")
