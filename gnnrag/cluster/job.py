"""A job: a command line of a script, what it needs and makes, the files of its folder, and how far it has come."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnrag.cluster.stopping import STOPPED
from gnnrag.common.files import (
    child,
    digest,
    open_regular,
    read_journal,
    read_json,
    read_object,
    refuse_links,
    write_atomic,
    write_json,
)
from gnnrag.common.records import folds_of, interpreting, read_config, text
from gnnrag.common.untrusted import parse_json
from gnnrag.config import to_plain
from gnnrag.errors import ArtefactError, GnnragError
from gnnrag.index.plan import settings_of
from gnnrag.index.store import Store
from gnnrag.metrics.replies import described
from gnnrag.run.rundir import differences, predicted_seconds
from gnnrag.run.sharding import Shard, parts_of

KINDS = ("index", "evaluate", "merge", "train", "report", "server")
MOST_TASKS = 1_000_000
_LINE, _TAIL = 1000, 8192  # bytes that are read of how a task ended, and of the end of its log


@dataclass(frozen=True)
class Target:
    """Target of a job, from which is read whether it is done."""

    path: str  # of an index: its folder; of a training: its run; of evaluations: the folder of all runs
    stages: tuple[str, ...] = ()  # of an index
    # The settings that it is made with; of an evaluation those that decide its predictions.
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[str, ...] = ("", "")  # of an evaluation: where its passages and its questions are, as configured
    index: str = ""  # of an evaluation: the folder of its index; a run on another state of it is another run
    name: str = ""  # of its run, where the settings give one


@dataclass(frozen=True)
class Job:
    """A node of the graph."""

    name: str  # of its own, and fit for a folder
    kind: str  # one of `KINDS`: which batch script runs it, and which section of the site file says with what
    label: str  # what a person calls it
    argv: tuple[str, ...]  # script and arguments, run in the repository's root; `{shard}` stands for `3/8`
    arguments: tuple[str, ...]  # those of the batch script of its kind
    folder: str  # its config, its logs, and how each task ended
    target: Target
    needs: tuple[str, ...] = ()  # names of the jobs that have to end before
    tasks: int = 0  # how many shards it is done in; 0 where it is not sharded
    ends_anyway: bool = False  # it runs although a job that it needs has failed
    alone: str = ""  # jobs with the same word here never run at the same time
    missing: str = ""  # why it cannot run on this machine; empty where it can
    config: Mapping[str, Any] = field(default_factory=dict)  # written into its folder when it is submitted

    @property
    def numbers(self) -> range:
        """Numbers of its tasks, from 1; a single 0 where it is not sharded."""
        return range(1, self.tasks + 1) if self.tasks else range(1)

    def command(self, task: int) -> list[str]:
        """Return script and arguments of a task."""
        return [part.replace("{shard}", f"{task}/{self.tasks}") for part in self.argv]

    def write(self) -> None:
        """Write `config.yaml` and `job.json` into its folder. Raises ArtefactError where that is, or holds, a link."""
        folder = Path(self.folder)
        refuse_links(child(folder.parent, folder.name))
        if self.config:
            settings = yaml.safe_dump(to_plain(self.config), sort_keys=False, allow_unicode=True)
            write_atomic(folder / "config.yaml", settings)
        write_json(folder / "job.json", asdict(self))

    def file(self, what: str, task: int) -> Path:
        """Return a file of a task: `started`, `ended` (with its exit code) or `stop` (which tells it to stop)."""
        return Path(self.folder) / f"{what}-{task}"

    def log_file(self, task: int) -> Path:
        """Return the file that takes what a task says."""
        return Path(self.folder) / (f"log-{task}.txt" if self.tasks else "log.txt")

    def ended(self, task: int) -> tuple[int | None, str]:
        """Return exit code and remark of the last time that a task ran; None where it never ended."""
        try:
            with open_regular(self.file("ended", task)) as handle:
                code, _, remark = handle.read(_LINE).decode("utf-8").strip().partition(" ")
            return int(code), remark
        except (OSError, ValueError, ArtefactError):
            return None, ""

    def was_cut_off(self, task: int) -> bool:
        """Tell whether a task has started since it last ended: it was killed, or runs."""
        started, end = self.file("started", task), self.file("ended", task)
        return started.exists() and (not end.exists() or end.stat().st_mtime < started.stat().st_mtime)

    def log_tail(self, task: int, lines: int = 8) -> list[str]:
        """Return the last lines of a task's log."""
        try:
            with open_regular(self.log_file(task)) as handle:
                handle.seek(max(0, handle.seek(0, 2) - _TAIL))
                log = handle.read().decode("utf-8", "replace")
        except (OSError, ArtefactError):
            return []
        # A progress bar writes over itself: what it showed last is left.
        return [line.rpartition("\r")[2].rstrip() for line in log.strip().splitlines()][-lines:]


