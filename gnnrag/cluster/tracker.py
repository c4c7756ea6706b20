"""Weights & Biases beside the run directory: a mirror that may fail at any time without stopping a run."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnrag.cluster.stopping import STOPPED
from gnnrag.common.files import open_log, read_json, refuse_links, write_json
from gnnrag.config import TrackedRun

WAITING = 20_000  # orders that may wait for a slow mirror; more are dropped
INIT_S = 30.0  # in which a server has to answer
STOP_S = 15.0  # at most for a run that was told to stop: what told it will not wait for long
QUIET = {"silent": True, "console": "off", "x_disable_stats": True, "disable_git": True, "disable_code": True}
_RUN_ID = r"[0-9a-f]{12}"  # W&B makes a folder of it
_SECRET = re.compile(r"(?<=//)[^/@\s]+@")  # name and password in an address
_QUERY = re.compile(r"(://[^\s?,]*)\?[^\s,]*")  # behind an address, where some servers take a key


@dataclass(frozen=True)
class Artefact:
    """A version of an input or a result of a run.

    Attributes:
        name: of all versions.
        kind: `index`, `checkpoint`, `dataset` or `predictions`.
        texts: contents of small files by name; with `files` what tells versions apart.
        files: further files, whose bytes are sent.
        metadata: shown beside it.
        aliases: names of this version.
    """

    name: str
    kind: str
    texts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    aliases: Sequence[str] = ()


@dataclass(frozen=True)
class Job:
    """What a W&B run is shown as.

    Attributes:
        kind: `train`, `evaluate` or `index`.
        name: of the run.
        settings: resolved settings, commit and fingerprints.
        group: of runs that belong together, where the settings name none.
    """

    kind: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None


class Tracker:
    """Sends metrics, tables and artefacts to Weights & Biases, or nowhere.

    All of it happens in a process of its own (`gnnrag.cluster.mirror`) that is fed by a thread: no call waits, and
    what the client does can neither stop nor hold up the run. `finish` waits, and ends a mirror that takes too long.

    Args:
        config: `tracking` says whether; offline writes into the run's folder `wandb`.
        folder: the run directory.
        job: what the run is shown as.
        on_note: told, once, that tracking failed and why; the run goes on without.

    A run that is resumed goes on under the id that the run directory keeps.
    """

    def __init__(self, config: TrackedRun, folder: Path, job: Job, on_note: Callable[[str], None]) -> None:
        self._config, self._on_note = config, on_note
        self._orders: queue.Queue[dict[str, Any] | None] = queue.Queue(WAITING)
        self._replies: list[dict[str, Any]] = []
        self._child: subprocess.Popen[str] | None = None
        self._is_silent = False  # after the first note
        self._threads: list[threading.Thread] = []
        if config.tracking != "off":
            try:
                self._start(folder, job)
            except Exception as error:  # noqa: BLE001  # a full disk, no more processes: the run is worth more
                self._fail(f"{type(error).__name__}: {error}")

    def _start(self, folder: Path, job: Job) -> None:
        config, own = self._config, folder / "wandb"
        own.mkdir(parents=True, exist_ok=True)
        refuse_links(folder)  # the folder of an index's builds is opened by nobody before
        run = {
            "id": run_state(folder)["id"], "resume": "allow", "project": config.project, "entity": config.entity,
            "group": config.group or job.group, "tags": list(config.tags), "job_type": job.kind, "name": job.name,
            "dir": str(folder), "config": without_secrets(dict(job.settings)),
        }  # fmt: skip
        settings = {**QUIET, "init_timeout": INIT_S, "finish_timeout": 0.8 * config.tracking_wait}
        self._put(wait=config.tracking_wait, mode=config.tracking, run=run, settings=settings)
        home = {name: str(own) for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR")}
        with open_log(own / "mirror.log") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("mirror.py"))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, encoding="utf-8",
                env={**home, **os.environ}, start_new_session=True,
            )  # fmt: skip
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    @property
    def has_succeeded(self) -> bool:
        """Whether the session has ended as it should."""
        return any(reply.get("done") for reply in self._replies)

    def define(self, name: str, step_metric: str) -> None:
        """Draw the metrics of a name (`by_round/*`) over another metric than the step."""
        self._put(do="define", name=name, step_metric=step_metric)

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """Send values of a step; a smaller step than before is not shown."""
        self._put(do="log", values=dict(values), step=step)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Send a table."""
        self._put(do="table", name=name, columns=list(columns), rows=[list(row) for row in rows], step=step)

    def image(self, name: str, path: Path, step: int) -> None:
        """Send a picture."""
        self._put(do="image", name=name, path=str(path), step=step)

    def artefact(self, what: Artefact, is_input: bool = False) -> None:
        """Send an artefact that the run has made, or that it has used."""
        files = {name: str(path) for name, path in what.files.items()}
        plain = {"name": artefact_name(what.name), "type": what.kind, "texts": dict(what.texts), "files": files}
        plain |= {"metadata": dict(what.metadata), "aliases": list(what.aliases)}
        self._put(do="artifact", what=plain, is_input=is_input)

    def finish(self, summary: Mapping[str, Any] | None = None, code: int = 0) -> None:
        """Send the summary and end the session, within `tracking_wait` seconds; once more does nothing.

        Args:
            summary: final values.
            code: exit code of the run; 75 says that it was stopped and will be continued.
        """
        if self._child is None:
            return
        if summary:
            self._put(do="summary", values=dict(summary))
        self._put(do="finish", code=code)
        if self._child is None:
            return
        wait = min(self._config.tracking_wait, STOP_S) if code == STOPPED else self._config.tracking_wait
        child, deadline = self._child, time.monotonic() + wait
        self._put_end(deadline)
        try:
            child.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            self._fail(f"it took more than {wait:g} s to end, see run.tracking_wait")
        for thread in self._threads:
            thread.join(5.0)
        if not any(reply.get("done") for reply in self._replies) and not self._is_silent:
            self._fail(self._first_failure() or f"its process ended with exit code {child.returncode}")
        self._listen()
        self._child = None

    def _put(self, **order: Any) -> None:
        self._listen()
        if self._child is None and "run" not in order:
            return
        try:
            self._orders.put_nowait(order)
        except queue.Full:
            self._tell(f"{WAITING} values wait to be sent; further ones are left out")

    def _put_end(self, deadline: float) -> None:
        with suppress(queue.Full):  # the mirror hangs, and is ended
            self._orders.put(None, timeout=max(deadline - time.monotonic(), 0.1))

    def _write(self) -> None:
        """Hand orders to the mirror; a thread of its own, because a mirror that hangs does not read."""
        assert self._child is not None and self._child.stdin is not None
        out = self._child.stdin
        try:
            while (order := self._orders.get()) is not None:
                out.write(json.dumps(order) + "\n")
                out.flush()
            out.close()
        except (OSError, ValueError):
            pass  # the mirror is gone: `finish` says so

    def _read(self) -> None:
        assert self._child is not None and self._child.stdout is not None
        for line in self._child.stdout:
            self._replies.append(json.loads(line))

    def _listen(self) -> None:
        """Tell what the mirror has said; where it gave up, so does this."""
        if failure := self._first_failure():
            if any(reply.get("fatal") for reply in self._replies):
                self._fail(failure)
            else:
                self._tell(f"{failure}; the run directory has all of it")

    def _first_failure(self) -> str | None:
        return next((str(reply["failed"]) for reply in self._replies if "failed" in reply), None)

    def _fail(self, problem: str) -> None:
        self._child = None
        self._tell(f"{problem}; the run goes on without it")

    def _tell(self, problem: str) -> None:
        if not self._is_silent:
            self._is_silent = True
            self._on_note(f"Weights & Biases failed ({problem})")


def run_state(folder: Path, **more: Any) -> dict[str, Any]:
    """Return what the run directory keeps of its W&B run: `id`, and what was added by `more`, now or earlier.

    Raises:
        OSError: it cannot be written.
        ValueError: the file is damaged, or is none that is written here.
        ArtefactError: it is no plain file.
    """
    path = folder / "wandb.json"
    state = read_json(path) if path.exists() else {"id": uuid.uuid4().hex[:12]}
    is_ours = isinstance(state, dict) and re.fullmatch(_RUN_ID, str(state.get("id")))
    if not is_ours or type(state.get("step", 0)) is not int:
        raise ValueError(f"{path} names no run; delete it")
    if more or not path.exists():
        state |= more
        write_json(path, state)
    return state


def without_secrets(data: Any) -> Any:
    """Return settings without the name, password and query (`?key=...`) that an address may hold."""
    if isinstance(data, Mapping):
        return {str(key): without_secrets(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [without_secrets(value) for value in data]
    return _QUERY.sub(r"\1", _SECRET.sub("***@", data)) if isinstance(data, str) else data


def artefact_name(name: str) -> str:
    """Return a name that W&B allows: letters, digits, dots, dashes and underscores, at most 128."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:128]
