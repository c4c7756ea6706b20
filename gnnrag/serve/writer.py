"""The one process that changes an index: it takes the jobs of its state in order, and ends when there are none.

A worker starts it when a job waits and no other writes. Killed at any moment it leaves the index as it was or as it
was to become (`gnnrag.index.store`), and its jobs to the next: adding again what is there changes nothing.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnrag.common.files import exclusive_lock
from gnnrag.errors import GnnragError, described
from gnnrag.serve.settings import Service, read_service
from gnnrag.serve.state import TRIES, State

if TYPE_CHECKING:
    from gnnrag.datasets.base import Dataset

VARIABLE = "GNNRAG_SERVE"  # the command line, for the processes of a server
_IDLE_S = 20.0  # without a job, before it ends: what it has loaded serves those that follow soon
_TELL_S = 0.2
_START = "from gnnrag.serve.writer import main; main()"
Job = dict[str, Any]


def start(service: Service, name: str) -> subprocess.Popen[bytes]:
    """Start the writer of an index as a process of its own."""
    told = json.dumps({"arguments": service.arguments, "index": name})
    environment = {**os.environ, VARIABLE: told}
    # Its output goes to stderr: an agent's tools speak MCP on stdout, and it may outlive them.
    return subprocess.Popen([sys.executable, "-c", _START], env=environment, stdin=subprocess.DEVNULL, stdout=2)


def main() -> None:
    """Be the writer that the environment tells of; returns at once where another one is at work."""
    told = json.loads(os.environ[VARIABLE])
    service, name = read_service(told["arguments"]), told["index"]
    os.nice(5)  # questions first
    for library in ("pypdf", "trafilatura"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # the job says what is wrong with a file
    with suppress(GnnragError, KeyboardInterrupt), exclusive_lock(_lock(service, name), f"the jobs of {name}"):
        work(service, name)


def is_at_work(service: Service, name: str) -> bool:
    """Tell whether a process writes this index."""
    try:
        with _lock(service, name).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _lock(service: Service, name: str) -> Path:
    return service.state_folder(name) / "writer.lock"


def work(service: Service, name: str, idle_s: float = _IDLE_S) -> None:
    """Do the jobs of an index until none has come for a while, and nothing of what was deleted is left."""
    state, root = State(service.state_folder(name)), service.indexes[name]
    state.sweep()
    last, forgotten = time.monotonic(), state.epoch()
    while time.monotonic() - last < idle_s:
        if jobs := state.take():
            _do(service, name, state, jobs)
            last = time.monotonic()
            continue
        if _is_held(root):
            last = time.monotonic()
        elif state.epoch() != forgotten:  # what was under way meanwhile had what was deleted
            _forget(service, name, state)
            forgotten = state.epoch()
        time.sleep(0.2)
    state.close()


def _is_held(root: Path) -> bool:
    """Delete the states that nobody reads any more; tell whether one is still read."""
    from gnnrag.index.store import Store

    if not any(root.glob(".generation-*.json")):
        return False
    with suppress(GnnragError), exclusive_lock(root / ".lock", f"index {root}"):
        Store(root).clean()
    return any(root.glob(".generation-*.json"))


def _do(service: Service, name: str, state: State, jobs: Sequence[Job]) -> None:
    """Do jobs together; where that fails, one by one, so that each is told its own fault."""
    told = 0.0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told > _TELL_S or done == 0:
            told = time.monotonic()
            state.tell(jobs, stage, done, total)

    for given_up in [job for job in jobs if job["tries"] >= TRIES]:
        state.end(given_up, "failed", f"the writer died {TRIES} times while it worked on this")
    jobs = [job for job in jobs if job["tries"] < TRIES]
    change = _add if jobs and jobs[0]["kind"] == "add" else _remove
    try:
        if jobs:
            change(service, name, state, jobs, progress)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a document must not stop those behind it
        if len(jobs) == 1:
            state.end(jobs[0], "failed", described(error))
        else:
            for job in jobs:
                if not (state.job(job["key"]) or job)[
                    "ended"
                ]:  # else its own fault was told already, its upload is gone
                    _do(service, name, state, [job])


def _add(service: Service, name: str, state: State, jobs: Sequence[Job], progress: Callable[..., None]) -> None:
    from gnnrag.index.build import is_cut_from, stored_passages
    from gnnrag.index.passages import positions_of
    from gnnrag.index.store import Store

    root = service.indexes[name]
    loaded: list[tuple[Job, Dataset]] = []
    for job in jobs:
        try:
            loaded.append((job, _load(service, name, state.inbox(job["key"]), progress)))
        except GnnragError as error:
            state.end(job, "failed", described(error).replace(f"{state.inbox(job['key'])}", job["document"]))
    if not loaded:
        return
    before = positions_of(stored_passages(Store(root)) if Store(root).key("passages") else [])
    names = frozenset(document for _, data in loaded for document in data.documents)
    _write(service, name, [data for _, data in loaded], progress)
    if any(is_cut_from(id_, names) for id_ in before):
        _forget(service, name, state)
    for job, data in loaded:
        told = [remark for report in data.report for remark in (*report.why, *report.notes)]
        count = len(data.passages)
        state.end(job, "done", "; ".join([f"{count} passage{'s' * (count != 1)}", *told]))


def _load(service: Service, name: str, folder: Path, progress: Callable[..., None]) -> Dataset:
    """Read an upload as one of own documents, whatever it is called: no upload is taken for a benchmark."""
    from gnnrag.datasets.base import Dataset
    from gnnrag.datasets.folder import load_documents
    from gnnrag.datasets.jsonl import Skips
    from gnnrag.index.documents import cut_as
    from gnnrag.index.store import Store
    from gnnrag.run.pipeline import chunking

    store, skips = Store(service.indexes[name]), Skips()
    cut = cut_as(store) if store.key("passages") else chunking(service.settings_for(name).data)
    found = load_documents(folder, cut, skips, progress)
    return Dataset(folder.name, tuple(found.passages), documents=tuple(found.documents), report=found.report)


def _write(service: Service, name: str, loaded: Sequence[Dataset], progress: Callable[..., None]) -> None:
    """Add what was read to the index, and make one where there is none."""
    from dataclasses import asdict

    from gnnrag.api import ALWAYS
    from gnnrag.datasets.base import Dataset
    from gnnrag.datasets.documents.report import write_report
    from gnnrag.index.build import build_index, stored_passages
    from gnnrag.index.documents import add_documents
    from gnnrag.index.store import Store
    from gnnrag.run.pipeline import chunking, index_settings, needed_stages

    root, config = service.indexes[name], service.settings_for(name)
    settings, stages = index_settings(config), {*needed_stages(config), *ALWAYS}
    passages, reports = [[one for data in loaded for one in getattr(data, key)] for key in ("passages", "report")]
    documents = tuple(one for data in loaded for one in data.documents)
    store = Store(root)
    if store.key("passages"):
        data = Dataset(name, tuple(passages), documents=documents, report=tuple(reports))
        add_documents(root, data, progress, settings)
        if stages <= Store(root).manifest["stages"].keys() or "own" not in store.manifest["source"]:
            return
        passages = list(stored_passages(Store(root)))  # a kill cut off its first build
    source = {"own": True, "edited": True, "chunking": asdict(chunking(config.data))}
    build_index(root, passages, settings, stages, source, progress)
    write_report(root, reports, ())


def _remove(service: Service, name: str, state: State, jobs: Sequence[Job], progress: Callable[..., None]) -> None:
    from gnnrag.index.build import is_cut_from, stored_passages
    from gnnrag.index.documents import remove_documents
    from gnnrag.index.passages import positions_of
    from gnnrag.index.store import Store
    from gnnrag.run.pipeline import index_settings

    root = service.indexes[name]
    ids = positions_of(stored_passages(Store(root)) if Store(root).key("passages") else [])
    gone = [
        job for job in jobs if not any(id_ == job["document"] or is_cut_from(id_, {job["document"]}) for id_ in ids)
    ]
    there = [job for job in jobs if job not in gone]
    if there:
        names = [job["document"] for job in there]
        remove_documents(root, names, progress, index_settings(service.settings_for(name)), may_empty=True)
    if there or any(job["tries"] for job in gone):
        _forget(service, name, state)
    for job in jobs:
        if job in gone and not job["tries"]:  # else a writer that died had removed it already
            state.end(job, "failed", f"{job['document']} is not in the index")
        else:
            state.end(job, "done")


def _forget(service: Service, name: str, state: State) -> None:
    """Delete what tells of passages besides the index: kept answers, and replies of models to prompts with them."""
    from gnnrag.llm.cache import open_cache

    state.forget()
    path = service.state_folder(name) / "llm.sqlite"
    if path.exists():
        cache = open_cache(path)
        cache.execute("PRAGMA secure_delete = ON")
        cache.execute("DELETE FROM replies")
        cache.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cache.close()