def job_name(words: str) -> str:
    """Return a name of a job: a folder of a stranger's data may be called anything, and `sbatch` splits at commas."""
    return re.sub(r"[^\w.+@=-]+", "-", words)


def read_job(folder: str | Path) -> Job:
    """Return the job that was written into a folder; nothing in it is run. Raises ArtefactError if it is damaged."""
    path = Path(folder) / "job.json"
    with interpreting(path, "it is no job that submit.py wrote; submit it anew"):
        try:
            raw = read_json(path)
        except FileNotFoundError as error:
            raise ValueError("there is none") from error
        if raw["kind"] not in KINDS or type(raw["tasks"]) is not int or not 0 <= raw["tasks"] <= MOST_TASKS:
            raise ValueError(f"{raw['kind']!r:.40} of {raw['tasks']!r:.40} tasks")
        target = _checked(raw["target"], ("path", "index", "name"), ("stages", "data"), "settings")
        texts, lists = ("name", "kind", "label", "folder", "alone", "missing"), ("argv", "arguments", "needs")
        return Job(**{**_checked(raw, texts, lists, "config"), "target": Target(**target)})


def _checked(raw: Mapping[str, Any], texts: tuple[str, ...], lists: tuple[str, ...], settings: str) -> dict[str, Any]:
    """Return a record whose fields are what they are written as. Raises ValueError, KeyError or the like otherwise."""
    several = {name: tuple(map(text, raw[name])) for name in lists}
    return {**raw, **{name: text(raw[name]) for name in texts}, **several, settings: dict(raw[settings])}


# --------------------------------------------------------------------------------------------- how far jobs have come
STATUSES = ("done", "running", "waiting", "failed", "stopped", "to do", "missing")
_WORST_FIRST = ("running", "waiting", "failed", "stopped", "to do", "done")  # of a job's tasks: that of the job
Queue = Mapping[tuple[str, int], str]  # job and task -> `running`, `waiting`, or why SLURM ended it


@dataclass(frozen=True)
class State:
    """How far a job has come."""

    job: Job
    status: str = "to do"  # one of `STATUSES`
    left: tuple[int, ...] = ()  # tasks that have to be done, or done again
    questions: int = 0  # that are answered; of a training: its step
    of: int = 0  # questions asked; 0 where that is not known
    seconds: float = 0.0  # spent on answering
    run: str = ""  # what it has made so far
    detail: str = ""  # why it failed or is missing, or what a person should know


Look = tuple[Collection[int], State]  # tasks of a job that are done, and its state but for `status` and `left`


