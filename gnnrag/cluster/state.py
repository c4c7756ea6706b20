"""How far jobs have come, read off what they leave behind: run directories, indexes, and how each task ended."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gnnrag.cluster.job import Job, Target
from gnnrag.cluster.stopping import STOPPED
from gnnrag.common.files import digest, open_regular, read_journal, read_object
from gnnrag.common.outputs import folds_of
from gnnrag.common.records import interpreting, read_config
from gnnrag.common.untrusted import parse_json
from gnnrag.errors import ArtefactError, GnnragError
from gnnrag.index.plan import settings_of
from gnnrag.index.store import Store
from gnnrag.metrics.replies import described
from gnnrag.run.rundir import differences, predicted_seconds
from gnnrag.run.sharding import Shard, parts_of

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
