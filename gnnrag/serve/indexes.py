"""The indexes of a server: answering questions within their limits, adding and removing documents."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from gnnrag.api import Index, SearchHit
from gnnrag.config import Choice, EvaluateConfig
from gnnrag.datasets.base import Dataset, chunking
from gnnrag.datasets.documents.child import DocumentReader
from gnnrag.datasets.folder import Folder, load_documents
from gnnrag.datasets.jsonl import Skips
from gnnrag.errors import ConfigError, DataError, GnnragError, described
from gnnrag.index.tables import PASSAGES, latest_version
from gnnrag.index.update import documents_of, is_empty, loading_of
from gnnrag.io import well_formed
from gnnrag.parts import names, part_from_settings
from gnnrag.run.answers import Answer
from gnnrag.run.evaluate import check_fit, needed_stages
from gnnrag.serve.jobs import Job, Jobs
from gnnrag.serve.settings import Caller, Right, Service
from gnnrag.types import OnProgress

logger = logging.getLogger("gnnrag.serve")
LONGEST = 16_000  # characters of a question or a query
_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^\s/]+/)+")  # of an absolute path, not of an address
_CLOSED = "the index was emptied or closed meanwhile"


class Problem(HTTPException):
    """A request that is answered by an HTTP status and one line."""

    def __init__(self, status: int, message: str, retry_s: int | None = None) -> None:
        super().__init__(status, message, {"retry-after": str(retry_s)} if retry_s else None)

    def __str__(self) -> str:
        return self.detail


def without_folders(message: str, service: Service) -> str:
    """Return a message that names indexes by their names, and files without the folders that they lie in."""
    for name, path in service.indexes.items():
        message = message.replace(str(path), name)
    return _FOLDERS.sub("", message)


def as_problem(error: Exception, service: Service) -> Problem:
    """Return an error as an HTTP problem that names no folder of the server."""
    if isinstance(error, HTTPException):
        return Problem(error.status_code, error.detail) if type(error) is not Problem else error
    if isinstance(error, ClientDisconnect):
        return Problem(499, "the client has left")
    if isinstance(error, TimeoutError):
        return Problem(504, "nothing was found within the time allowed")
    if isinstance(error, CancelledError):
        return Problem(503, _CLOSED)
    if isinstance(error, GnnragError):
        return Problem(400 if isinstance(error, ConfigError | DataError) else 503, without_folders(str(error), service))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Problem(507, "there is no room on the disk of the server")
    logger.error("request failed", exc_info=error)
    return Problem(500, "the server failed; its log says why")


@dataclass(frozen=True)
class Ask:
    """A client's question; None stands for the server's settings. `history`: earlier questions and answers."""

    question: str
    history: Sequence[tuple[str, str]] = ()
    method: str | None = None
    retriever: str | None = None
    limits: Mapping[str, float | None] = field(default_factory=dict)
    filter: str | None = None
    style: str | None = None  # of the answer: short, sentence or long


class ServedIndex:
    """An index of a server, with its jobs. It is opened once it exists, and again whenever it has changed."""

    def __init__(self, service: Service, name: str) -> None:
        self.service, self.name, self.path = service, name, service.indexes[name]
        self.jobs = Jobs(self._write, self._fail)
        self._index: Index | None = None
        self._reading: DocumentReader | None = None
        self._seen: int | None = None  # the version of the passages, when it was opened
        self._opening = threading.Lock()
        self._parts: tuple[frozenset[str], dict[str, list[str]]] = (frozenset(), {})

    async def index(self) -> Index:
        """Return the index as it is now. Problem: there is none, or it is being built for the first time."""
        if not self.jobs.is_at_work and await asyncio.to_thread(self._version) != self._seen:
            try:
                await asyncio.to_thread(self._open)
            except GnnragError as error:
                raise Problem(503, without_folders(str(error), self.service)) from error
        if self._index is not None:
            return self._index
        if self.jobs.is_at_work:
            raise Problem(503, f"index {self.name} is being built; ask again in a while", 5)
        raise Problem(404, f"index {self.name} has no documents yet: add some")

    def _version(self) -> int | None:
        return latest_version(f"{self.path}/{PASSAGES}")

    def _open(self) -> Index | None:
        with self._opening:
            if (seen := self._version()) == self._seen:
                return self._index
            if is_empty(self.path):  # its last document was removed
                self.close()
            elif self._index is None:
                self._index = Index(self.path, config=self.service.source, settings=self.service.settings)
            elif not self._index.is_current:
                self._index.refresh()
            self._seen = seen
            return self._index

    def _write(self, jobs: Sequence[Job]) -> None:
        """Add and remove documents in one change; in the thread of the jobs."""
        counts: Counter[str] = Counter()

        def progress(stage: str, done: int, total: int) -> None:
            if any(job.is_cancelled for job in jobs):
                raise GnnragError("a job was cancelled")
            counts[stage] += done
            for job in jobs:
                job.stage, job.done, job.total = stage, counts[stage], total

        index = self._open()
        try:
            self._change(jobs, index, progress)
        finally:
            self._open()

    def _change(self, jobs: Sequence[Job], index: Index | None, progress: OnProgress) -> None:
        wanted = {job.document for job in jobs}
        ids = index.stored.ids if index else ()
        there = {name for id_ in ids for name in (id_, *documents_of(id_)) if name in wanted}
        read = self._read([job for job in jobs if job.kind == "add"], index, progress)
        last: dict[str, Folder | None] = {}  # each document's new content by the last of its jobs; None: removed
        for job in jobs:
            if job in read:
                last[job.document] = read[job]
            elif job.kind == "remove" and (last.get(job.document) or (job.document in there - last.keys())):
                last[job.document] = None
            elif job.kind == "remove":
                job.end("failed", f"{job.document} is not in the index")
        added = [folder for folder in last.values() if folder]
        gone = [name for name, folder in last.items() if not folder and name in there]
        data = Dataset(
            self.name,
            tuple(passage for folder in added for passage in folder.passages),
            documents=tuple(name for folder in added for name in folder.documents),
            report=tuple(report for folder in added for report in folder.report),
        )
        if not (loading_of(self.path)["titles"] if index else self.service.config.data.titles):
            data = data.without_titles()
        if index and (added or gone):
            index.add(data, remove=gone, may_empty=True, on_progress=progress)
        elif added:  # there is none, or one that was emptied
            given: Any = {"config": self.service.source, "settings": self.service.settings, "on_progress": progress}
            Index.build(data, self.path, fresh=True, **given).close()
        for job in jobs:
            if job in read:
                count, remarks = len(read[job].passages), [why for report in read[job].report for why in report.why]
                job.end("done", "; ".join([f"{count} passage{'s' * (count != 1)}", *remarks]))
            elif job.ended is None:
                job.end("done")

    def _read(self, jobs: Sequence[Job], index: Index | None, progress: OnProgress) -> dict[Job, Folder]:
        """Read the files of jobs, ending those whose file cannot be read."""
        cut, read = loading_of(self.path)["chunking"] if index else chunking(self.service.config.data), {}
        with DocumentReader(cut) as reader:
            self._reading = reader
            for job in jobs:
                try:
                    read[job] = load_documents(self.jobs.upload(job), cut, Skips(), progress, reader)
                except DataError as error:
                    progress("files", 1, len(jobs))  # raises where the file was not read because of a cancelled job
                    self._fail(job, error)
        return read

    def cancel(self, job: Job) -> None:
        is_running = job.state == "running"
        self.jobs.cancel(job)
        if is_running and self._reading is not None:
            self._reading.stop()

    def _fail(self, job: Job, error: Exception) -> None:
        message = described(error).replace(str(self.jobs.upload(job)), job.document)
        job.end("failed", without_folders(message, self.service))

    async def parts(self) -> dict[str, list[str]]:
        """Return the methods and retrievers that the index can be asked by; the settings' own come first."""
        stored = (await self.index()).stored
        there = frozenset(await asyncio.to_thread(lambda: stored.fingerprint))  # artefacts that are made meanwhile, too
        if self._parts[0] != there:
            self._parts = (there, await asyncio.to_thread(_fitting, self.service.config, set(there)))
        return self._parts[1]

    async def check(self, ask: Ask) -> Index:
        """Return the index if this can be asked of it. Problem: what is wrong, and what is allowed."""
        if not ask.question.strip() or len(ask.question) > LONGEST:
            raise Problem(400, f"question: give 1 to {LONGEST} characters that are not all blank")
        index, parts = await self.index(), await self.parts()
        for kind, name in (("method", ask.method), ("retriever", ask.retriever)):
            if name is not None and name not in parts[f"{kind}s"]:
                known = ", ".join(parts[f"{kind}s"])
                raise Problem(400, f"{kind} {name[:60]!r} cannot be asked of index {self.name}; allowed: {known}")
        if ask.filter is not None:
            await asyncio.to_thread(index.stored.matching, ask.filter)  # ConfigError: malformed
        return index

    def close(self) -> None:
        index, self._index = self._index, None
        if index is not None:
            index.close()


