"""The file of a response cache, which may be a stranger's: nothing in it is run, and an entry is a reply or none.

It is opened only if its schema is ours word for word, so that it holds no triggers, views or computed columns. Its
replies are those of whoever wrote it.
"""

from __future__ import annotations

import sqlite3
import stat
import time
from dataclasses import fields
from pathlib import Path

from gnnrag.errors import ArtefactError
from gnnrag.llm.base import MOST_TOKENS, Reply
from gnnrag.untrusted import counted_repairs, parse_json

_APPLICATION_ID = 0x676E6E72  # "gnnr": tells our file from any other SQLite database
_BUSY_S, _JOURNAL_S = 30.0, 2.0
_TABLE = "CREATE TABLE replies (key TEXT PRIMARY KEY, value TEXT NOT NULL)"
_SCHEMA = {("table", "replies", _TABLE), ("index", "sqlite_autoindex_replies_1", None)}
_MAX_VALUE = 10_000_000  # characters of an entry
_MAX_BYTES = 10 * _MAX_VALUE  # of anything in the file, or in a statement
# Read as bytes, which every value has: of text that is not UTF-8 SQLite says no more than of a damaged file.
SELECT = f"SELECT CASE WHEN length(value) <= {_MAX_VALUE} THEN CAST(value AS BLOB) END FROM replies WHERE key = ?"
_KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float), "bool": bool}


def open_cache(path: Path) -> sqlite3.Connection:
    """Open a response cache, made on first use.

    Raises:
        ArtefactError: it is another program's, a link, or has a journal.
        sqlite3.DatabaseError: it cannot be opened, or is damaged.
    """
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
    """Return the reply of an entry.

    Raises:
        ValueError: it is none that a cache would have written.
    """
    if value is None:
        raise ValueError("no text, or too long a one")
    with counted_repairs() as repairs:
        data = parse_json(value)
    allowed = {field.name: str(field.type) for field in fields(Reply) if field.name != "cached"}
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
    """Refuse links, hard ones too, through which SQLite would write elsewhere, pipes, and a journal that is not ours.

    A forged journal can name a file that SQLite deletes when it has undone what the journal says. We write ahead, and
    have one for a moment only, while a new file is made.
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
    """Tell whether a database has nothing in it yet.

    Raises:
        _ForeignFileError: it has another program's mark, or anything but our table.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    found = set(connection.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_stat*'"))
    if not application and not found:
        return True
    if application != _APPLICATION_ID or found != _SCHEMA:
        raise _ForeignFileError
    return False
