"""Sends metrics, tables and artefacts to Weights & Biases through a process that may hang or fail without harm.

That process (`wandb_process.py`) follows a nameless file of messages and answers in another. Only `finish` waits, and
ends it after `run.tracking_wait` seconds.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from gnnrag.cluster.stopping import STOPPED
from gnnrag.common.files import content_digest, digest, open_log, read_json, refuse_links, write_json
from gnnrag.config import TrackedRun

INIT_S = 30.0  # in which a server has to answer
STOP_S = 15.0  # at most for a run that was told to stop: what told it will not wait for long
QUIET = {"silent": True, "console": "off", "x_disable_stats": True, "disable_git": True, "disable_code": True}
LARGE = 1 << 29  # bytes of a checkpoint that are only sent with upload=all
RESULTS = ("meta.json", "folds.json", "predictions.jsonl", "scores.jsonl", "metrics.json", "log.jsonl", "report.jsonl")
TRACES = "traces.jsonl"
_RUN_ID = r"[0-9a-f]{12}"  # W&B makes a folder of it
_SECRET = re.compile(r"(?<=//)[^/@\s]+@")  # name and password in an address
_QUERY = re.compile(r"(://[^\s?,]*)\?[^\s,]*")  # behind an address, where some servers take a key


@dataclass(frozen=True)
class Artefact:
    """A version of an input or a result of a run."""

    name: str  # of all versions
    kind: str  # `index`, `checkpoint`, `dataset` or `predictions`
    texts: Mapping[str, str] = field(default_factory=dict)  # small files; with `files` what tells versions apart
    files: Mapping[str, Path] = field(default_factory=dict)  # those whose bytes are sent
    metadata: Mapping[str, Any] = field(default_factory=dict)  # shown beside it
    aliases: Sequence[str] = ()  # names of this version


@dataclass(frozen=True)
class WandbRun:
    """Labels and settings that a W&B run is shown with."""

    kind: str  # `train`, `evaluate` or `index`
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # resolved settings, commit and fingerprints
    group: str | None = None  # of runs that belong together, where the settings name none


class Tracker:
    """A W&B session, or nothing where `tracking` is off; the run directory `folder` keeps its id and offline data.

    `on_note` is told, once, that tracking failed and why; the run goes on without.
    """

    def __init__(self, config: TrackedRun, folder: Path, shown: WandbRun, on_note: Callable[[str], None]) -> None:
        self._wait, self._on_note, self._has_noted = config.tracking_wait, on_note, False
        self._process: subprocess.Popen[bytes] | None = None
        self.has_succeeded = False  # whether the session has ended as it should
        if config.tracking != "off":
            try:
                self._start(config, folder, shown)
            except Exception as error:  # noqa: BLE001  # a full disk, no more processes: the run is worth more
                self._give_up(f"{type(error).__name__}: {error}")

    def _start(self, config: TrackedRun, folder: Path, shown: WandbRun) -> None:
        own = folder / "wandb"
        own.mkdir(parents=True, exist_ok=True)
        refuse_links(folder)  # the folder of an index's builds is opened by nobody before
        run = {
            "id": run_state(folder)["id"], "resume": "allow", "project": config.project, "entity": config.entity,
            "group": config.group or shown.group, "tags": list(config.tags), "job_type": shown.kind,
            "name": shown.name, "dir": str(folder), "config": without_secrets(dict(shown.settings)),
        }  # fmt: skip
        settings = {**QUIET, "init_timeout": INIT_S, "finish_timeout": 0.8 * self._wait}
        self._messages, messages = _channel()
        answers, self._answers = _channel()
        self._write(parent=os.getpid(), wait=self._wait, mode=config.tracking, run=run, settings=settings)
        home = {name: str(own) for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR")}
        program = Path(__file__).with_name("wandb_process.py")
        with open_log(own / "mirror.log") as log, messages, answers:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(program)],
                stdin=messages, stdout=answers, stderr=log, env={**home, **os.environ}, start_new_session=True,
            )  # fmt: skip

    def define(self, name: str, step_metric: str) -> None:
        """Draw the metrics of a name (`by_round/*`) over another metric than the step."""
        self._send("define", name=name, step_metric=step_metric)

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """Send values of a step; a smaller step than before is not shown."""
        self._send("log", values=dict(values), step=step)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Send a table."""
        self._send("table", name=name, columns=list(columns), rows=[list(row) for row in rows], step=step)

    def table_of(self, name: str, first: str, rows: Mapping[str, Mapping[str, Any]], step: int) -> None:
        """Send rows by name as a table with the column `first` for the names, if there are any rows."""
        columns = list(dict.fromkeys(key for row in rows.values() for key in row))
        if rows:
            self.table(name, [first, *columns], [[k, *map(row.get, columns)] for k, row in rows.items()], step)

    def image(self, name: str, path: Path, step: int) -> None:
        """Send a picture."""
        self._send("image", name=name, path=str(path), step=step)

    def artefact(self, what: Artefact, is_input: bool = False) -> None:
        """Send an artefact that the run has made, or that it has used."""
        files = {name: str(path) for name, path in what.files.items()}
        plain = {"name": artefact_name(what.name), "type": what.kind, "texts": dict(what.texts), "files": files}
        plain |= {"metadata": dict(what.metadata), "aliases": list(what.aliases)}
        self._send("artifact", what=plain, is_input=is_input)

    def finish(self, summary: Mapping[str, Any] | None = None, code: int = 0) -> None:
        """Send final values and end the session, once, within `tracking_wait` seconds; `code` 75: to be continued."""
        if summary:
            self._send("summary", values=dict(summary))
        self._send("finish", code=code)
        if self._process is None:
            return
        wait = min(self._wait, STOP_S) if code == STOPPED else self._wait
        try:
            ended = self._process.wait(wait)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._give_up(f"it took more than {wait:g} s to end, see run.tracking_wait")
        else:
            self._listen()
            if not self.has_succeeded:
                self._give_up(f"its process ended with exit code {ended}")
        self._process = None

    def _send(self, do: str, **values: Any) -> None:
        self._listen()
        if self._process is None:
            return
        try:
            self._write(do=do, **values)
        except (TypeError, ValueError) as error:  # a value that is no JSON: what else there is to log is still worth it
            self._note(f"{do}: {type(error).__name__}: {error}; the run directory has all of it")
        except OSError as error:  # a full disk
            self._give_up(f"{type(error).__name__}: {error}")

    def _write(self, **message: Any) -> None:
        self._messages.write(json.dumps(message) + "\n")
        self._messages.flush()

    def _listen(self) -> None:
        """Tell what the process has answered; where it gave up, so does this."""
        while self._process is not None and (line := self._answers.readline()):
            answer = json.loads(line)
            self.has_succeeded |= answer.get("done", False)
            if answer.get("fatal"):
                self._give_up(answer["failed"])
            elif "failed" in answer:
                self._note(f"{answer['failed']}; the run directory has all of it")

    def _give_up(self, problem: str) -> None:
        self._process = None
        self._note(f"{problem}; the run goes on without it")

    def _note(self, problem: str) -> None:
        if not self._has_noted:
            self._has_noted = True
            self._on_note(f"Weights & Biases failed ({problem})")