class JobMonitor:
    """Tells how far jobs (by name) have come, where `queue` says which of their tasks wait or run."""

    def __init__(self, jobs: Mapping[str, Job], queue: Queue) -> None:
        self.jobs, self.queue = jobs, queue
        self._runs: dict[str, Runs] = {}

    def states(self) -> list[State]:
        """Return the state of every job, in their order."""
        return [self.state(job) for job in self.jobs.values()]

    def state(self, job: Job) -> State:
        """Return the state of a job."""
        if job.missing:
            return State(job, "missing", detail=job.missing)
        look = {"index": _index, "train": _training, "report": self._report}.get(job.kind, self._evaluation)
        try:
            with interpreting(Path(job.target.path)):
                done, state = look(job)
        except ArtefactError as error:  # of one run: the others can still be told, and done
            return State(job, "failed", detail=str(error))
        statuses = {task: "done" if task in done else self._task(job, task) for task in job.numbers}
        status = next(s for s in _WORST_FIRST if s in statuses.values())
        left = tuple(task for task, s in statuses.items() if s not in ("done", "running", "waiting"))
        if status == "failed":
            why = self._why(job, next(task for task, s in statuses.items() if s == "failed"))
            state = replace(state, detail=why)
        return replace(state, status=status, left=left)

    def _task(self, job: Job, task: int) -> str:
        """Return the status of a task that is not done."""
        queued = self.queue.get((job.name, task), "")
        if queued in ("running", "waiting"):
            return queued
        code, _ = job.ended(task)
        if job.was_cut_off(task):
            return "failed" if queued else "stopped"
        if code == STOPPED:
            return "stopped"
        return "failed" if queued or code else "to do"

    def _why(self, job: Job, task: int) -> str:
        code, remark = job.ended(task)
        why = self.queue.get((job.name, task)) or (f"exit code {code}" if "failed" in remark else remark)
        return f"{f'shard {task}: ' if job.tasks else ''}{why}"

    def _evaluation(self, job: Job) -> Look:
        run = self._runs.setdefault(job.target.path, Runs(job.target.path)).find(job.target)
        if run is None:
            return (), State(job)
        if is_scored(run):
            metrics = read_object(run / "metrics.json")
            total, failed = metrics.get("questions", 0), metrics.get("failed", 0)
            remarks = [f"{failed} of {total} questions failed"] * bool(failed)
            with interpreting(run / "metrics.json"):
                remarks += [f"{role}: {described(c)}" for role, c in metrics.get("replies", {}).items() if c["bad"]]
            state = State(job, questions=total, of=total, run=str(run), detail="; ".join(remarks))
            return job.numbers, replace(state, seconds=predicted_seconds(run))
        if job.kind == "merge":
            return (), State(job, run=str(run))
        if not job.tasks:
            seconds = predicted_seconds(run)
            return (), State(job, questions=rows(run), of=asked(run), seconds=seconds, run=str(run))
        parts = {task: run / Shard(job.tasks, task).folder for task in job.numbers}
        done = {t for t, part in parts.items() if is_whole(part) or (part.is_dir() and job.ended(t)[0] == 0)}
        counts = [asked(part) for part in parts.values()]
        answered = sum(min(rows(part), count or rows(part)) for part, count in zip(parts.values(), counts, strict=True))
        seconds = sum(map(predicted_seconds, parts.values()))
        of = sum(counts) if all(counts) else 0
        return done, State(job, questions=answered, of=of, seconds=seconds, run=str(run))

    def _report(self, job: Job) -> Look:
        shown = [self.jobs[need] for need in job.needs if need in self.jobs]
        sources = [one.file("ended", task) for one in shown for task in one.numbers] + [Path(job.arguments[0])]
        if job.ended(0)[0] != 0:
            return (), State(job)
        made = job.file("ended", 0).stat().st_mtime
        is_new = all(not path.exists() or path.stat().st_mtime <= made for path in sources)
        return {0} if is_new else (), State(job, run=str(job.log_file(0)))


def _index(job: Job) -> Look:
    folder = Path(job.target.path)
    store = Store(folder)
    there = [stage for stage in job.target.stages if store.key(stage) is not None]
    settings = _named_writers(settings_of(store))
    is_same = all(settings.get(name) == value for name, value in _named_writers(job.target.settings).items())
    is_whole = store.manifest["complete"] and len(there) == len(job.target.stages)
    # What none of its stages reads keeps its settings when the job has run: then nobody may have built since.
    manifest, end = folder / "manifest.json", job.file("ended", 0)
    is_newest = job.ended(0)[0] == 0 and manifest.exists() and end.stat().st_mtime >= manifest.stat().st_mtime
    seconds = sum(store.info(stage).get("seconds", 0.0) for stage in there)
    remark = f"{len(there)} of {len(job.target.stages)} stages"
    done = {0} if is_whole and (is_same or is_newest) else ()
    return done, State(job, seconds=seconds, run=str(folder) if there else "", detail=remark)


