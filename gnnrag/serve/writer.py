"""The process that changes an index: it does the jobs of its queue in order, and ends when there are none.

The server starts it when a job waits. Killed, it leaves its jobs to the next one: adding what is there changes nothing.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

from gnnrag.api import Index, read_documents
from gnnrag.datasets.base import Dataset
from gnnrag.errors import GnnragError, described
from gnnrag.index.build import is_cut_from
from gnnrag.index.index import MANIFEST
from gnnrag.io import exclusive_lock
from gnnrag.serve.jobs import Job, Jobs
from gnnrag.serve.settings import Service, read_service

_VARIABLE = "GNNRAG_SERVE"  # the server's command line and the name of the index, for the process that writes
_IDLE_S = 20.0  # without a job, before it ends: what it has loaded serves those that follow soon
_PROGRESS_S = 0.2


def start(service: Service, name: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, _VARIABLE: json.dumps({"arguments": service.arguments, "index": name})}
    # Its output goes to stderr: an agent's tools speak MCP on stdout.
    command = [sys.executable, "-c", "from gnnrag.serve.writer import main; main()"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=2)


def main() -> None:
    """Be the writer that the environment names; returns at once where another one is at work."""
    given = json.loads(os.environ[_VARIABLE])
    service, name = read_service(given["arguments"]), given["index"]
    os.nice(5)  # questions first
    lock = service.state_folder(name) / "writer.lock"
    with suppress(GnnragError, KeyboardInterrupt), exclusive_lock(lock, f"the jobs of {name}"):
        Writer(service, name).work()


class Writer:
    def __init__(self, service: Service, name: str) -> None:
        self.path, self.folder = service.indexes[name], service.state_folder(name)
        self.source, self.settings = service.source, service.settings_for(name)
        self.jobs = Jobs(self.folder)

    def work(self, idle_s: float = _IDLE_S) -> None:
        """Do jobs until none has come for a while."""
        self.jobs.sweep()
        last = time.monotonic()
        while time.monotonic() - last < idle_s:
            if jobs := self.jobs.take():
                self._do(jobs)
                last = time.monotonic()
            else:
                time.sleep(0.2)
        self.jobs.close()

    def _do(self, jobs: Sequence[Job]) -> None:
        """Do jobs together; where that fails, one by one, so that each ends with its own fault."""
        try:
            (self._add if jobs[0]["kind"] == "add" else self._remove)(jobs)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a document must not stop those behind it
            if len(jobs) == 1:
                self._fail(jobs[0], error)
                return
            for job in jobs:
                if not (self.jobs.get(job["key"]) or job)["ended"]:
                    self._do([job])

    def _fail(self, job: Job, error: Exception) -> None:
        message = described(error).replace(str(self.jobs.inbox(job["key"])), job["document"])
        self.jobs.end(job, "failed", message.replace(str(self.path), self.path.name))

    def _add(self, jobs: Sequence[Job]) -> None:
        progress, index, loaded = self._progress(jobs), self._index(), []
        for job in jobs:
            try:
                inbox = self.jobs.inbox(job["key"])
                if index:
                    data = read_documents(inbox, index=index, on_progress=progress)
                else:
                    data = read_documents(inbox, config=self.source, settings=self.settings, on_progress=progress)
                loaded.append((job, data))
            except GnnragError as error:
                self._fail(job, error)
        if not loaded:
            return
        data = Dataset(
            self.path.name,
            tuple(passage for _, part in loaded for passage in part.passages),
            documents=tuple(document for _, part in loaded for document in part.documents),
            report=tuple(report for _, part in loaded for report in part.report),
        )
        if index is None:
            Index.build(data, self.path, config=self.source, settings=self.settings, on_progress=progress).close()
        else:
            names = frozenset(data.documents)
            is_replaced = any(is_cut_from(id_, names) for id_ in index.stored.ids)
            index.add(data, on_progress=progress)
            index.prepare(on_progress=progress)  # a kill may have cut off its first build
            index.close()
            if is_replaced:
                self._forget()
        for job, part in loaded:
            remarks = [remark for report in part.report for remark in report.why]
            count = len(part.passages)
            self.jobs.end(job, "done", "; ".join([f"{count} passage{'s' * (count != 1)}", *remarks]))

    def _remove(self, jobs: Sequence[Job]) -> None:
        index = self._index()
        ids = index.stored.ids if index else ()
        names = [job["document"] for job in jobs]
        there = [name for name in names if any(id_ == name or is_cut_from(id_, {name}) for id_ in ids)]
        if index and there:
            index.remove(*there, may_empty=True, on_progress=self._progress(jobs))
            self._forget()
        for job in jobs:
            if job["document"] in there or job["tries"]:  # a writer that was killed may have removed it
                self.jobs.end(job, "done")
            else:
                self.jobs.end(job, "failed", f"{job['document']} is not in the index")

    def _index(self) -> Index | None:
        is_there = (self.path / MANIFEST).is_file()
        return Index(self.path, config=self.source, settings=self.settings) if is_there else None

    def _progress(self, jobs: Sequence[Job]) -> Callable[[str, int, int], None]:
        last, counts = 0.0, Counter[str]()

        def progress(stage: str, done: int, total: int) -> None:
            nonlocal last
            counts[stage] += done
            if done == 0 or time.monotonic() - last > _PROGRESS_S:
                last = time.monotonic()
                self.jobs.progress(jobs, stage, counts[stage], total)

        return progress

    def _forget(self) -> None:
        """Delete what models replied to prompts with passages that are no longer there."""
        path = self.folder / "llm.sqlite"
        if path.exists():
            with closing(sqlite3.connect(path, 30, isolation_level=None)) as cache:
                cache.execute("PRAGMA secure_delete = ON")
                cache.execute("DELETE FROM replies")
                cache.execute("PRAGMA wal_checkpoint(TRUNCATE)")