def _channel() -> tuple[IO[str], IO[str]]:
    """Return a file without a name, opened to write and to read: unlike a pipe it never makes its writer wait."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "channel")
        return path.open("x", encoding="ascii"), path.open(encoding="ascii")


def run_state(folder: Path, **more: Any) -> dict[str, Any]:
    """Return a W&B run's `id` and all `more` given so far. Raises OSError, ArtefactError, ValueError: a bad file."""
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


# A version of an artefact is told apart by what is in it. Where bytes are not sent, that is one small file of digests,
# so that the same index or checkpoint is the same version wherever it lies, and whichever run logs it first.
def data_artefact(name: str, fingerprint: Any) -> Artefact:
    """Return the data of a run; its bytes are never sent."""
    return _artefact(f"data-{name}", "dataset", fingerprint)


def index_artefact(root: Path, stages: Mapping[str, str], upload: str) -> Artefact:
    """Return the index in a folder; the keys of its stages (`Index.fingerprint`) decide the version."""
    sent = _files(root) if upload == "all" else {}
    return _artefact(f"index-{root.name}", "index", dict(stages), sent, path=str(root), stages=len(stages))


def checkpoint_artefact(folder: Path, upload: str, name: str | None = None) -> Artefact:
    """Return a checkpoint, one version where trained and where used; `name`: the training's, default by its folder."""
    files = _files(folder)
    size = sum(path.stat().st_size for path in files.values())
    own = folder.resolve()
    name = name or (own.parent.name if own.name in ("best", "merged") else own.name)
    digests = {file: content_digest(path) for file, path in files.items()}
    sent = files if upload == "all" or (upload == "results" and size <= LARGE) else {}
    return _artefact(f"checkpoint-{name}", "checkpoint", digests, sent, path=str(folder), bytes=size)


def run_artefact(folder: Path, settings: Mapping[str, Any], upload: str) -> Artefact:
    """Return the files of an evaluation; traces, which hold every message, only with `upload=all`."""
    names = (*RESULTS, TRACES) if upload == "all" else RESULTS
    files = {name: path for name in names if (path := folder / name).is_file()}
    digests = {name: content_digest(path) for name, path in files.items()}
    made = _artefact(f"predictions-{folder.name}", "predictions", digests, files if upload != "none" else {})
    config = {"config.json": json.dumps(without_secrets(settings), indent=2)} if upload != "none" else {}
    return replace(made, texts={**made.texts, **config})


def _artefact(name: str, kind: str, fingerprint: Any, files: Mapping[str, Path] | None = None, **more: Any) -> Artefact:
    """Return the version of an artefact that a fingerprint tells apart; links in its folder are not sent."""
    version = digest(fingerprint)
    texts = {"fingerprint.json": json.dumps(fingerprint, indent=2, sort_keys=True)}
    own = {file: path for file, path in (files or {}).items() if not path.is_symlink()}
    return Artefact(name, kind, texts, own, {**more, "fingerprint": version}, (version[:16],))


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by name, without those of W&B and those that a program hides or leaves half made."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: path
        for name, path in found.items()
        if not any(part.startswith(".") or part == "wandb" for part in Path(name).parts) and name != "wandb.json"
    }


def artefact_name(name: str) -> str:
    """Return a name that W&B allows: letters, digits, dots, dashes and underscores, at most 128."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:128]