def _named_writers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of an index in which each writer has a name: an index notes that of the default."""
    writers = settings.get("writers", {})
    named = {
        name: {**writer, "impl": writer.get("impl") or writers.get("default")}
        if isinstance(writer, Mapping)
        else writer
        for name, writer in writers.items()
    }
    return {**settings, "writers": named} if named else dict(settings)


def _training(job: Job) -> Look:
    run = Path(job.target.path)
    last = last_rows(run)
    step, seconds = max((row.get("step", 0) for row in last), default=0), sum(row.get("seconds", 0.0) for row in last)
    changed = _changed_settings(run, job.target.settings)
    remark = f"{run} has another value of {', '.join(changed[:5])}" if changed else ""
    done = {0} if read_object(run / "metrics.json") and not changed else ()
    return done, State(job, questions=step, seconds=seconds, run=str(run), detail=remark)


def _changed_settings(run: Path, required: Mapping[str, Any]) -> list[str]:
    """Return the settings of a training run, or of one of its folds, that differ from those required."""
    plain = json.loads(json.dumps(dict(required)))
    changed: set[str] = set()
    for folder in (run, *folds_of(run)):
        if (held := read_object(folder / "meta.json").get("settings")) is not None:
            changed |= set(differences({key: held.get(key) for key in plain}, plain))
    return sorted(changed)


def progress(job: Job, task: int) -> str:
    """Return one word that changes whenever a task gets further; empty where there is nothing to tell it by."""
    folder = Path(job.target.path)
    if job.kind == "index":
        partial = sum(path.stat().st_size for path in folder.glob(".partial/*"))
        return f"{sum(Store(folder).key(stage) is not None for stage in job.target.stages)}-{partial}"
    if job.kind == "train":
        return str(sum(rows(run, "metrics.jsonl") for run in (folder, *folds_of(folder))))
    if job.kind == "evaluate":
        run = Runs(folder).find(job.target)
        return str(rows(run / Shard(job.tasks, task).folder if job.tasks else run)) if run else "0"
    return ""


class Runs:
    """Run directories below a folder, found by the settings that decide their predictions."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @cached_property
    def _known(self) -> dict[str, list[Path]]:
        """Hash of the deciding settings -> run directories."""
        known: dict[str, list[Path]] = {}
        for folder in sorted(self.root.iterdir()) if self.root.is_dir() else []:
            settings = (read_object(part / "meta.json").get("decisive") for part in _with_parts(folder))
            if (first := next((found for found in settings if found is not None), None)) is not None:
                known.setdefault(digest(first), []).append(folder)
        return known

    def find(self, target: Target) -> Path | None:
        """Return the newest run of an evaluation, of its name too where it is given one; None where there is none."""
        required = digest(json.loads(json.dumps(target.settings)))
        fitting = [path for path in self._known.get(required, ()) if _fits(path, target)]
        if target.name:
            fitting = [path for path in fitting if path.name == target.name]
        return max(fitting, key=lambda path: path.stat().st_mtime, default=None)


def _with_parts(run: Path) -> Iterator[Path]:
    """Yield a run directory and its shards: of a run that is not merged yet, theirs tell what it is."""
    yield run
    yield from parts_of(run).values()


def _fits(run: Path, target: Target) -> bool:
    """Tell whether a run is of the same data, and of the index as it is now, where there is one."""
    part = next((part for part in _with_parts(run) if (part / "config.yaml").is_file()), None)
    if part is None:
        return False
    with interpreting(part / "config.yaml"):
        data = read_config(part)["data"]
        if (str(data["path"]), str(data.get("questions") or "")) != tuple(target.data):
            return False
    try:
        store = Store(Path(target.index))
    except GnnragError:
        return True  # its job will say what is wrong with the index
    with interpreting(part / "meta.json"):
        keys: Mapping[str, str] = read_object(part / "meta.json").get("inputs", {}).get("index", {})
        return all(store.key(stage) in (None, key) for stage, key in keys.items())


def is_scored(run: Path) -> bool:
    """Tell whether a run has its predictions and its metrics."""
    return bool(read_object(run / "metrics.json")) and (run / "predictions.jsonl").is_file()


def is_whole(run: Path) -> bool:
    """Tell whether each question of a shard has a row; one that was tried again has several."""
    count = asked(run)
    if not 0 < count <= rows(run):
        return False
    return len({row["question_id"] for row in read_journal(run / "predictions.jsonl")}) >= count


def asked(run: Path) -> int:
    """Return how many questions a run will hold; 0 where it does not say."""
    count = read_object(run / "meta.json").get("questions", 0)
    return count if type(count) is int else 0


def rows(run: Path, name: str = "predictions.jsonl") -> int:
    """Return how many whole rows a journal of a run has."""
    try:
        with open_regular(run / name) as handle:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: handle.read(1 << 20), b""))
    except (OSError, ArtefactError):
        return 0


def last_rows(run: Path) -> list[dict[str, Any]]:
    """Return the last row of metrics of a training, of each of its folds."""
    return [row for folder in (run, *folds_of(run)) if (row := _last_row(folder / "metrics.jsonl")) is not None]


def _last_row(path: Path) -> dict[str, Any] | None:
    try:
        with open_regular(path) as handle:
            lines: Sequence[bytes] = handle.read().splitlines()
    except (OSError, ArtefactError):
        return None
    for line in reversed(lines):
        try:
            return dict(parse_json(line))
        except (ValueError, TypeError):  # half a row, of a run that was killed
            continue
    return None
