"""Response cache in an SQLite file, opened only if its schema is ours; a backend opened by its name, with the cache."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from gnnrag.common.untrusted import counted_repairs, parse_json
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.llm.base import MOST_TOKENS, Backend, Reply, Request
from gnnrag.registry import BACKENDS, resolve

_APPLICATION_ID = 0x676E6E72  # "gnnr": tells our file from any other SQLite database
_BUSY_S, _JOURNAL_S = 30.0, 2.0
_TABLE = "CREATE TABLE replies (key TEXT PRIMARY KEY, value TEXT NOT NULL)"
_SCHEMA = {("table", "replies", _TABLE), ("index", "sqlite_autoindex_replies_1", None)}
_MAX_VALUE = 10_000_000  # characters of an entry
_MAX_BYTES = 10 * _MAX_VALUE  # of anything in the file, or in a statement
# Read as bytes, which every value has: of text that is not UTF-8 SQLite says no more than of a damaged file.
SELECT = f"SELECT CASE WHEN length(value) <= {_MAX_VALUE} THEN CAST(value AS BLOB) END FROM replies WHERE key = ?"
_NOT_KEPT = ("cached", "tokens")  # of a reply
_KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float), "bool": bool}


def open_cache(path: Path) -> sqlite3.Connection:
    """Open or make a response cache; ArtefactError: foreign, a link, or a journal; sqlite3.DatabaseError: damaged."""
    _refuse_traps(path)
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_BYTES)  # `length` counts up to the first NUL alone
    try:
        _prepare(connection)
    except _ForeignFileError as error:
        connection.close()
        raise ArtefactError(f"{path} is a SQLite database but no response cache; give another path") from error
    except BaseException:
        connection.close()
        raise
    return connection


def read_entry(value: bytes | None) -> Reply:
    """Return the reply of an entry; ValueError: it is none that a cache would have written."""
    if value is None:
        raise ValueError("no text, or too long a one")
    with counted_repairs() as repairs:
        data = parse_json(value)
    allowed = {field.name: str(field.type) for field in fields(Reply) if field.name not in _NOT_KEPT}
    if not isinstance(data, dict) or "text" not in data or data.keys() - allowed.keys():
        raise ValueError("its fields are not those of a reply")
    for name, one in data.items():
        kind = allowed[name]
        if not isinstance(one, _KINDS[kind]) or isinstance(one, bool) != (kind == "bool"):
            raise ValueError(f"its {name!r} is a {type(one).__name__}")
        if isinstance(one, int | float) and not 0 <= one <= MOST_TOKENS:
            raise ValueError(f"its {name!r} is out of range")
    if data.get("finish_reason") != "stop":
        raise ValueError("it is not complete")
    return Reply(**data | {"repaired": data.get("repaired", 0) + repairs.count}, cached=True)


def _refuse_traps(path: Path) -> None:
    """Refuse links (hard ones too: SQLite would write elsewhere), pipes, and a journal that is not ours.

    A forged journal can name a file that SQLite deletes; ours exists for a moment only, while a new file is made.
    """
    for name in (path.name, *(f"{path.name}-{suffix}" for suffix in ("journal", "wal", "shm"))):
        one = path.with_name(name)
        try:
            found = one.lstat()
        except OSError:  # not there; or SQLite says what it is
            continue
        is_file = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        if not (is_file or stat.S_ISDIR(found.st_mode)):
            raise ArtefactError(f"{one} is a link, or no file; give the path of the response cache itself, or copy it")
    journal = path.with_name(f"{path.name}-journal")
    deadline = time.monotonic() + _JOURNAL_S
    while journal.exists():
        if time.monotonic() > deadline:
            raise ArtefactError(f"{journal} is no part of a response cache; delete it, and {path} if it is not yours")
        time.sleep(0.01)


class _ForeignFileError(Exception):
    """The database belongs to another program."""


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the table in a new file, and refuse a database that is not ours."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA page_size = 16384")  # has an effect on a new file only
    connection.execute("PRAGMA synchronous = NORMAL")
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            _is_new(connection)  # before anything is written
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            break
        except sqlite3.OperationalError as error:
            # Switching to WAL does not wait for other processes that open the new file at the same time.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    if _is_new(connection):  # once more, now that nobody else can change it
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(_TABLE)
    connection.execute("COMMIT")


def _is_new(connection: sqlite3.Connection) -> bool:
    """Tell whether a database is empty; _ForeignFileError: it has another program's mark, or anything but our table."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    found = set(connection.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_stat*'"))
    if not application and not found:
        return True
    if application != _APPLICATION_ID or found != _SCHEMA:
        raise _ForeignFileError
    return False


logger = logging.getLogger(__name__)


class CachedBackend(Backend):
    """Serves a request from the SQLite file `path` if it was answered before, and keeps the answer if not.

    The key covers the backend's identity, the messages, every sampling parameter and the schema. Only complete replies
    (`stop`) are kept; identical requests in flight are sent once. A cached reply counts as a call with its first tokens
    and cost. An unreadable entry is asked for again (its key goes into `unreadable`). The file must be on a local disk:
    SQLite's write-ahead log does not work on network file systems.

    Raises ArtefactError where the file is damaged or no response cache.
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
        return self.backend.wants_small

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
        value = {k: v for k, v in asdict(reply).items() if k not in _NOT_KEPT}
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


# ------------------------------------------------------------------------------------------------------------ opening
def with_model(name: str, settings: Any, model: str | None) -> Any:
    """Return settings with another model (if not None) and no adapter; ConfigError: the backend has no models."""
    if not model:
        return settings
    if not hasattr(settings, "model"):
        raise ConfigError(f"model={model!r}: the {name} backend has no models to choose from")
    if getattr(settings, "adapter", None) and settings.model and settings.model != model:
        settings = dataclasses.replace(settings, adapter=None)
    return dataclasses.replace(settings, model=model)


def open_backend(where: str, name: str, settings: Any, cache: str | None) -> Backend:
    """Return a backend, behind the response cache in file `cache` unless None; `where` names the setting in errors."""
    backend: Backend = resolve(where, name, BACKENDS)(settings)
    if cache and name != "scripted":
        return CachedBackend(backend, cache)
    return backend
