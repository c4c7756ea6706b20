"""The queue of documents to add to an index and to remove: in SQLite, so that it survives a restart."""

from __future__ import annotations

import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST_WAITING = 256
_BATCH = 32  # documents that are written together
_TRIES = 3  # a job during which the writer died so often is given up
_REMEMBERED = 500  # jobs after their end
_TABLE = """CREATE TABLE IF NOT EXISTS jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE NOT NULL, kind TEXT NOT NULL, document TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'queued', stage TEXT NOT NULL DEFAULT '', done INTEGER NOT NULL DEFAULT 0,
  total INTEGER NOT NULL DEFAULT 0, message TEXT NOT NULL DEFAULT '', tries INTEGER NOT NULL DEFAULT 0,
  created REAL NOT NULL, ended REAL)"""
_SHOWN = "key, kind, document, state, stage, done, total, message, created, ended"
Job = dict[str, Any]


class Jobs:
    """The jobs of an index and their uploads (`inbox/KEY/NAME`), for several threads and processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(0o700, parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(folder / "jobs.sqlite", 30, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(_TABLE)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _run(self, sql: str, *values: Any) -> list[Job]:
        with self._lock:
            return [dict(row) for row in self._db.execute(sql, values)]

    def new_key(self) -> str:
        """Return the name of a new job, whose folder for an upload is there."""
        key = secrets.token_hex(12)
        self.inbox(key).mkdir(parents=True)
        return key

    def inbox(self, key: str) -> Path:
        return self.folder / "inbox" / key

    def discard(self, key: str) -> None:
        shutil.rmtree(self.inbox(key), ignore_errors=True)

    def add(self, key: str, kind: str, document: str) -> bool:
        """Add a job, which from here on survives a kill. False: too many wait."""
        waiting = f"(SELECT count(*) FROM jobs WHERE ended IS NULL) < {MOST_WAITING}"
        new = f"INSERT INTO jobs (key, kind, document, created) SELECT ?, ?, ?, ? WHERE {waiting} RETURNING id"
        return bool(self._run(new, key, kind, document, time.time()))

    def newest(self, limit: int = 100) -> list[Job]:
        return self._run(f"SELECT {_SHOWN} FROM jobs ORDER BY id DESC LIMIT ?", limit)

    def get(self, key: str) -> Job | None:
        return next(iter(self._run(f"SELECT {_SHOWN} FROM jobs WHERE key = ?", key)), None)

    def has_work(self) -> bool:
        """Tell whether a job waits, or was cut off."""
        return bool(self._run("SELECT 1 FROM jobs WHERE ended IS NULL LIMIT 1"))

    def take(self) -> list[Job]:
        """Begin the oldest jobs, of one kind and each document once. For the one process that writes."""
        taken: list[Job] = []
        for job in self._run("SELECT * FROM jobs WHERE ended IS NULL ORDER BY id LIMIT ?", _BATCH):
            if job["tries"] >= _TRIES:
                self.end(job, "failed", f"the process that writes ended {_TRIES} times while it worked on this")
                continue
            documents = {other["document"] for other in taken}
            if taken and (job["kind"] != taken[0]["kind"] or job["document"] in documents or job["tries"]):
                break
            taken.append(job)
            if job["tries"]:  # the writer may have died of it: it goes alone
                break
        for job in taken:
            self._run("UPDATE jobs SET state = 'running', tries = tries + 1 WHERE id = ?", job["id"])
        return taken

    def progress(self, jobs: Sequence[Job], stage: str, done: int, total: int) -> None:
        for job in jobs:
            self._run("UPDATE jobs SET stage = ?, done = ?, total = ? WHERE id = ?", stage, done, total, job["id"])

    def end(self, job: Job, state: str, message: str = "") -> None:
        """End a job, delete its upload, and forget the oldest that have ended."""
        done = "total" if state == "done" else "done"
        ended = f"UPDATE jobs SET state = ?, message = ?, stage = '', ended = ?, done = {done} WHERE id = ?"
        self._run(ended, state, message[:2000], time.time(), job["id"])
        self._run("DELETE FROM jobs WHERE ended IS NOT NULL AND id < ?", job["id"] - _REMEMBERED)
        self.discard(job["key"])

    def sweep(self) -> None:
        """Delete uploads that were cut off an hour ago and belong to no job."""
        known = {row["key"] for row in self._run("SELECT key FROM jobs WHERE ended IS NULL")}
        for path in (self.folder / "inbox").glob("*"):
            if path.name not in known and path.stat().st_mtime < time.time() - 3600:
                self.discard(path.name)