def _fitting(config: EvaluateConfig, stages: set[str]) -> dict[str, list[str]]:
    """Return the methods and retrievers for which an index has the stages."""

    def fits(kind: str, name: str, base: EvaluateConfig) -> bool:
        try:
            if name != getattr(base, kind).name:
                base = replace(base, **{kind: Choice(name, part_from_settings(kind, name, {}))})  # type: ignore[arg-type]
            check_fit(base)
            return needed_stages(base) <= stages
        except (GnnragError, ImportError):
            return False

    # A method asks the settings' retriever here; a retriever is asked by the plainest method.
    plain = replace(config, method=Choice("single", part_from_settings("method", "single", {})))
    fitting = {}
    for kind, base in (("method", config), ("retriever", plain)):
        others = [name for name in names(kind) if name != "closed_book"]  # which would not read the documents
        known = dict.fromkeys([getattr(config, kind).name, *others])
        fitting[f"{kind}s"] = [name for name in known if fits(kind, name, base)]
    return fitting


class Server:
    """The indexes of a process, and the turns of those who ask them."""

    def __init__(self, service: Service) -> None:
        self.service, self.limits = service, service.limits
        self.served = {name: ServedIndex(service, name) for name in service.indexes}
        self._turns = asyncio.Semaphore(self.limits.asking)
        self._searches = asyncio.Semaphore(self.limits.asking)  # not behind questions, which take ten times as long

    def find(self, name: str, caller: Caller, right: Right = "ask") -> ServedIndex:
        """Return an index that a caller may ask or write. Problem: it may not, or there is none."""
        name = well_formed(name)
        if name not in self.served or not (caller.may("ask", name) or caller.may("write", name)):
            raise Problem(404, f"there is no index {name[:100]!r} for you; GET /api/indexes lists those that there are")
        if not caller.may(right, name):
            raise Problem(403, f"your token has not the right to {right} index {name}")
        return self.served[name]

    async def search(
        self, served: ServedIndex, query: str, k: int, retriever: str | None = None, condition: str | None = None
    ) -> list[SearchHit]:
        """Return the passages of a query. Problem: as of a question."""
        deadline = asyncio.get_running_loop().time() + self.limits.seconds
        try:
            async with self._turn(self._searches, deadline), asyncio.timeout_at(deadline):
                index = await served.check(Ask(query, retriever=retriever, filter=condition))
                return await index.asearch(query, k, retriever=retriever, filter=condition)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the client has left
                raise
            raise Problem(503, _CLOSED) from error

    @asynccontextmanager
    async def _turn(self, turns: asyncio.Semaphore, deadline: float) -> AsyncGenerator[None]:
        """Wait for a turn. Problem: the time is up, and the server is busy with others."""
        try:
            async with asyncio.timeout_at(deadline):
                await turns.acquire()
        except TimeoutError:
            raise Problem(503, "too many questions wait (serve.asking); come again in a while", 30) from None
        try:
            yield
        finally:
            turns.release()

    async def answer(self, served: ServedIndex, ask: Ask) -> Answer:
        """Return the answer to a question. Problem: why there is none."""
        async with aclosing(self.events(served, ask)) as events:
            async for event in events:
                last = event
        if isinstance(last, Problem):
            raise last
        return last  # type: ignore[return-value]

    async def events(self, served: ServedIndex, ask: Ask) -> AsyncGenerator[Mapping[str, Any] | Answer | Problem]:
        """Yield what happens while a question is answered, then its answer or the problem that ended it.

        Closing the generator stops the question.
        """
        seconds = min(self.limits.seconds, ask.limits.get("seconds") or self.limits.seconds)
        deadline = asyncio.get_running_loop().time() + seconds
        budget, settings = self.service.config.budget, dict[str, Any]()
        for name, own in (("calls", budget.max_calls), ("tokens", budget.max_tokens), ("cost", self.limits.cost)):
            if limits := [limit for limit in (own, ask.limits.get(name)) if limit is not None]:
                settings[f"budget.max_{name}"] = min(limits)
        if ask.style:
            settings["answer.style"] = ask.style
        try:
            async with self._turn(self._turns, deadline):
                async with asyncio.timeout_at(deadline):
                    index = await served.check(ask)
                parts: dict[str, Any] = {"method": ask.method, "retriever": ask.retriever, "settings": settings}
                stream = index.stream(ask.question, history=ask.history, filter=ask.filter, **parts)
                async with aclosing(stream):  # type: ignore[type-var]
                    while True:
                        async with asyncio.timeout_at(deadline):
                            event = await anext(stream, None)
                        if event is None:
                            return
                        if isinstance(event, Answer) and event.error is not None:
                            event = replace(event, error=without_folders(event.error, self.service))
                        yield event
        except TimeoutError:
            yield Problem(504, f"no answer within {seconds:g} s (serve.seconds)")
        except Exception as error:  # noqa: BLE001 - a stream has begun: it ends with the error
            yield as_problem(error, self.service)

    def close(self) -> None:
        """Close the indexes, once the documents under way are in them."""
        for served in self.served.values():
            served.jobs.close()
            served.close()
