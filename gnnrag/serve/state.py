"""What the processes of a server share of one index: jobs to write, kept answers, questions to stop. In SQLite."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnrag.common.files import child, refuse_links, tidy

MOST_JOBS = 256  # that wait; what comes then is told to come later
_ENDED_KEPT = 500  # jobs that have ended
BATCH = 32  # documents that are written together
TRIES = 8  # a job that took the writer with it so often is given up
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE NOT NULL, kind TEXT NOT NULL, document TEXT NOT NULL,
  state TEXT NOT NULL, stage TEXT NOT NULL DEFAULT '',
  done INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL DEFAULT 0,
  message TEXT NOT NULL DEFAULT '', tries INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL, ended REAL);
CREATE TABLE IF NOT EXISTS answers (
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE NOT NULL, caller TEXT NOT NULL, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS stops (key TEXT NOT NULL, caller TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER NOT NULL);
INSERT INTO epochs SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM epochs);
"""
_SHOWN = "key, kind, document, state, stage, done, total, message, created, ended"


class State:
    """The folder of an index's jobs, uploads (`inbox/JOB/NAME`) and answers; safe for threads and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(0o700, parents=True, exist_ok=True)  # questions and answers are nobody else's
        refuse_links(root)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(root / "state.sqlite", 30, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        with self._lock:
            return [dict(row) for row in self._connection.execute(sql, values)]

    # ------------------------------------------------------------------------------------------------------------ jobs
    def new_key(self) -> str:
        """Return the name of a new job, and make its folder for an upload."""
        key = secrets.token_hex(12)
        self.inbox(key).mkdir(parents=True)
        return key

    def inbox(self, key: str) -> Path:
        """Return the folder of a job's upload."""
        return child(self.root / "inbox", key, "[0-9a-f]{24}")

    def add_job(self, key: str, kind: str, document: str) -> bool:
        """Take a job on: from here on it survives a kill. False: too many wait."""
        with self._transaction() as db:
            waiting = db.execute("SELECT count(*) FROM jobs WHERE ended IS NULL").fetchone()[0]
            if waiting < MOST_JOBS:
                values = (key, kind, document, "queued", time.time())
                db.execute("INSERT INTO jobs (key, kind, document, state, created) VALUES (?, ?, ?, ?, ?)", values)
        return bool(waiting < MOST_JOBS)

    def jobs(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return the newest jobs, newest first."""
        return self._rows(f"SELECT {_SHOWN} FROM jobs ORDER BY id DESC LIMIT ?", limit)

    def job(self, key: str) -> dict[str, Any] | None:
        """Return one job."""
        return next(iter(self._rows(f"SELECT {_SHOWN} FROM jobs WHERE key = ?", key)), None)

    def has_work(self) -> bool:
        """Tell whether a job waits, or was cut off."""
        return bool(self._rows("SELECT 1 FROM jobs WHERE ended IS NULL LIMIT 1"))

    def take(self) -> list[dict[str, Any]]:
        """Begin the oldest jobs of one kind, each document once; what a writer that died had begun comes first."""
        with self._transaction() as db:
            rows = db.execute("SELECT * FROM jobs WHERE ended IS NULL ORDER BY id LIMIT ?", (BATCH,)).fetchall()
            taken: list[dict[str, Any]] = []
            for row in rows:
                if row["kind"] != rows[0]["kind"] or row["document"] in {job["document"] for job in taken}:
                    break
                if taken and (row["tries"] > 1 or taken[0]["tries"] > 1):
                    break  # one of those that were cut off may be what did it: each goes alone
                taken.append(dict(row))
            for job in taken:
                db.execute("UPDATE jobs SET state = 'running', tries = tries + 1 WHERE id = ?", (job["id"],))
        return taken

    def tell(self, jobs: Sequence[dict[str, Any]], stage: str, done: int, total: int) -> None:
        """Record how far jobs are."""
        with self._transaction() as db:
            rows = [(stage, done, total, job["id"]) for job in jobs]
            db.executemany("UPDATE jobs SET stage = ?, done = ?, total = ? WHERE id = ?", rows)

    def end(self, job: dict[str, Any], state: str, message: str = "") -> None:
        """End a job, and forget the oldest that have ended."""
        with self._transaction() as db:
            whole = ", done = total" if state == "done" else ""  # progress is told now and then, not of the last part
            ended = f"UPDATE jobs SET state = ?, message = ?, stage = '', ended = ?{whole} WHERE id = ?"
            db.execute(ended, (state, message[:2000], time.time(), job["id"]))
            db.execute("DELETE FROM jobs WHERE ended IS NOT NULL AND id < ?", (job["id"] - _ENDED_KEPT,))
        tidy(self.inbox(job["key"]), self.root)

    def sweep(self) -> None:
        """Delete uploads of no job that were cut off an hour ago."""
        known = {row["key"] for row in self._rows("SELECT key FROM jobs WHERE ended IS NULL")}
        for path in (self.root / "inbox").glob("*"):
            if path.name not in known and path.lstat().st_mtime < time.time() - 3600:
                tidy(path, self.root)

    # --------------------------------------------------------------------------------------------------------- answers
    def epoch(self) -> int:
        """Return a number that grows when something was deleted: an answer from before is not kept."""
        return int(self._rows("SELECT epoch FROM epochs")[0]["epoch"])

    def keep(self, key: str, caller: str, value: dict[str, Any], epoch: int, most: int) -> None:
        """Keep an answer that was begun in this epoch, and the newest `most` of them."""
        text = json.dumps(value, ensure_ascii=False)
        with self._transaction() as db:
            if most and db.execute("SELECT epoch FROM epochs").fetchone()[0] == epoch:
                db.execute("INSERT INTO answers (key, caller, value) VALUES (?, ?, ?)", (key, caller, text))
                db.execute("DELETE FROM answers WHERE id <= (SELECT max(id) FROM answers) - ?", (most,))

    def answer(self, key: str, caller: str) -> dict[str, Any] | None:
        """Return an answer that was kept for this caller."""
        rows = self._rows("SELECT value FROM answers WHERE key = ? AND caller = ?", key, caller)
        return json.loads(rows[0]["value"]) if rows else None

    def forget(self) -> None:
        """Delete all kept answers, and refuse those under way: they may tell of what was deleted."""
        with self._transaction() as db:
            db.execute("DELETE FROM answers")
            db.execute("UPDATE epochs SET epoch = epoch + 1")
        with self._lock:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # ---------------------------------------------------------------------------------------------------------- stops
    def stop(self, key: str, caller: str) -> None:
        """Ask whichever process answers a question to stop."""
        with self._transaction() as db:
            db.execute("DELETE FROM stops WHERE at < ?", (time.time() - 60,))
            db.execute("INSERT INTO stops VALUES (?, ?, ?)", (key, caller, time.time()))

    def stops(self) -> set[tuple[str, str]]:
        """Return the questions to stop, with who said so."""
        return {(row["key"], row["caller"]) for row in self._rows("SELECT key, caller FROM stops")}
