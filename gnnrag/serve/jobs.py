"""The jobs of a served index: documents to add or remove, done in order by one thread. A restart forgets them."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from gnnrag.index.update import documents_of

MOST_WAITING = 256
_REMEMBERED = 1000  # jobs, those that have ended included; more than can wait and run


@dataclass(eq=False)
class Job:
    kind: Literal["add", "remove"]
    document: str
    key: str = field(default_factory=lambda: secrets.token_hex(12))
    state: Literal["queued", "running", "done", "failed", "cancelled"] = "queued"
    stage: str = ""  # what is being done, `done` of `total` passages so far
    done: int = 0
    total: int = 0
    message: str = ""
    created: float = field(default_factory=time.time)
    ended: float | None = None
    is_cancelled: bool = False  # somebody wants it cancelled; one that runs may be done before

    def end(self, state: Literal["done", "failed", "cancelled"], message: str = "") -> None:
        self.state, self.message, self.stage, self.ended = state, message[:2000], "", time.time()
        self.done = self.total if state == "done" else self.done

    def to_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Jobs:
    """The jobs of one index, with their uploads.

    `work` does several jobs, all or none of them. If it raises an exception for a single job, `failed` gets both.
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

    def cancel(self, job: Job) -> None:
        """Take a job out of the queue; one that runs ends when its work notices, if it is not done before."""
        job.is_cancelled = True
        if job.state == "queued":
            job.end("cancelled")
            self.discard(job)

    def get(self, key: str) -> Job | None:
        return self._jobs.get(key)

    def newest(self, limit: int = 100) -> list[Job]:
        return list(self._jobs.values())[: -limit - 1 : -1]

    @property
    def open(self) -> int:
        return sum(job.ended is None for job in list(self._jobs.values()))

    @property
    def is_at_work(self) -> bool:
        return self.open > 0

    def close(self) -> None:
        """Let the jobs under way end, and forget those that wait."""
        self._thread.shutdown(cancel_futures=True)
        self._uploads.cleanup()

    def _waiting(self) -> list[Job]:
        return [job for job in list(self._jobs.values()) if job.state == "queued"]

    def _do_waiting(self) -> None:
        """Do waiting jobs together, up to the first whose document contains, or is part of, an earlier one's."""
        names, together = set[str](), list[Job]()
        for job in self._waiting():
            name = job.document
            if name not in names and (_is_part(name, names) or any(_is_part(other, {name}) for other in names)):
                break
            names.add(name)
            together.append(job)
            job.state = "running"
        if together:
            self._do(together)

    def _do(self, jobs: Sequence[Job]) -> None:
        try:
            self._work(jobs)
        except Exception as error:  # noqa: BLE001 - one bad document must not stop the jobs after it
            left = [job for job in jobs if job.ended is None]
            for job in left:
                if job.is_cancelled:
                    job.end("cancelled")
            again = [job for job in left if job.ended is None]
            if len(again) == 1 == len(left):
                self._failed(again[0], error)
            elif len(again) < len(left):
                self._do(again)
            else:  # in halves, until the job at fault is alone
                for half in (again[: len(again) // 2], again[len(again) // 2 :]):
                    self._do(half)
        for job in jobs:
            self.discard(job)


def _is_part(name: str, documents: Collection[str]) -> bool:
    """Tell whether a name is that of a passage, or of a record, of one of these documents."""
    return any(document in documents for document in (*documents_of(name), *documents_of(f"{name}#1")))
