"""The jobs of a served index: documents to add or remove, done in order by one thread. A restart forgets them."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

MOST_WAITING = 256
_REMEMBERED = 1000  # jobs, those that have ended included; more than can wait and run


@dataclass(eq=False)
class Job:
    kind: Literal["add", "remove"]
    document: str
    key: str = field(default_factory=lambda: secrets.token_hex(12))
    state: Literal["queued", "running", "done", "failed"] = "queued"
    stage: str = ""  # what is being done, `done` of `total` passages so far
    done: int = 0
    total: int = 0
    message: str = ""
    created: float = field(default_factory=time.time)
    ended: float | None = None

    def end(self, state: Literal["done", "failed"], message: str = "") -> None:
        self.state, self.message, self.stage, self.ended = state, message[:2000], "", time.time()
        self.done = self.total if state == "done" else self.done

    def to_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Jobs:
    """The jobs of one index, with their uploads.

    `work` is given jobs of one kind, each for another document, and ends them; `failed` a job and what `work` raised.
    """

    def __init__(self, work: Callable[[Sequence[Job]], None], failed: Callable[[Job, Exception], None]) -> None:
        self._work, self._failed = work, failed
        self._jobs: dict[str, Job] = {}  # by key, oldest first
        self._thread = ThreadPoolExecutor(1, "gnnrag-jobs")
        self._uploads = tempfile.TemporaryDirectory(prefix="gnnrag-serve-")

    def upload(self, job: Job) -> Path:
        """Return where the file of a job lies; its name is checked before."""
        return Path(self._uploads.name, job.key, job.document)

    def discard(self, job: Job) -> None:
        shutil.rmtree(self.upload(job).parent, ignore_errors=True)

    def add(self, job: Job) -> bool:
        """Put a job into the queue. False: too many wait."""
        if len(self._waiting()) >= MOST_WAITING:
            return False
        self._jobs[job.key] = job
        for key in list(self._jobs)[:-_REMEMBERED]:
            del self._jobs[key]
        self._thread.submit(self._do_waiting)
        return True

    def get(self, key: str) -> Job | None:
        return self._jobs.get(key)

    def newest(self, limit: int = 100) -> list[Job]:
        return list(self._jobs.values())[: -limit - 1 : -1]

    @property
    def is_at_work(self) -> bool:
        return any(job.ended is None for job in list(self._jobs.values()))

    def close(self) -> None:
        """Let the jobs under way end, and forget those that wait."""
        self._thread.shutdown(cancel_futures=True)
        self._uploads.cleanup()

    def _waiting(self) -> list[Job]:
        return [job for job in list(self._jobs.values()) if job.state == "queued"]

    def _do_waiting(self) -> None:
        """Do the oldest jobs together, as far as they are of one kind and name each document once."""
        together: dict[str, Job] = {}
        for job in self._waiting():
            if together and (job.kind != next(iter(together.values())).kind or job.document in together):
                break
            together[job.document] = job
            job.state = "running"
        if together:
            self._do(list(together.values()))

    def _do(self, jobs: Sequence[Job]) -> None:
        try:
            self._work(jobs)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a document must not stop those behind it
            if len(jobs) == 1:
                self._failed(jobs[0], error)
            else:  # one by one, so that each has its own fault
                for job in [job for job in jobs if job.ended is None]:
                    self._do([job])
        for job in jobs:
            self.discard(job)
