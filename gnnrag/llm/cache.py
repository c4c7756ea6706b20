"""Replies of language models in an SQLite file, keyed by the whole request; a model opened by its name."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import logging
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.llm.base import Backend, Reply, Request
from gnnrag.parts import build, part_from_settings

logger = logging.getLogger(__name__)


class CachedBackend(Backend):
    """Serves a request from the SQLite file `path` if it was answered before, and keeps the answer if not.

    The key covers the model's identity, the messages, every sampling parameter and the schema. Only complete replies
    (`stop`) are kept; identical requests of one event loop are sent once. A cached reply counts as a call with its
    first tokens and cost. The file must be on a local disk: SQLite's write-ahead log does not work on network disks.

    Raises ArtefactError where the file is no response cache.
    """

    def __init__(self, backend: Backend, path: str | Path) -> None:
        self.backend, self.path = backend, Path(path)
        self._lock = threading.Lock()
        self._in_flight: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Task[Reply]] = {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        except (OSError, sqlite3.DatabaseError) as error:
            raise ArtefactError(f"llm_cache={self.path} cannot be opened: {error}; delete it") from error

    @property
    def identity(self) -> Mapping[str, Any]:
        return self.backend.identity

    @property
    def wants_small(self) -> bool:
        return self.backend.wants_small

    async def generate(self, request: Request) -> Reply:
        key = self.key(request)
        if row := self._execute("SELECT value FROM replies WHERE key = ?", key):
            return Reply(**json.loads(row[0]), cached=True)
        place = (asyncio.get_running_loop(), key)
        if (task := self._in_flight.get(place)) is not None:
            return replace(await asyncio.shield(task), cached=True)
        task = self._in_flight[place] = asyncio.create_task(self._ask(key, request))
        task.add_done_callback(lambda _: self._in_flight.pop(place))
        return await asyncio.shield(task)  # a cancelled caller does not cancel it for others that wait for it

    async def close(self) -> None:
        await self.backend.close()

    def key(self, request: Request) -> str:
        """SHA-256 of all that decides a reply."""
        parts = json.dumps({"backend": dict(self.identity), "request": asdict(request)}, sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()

    async def _ask(self, key: str, request: Request) -> Reply:
        reply = await self.backend.generate(request)
        if reply.finish_reason == "stop":
            value = json.dumps({k: v for k, v in asdict(reply).items() if k != "cached"})
            try:
                self._execute("INSERT OR REPLACE INTO replies (key, value) VALUES (?, ?)", key, value)
            except sqlite3.OperationalError as error:  # a full disk costs the entry, never the reply
                logger.warning("response cache %s: reply not kept (%s)", self.path, error)
        return reply

    def _execute(self, statement: str, *values: str) -> Any:
        with self._lock:
            return self._connection.execute(statement, values).fetchone()


def with_model(name: str, settings: Any, model: str | None) -> Any:
    """Return settings with another model (if not None) and no adapter; ConfigError: the backend has no models."""
    if not model:
        return settings
    if not hasattr(settings, "model"):
        raise ConfigError(f"model={model!r}: llm={name} has no models to choose from")
    if getattr(settings, "adapter", None) and settings.model and settings.model != model:
        settings = dataclasses.replace(settings, adapter=None)
    return dataclasses.replace(settings, model=model)


def open_backend(where: str, name: str, settings: Any, cache: str | None) -> Backend:
    """Return a model, behind the response cache in file `cache` unless None; `where` names the setting in errors."""
    if settings is None:
        settings = part_from_settings("llm", name, {}, where)
    backend: Backend = build("llm", settings)
    return CachedBackend(backend, cache) if cache and name != "scripted" else backend
