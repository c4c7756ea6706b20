"""How far jobs have come, read off what they leave behind: run directories, indexes, and how each task ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gnnrag.cluster.job import Job, Target
from gnnrag.cluster.leftovers import (
    asked,
    ended,
    ended_file,
    is_whole,
    last_rows,
    log_file,
    rows,
    was_cut_off,
)
from gnnrag.cluster.stopping import STOPPED
from gnnrag.common.files import digest, read_object
from gnnrag.common.outputs import folds_of
from gnnrag.common.records import interpreting, read_config
from gnnrag.errors import ArtefactError, GnnragError
from gnnrag.index.plan import settings_of
from gnnrag.index.store import Store
from gnnrag.metrics.replies import described
from gnnrag.run.rundir import differences, predicted_seconds
from gnnrag.run.sharding import Shard, parts_of

STATUSES = ("done", "running", "waiting", "failed", "stopped", "to do", "missing")
Queue = Mapping[tuple[str, int], str]  # job and task -> `running`, `waiting`, or why SLURM ended it


@dataclass(frozen=True)
class State:
    """How far a job has come.

    Attributes:
        job: the job.
        status: one of `STATUSES`.
        left: tasks that have to be done, or done again.
        questions, of: answered and asked; of a training: its step and 0. `of` is 0 where it is not known.
        seconds: spent on answering.
        run: what it has made so far.
        detail: why it failed or is missing, or what a person should know.
    """

    job: Job
    status: str
    left: tuple[int, ...] = ()
    questions: int = 0
    of: int = 0
    seconds: float = 0.0
    run: str = ""
    detail: str = ""


class Runs:
    """Run directories below a folder, found by the settings that decide their predictions.

    Args:
        root: the folder.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @cached_property
    def _known(self) -> dict[str, list[Path]]:
        """Hash of the deciding settings -> run directories; of a run that is in shards, theirs tell."""
        found: dict[str, list[Path]] = {}
        for folder in sorted(self.root.iterdir()) if self.root.is_dir() else []:
            for one in (folder, *parts_of(folder).values()):
                if (settings := read_object(one / "meta.json").get("decisive")) is not None:
                    found.setdefault(digest(settings), []).append(folder)
                    break
        return found

    def find(self, target: Target) -> Path | None:
        """Return the run of an evaluation, the newest of several; None where there is none.

        One that is given a name has to have it as well: a run of that name with other settings is none of its.
        """
        wanted = digest(json.loads(json.dumps(target.decisive)))
        fitting = [path for path in self._known.get(wanted, ()) if _fits(path, target)]
        if target.name:
            fitting = [path for path in fitting if path.name == target.name]
        return max(fitting, key=lambda path: path.stat().st_mtime, default=None)


def _fits(path: Path, target: Target) -> bool:
    """Tell whether a run is of the same data, and of the index as it is now, where there is one."""
    for one in (path, *parts_of(path).values()):
        if (one / "config.yaml").is_file():
            break
    else:
        return False
    with interpreting(one / "config.yaml"):
        data = read_config(one)["data"]
        if (str(data["path"]), str(data.get("questions") or "")) != tuple(target.data):
            return False
    try:
        store = Store(Path(target.index))
    except GnnragError:
        return True  # its job will say what is wrong with the index
    with interpreting(one / "meta.json"):
        keys: Mapping[str, str] = read_object(one / "meta.json").get("inputs", {}).get("index", {})
        return all(store.key(stage) in (None, key) for stage, key in keys.items())


class Desk:
    """Looks at jobs.

    Args:
        jobs: by name.
        queue: which of their tasks wait or run, as a backend tells.
    """

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
        look = {"index": self._index, "train": self._training, "report": self._report}.get(job.kind, self._evaluation)
        try:
            with interpreting(Path(job.target.path)):
                done, questions, of, seconds, run, detail = look(job)
        except ArtefactError as error:  # of one run: the others can still be told, and done
            return State(job, "failed", detail=str(error))
        statuses = {task: "done" if task in done else self._task(job, task) for task in job.numbers}
        status = next(s for s in ("running", "waiting", "failed", "stopped", "to do", "done") if s in statuses.values())
        left = tuple(task for task, s in statuses.items() if s not in ("done", "running", "waiting"))
        if status == "failed":
            detail = self._why(job, [task for task, s in statuses.items() if s == "failed"])
        return State(job, status, left, questions, of, seconds, run, detail)

    def _task(self, job: Job, task: int) -> str:
        """Return the status of a task that is not done."""
        queued = self.queue.get((job.name, task), "")
        if queued in ("running", "waiting"):
            return queued
        code, _ = ended(job, task)
        if was_cut_off(job, task):
            return "failed" if queued else "stopped"
        if code == STOPPED:
            return "stopped"
        return "failed" if queued or code else "to do"

    def _why(self, job: Job, tasks: Sequence[int]) -> str:
        task = tasks[0]
        code, told = ended(job, task)
        shard = f"shard {task}: " if job.tasks else ""
        text = self.queue.get((job.name, task)) or (f"exit code {code}" if "failed" in told else told)
        return f"{shard}{text}"

    # What each of these returns: tasks done, questions answered and asked, seconds, what was made, a remark.
    def _evaluation(self, job: Job) -> tuple[set[int], int, int, float, str, str]:
        runs = self._runs.setdefault(job.target.path, Runs(job.target.path))
        run = runs.find(job.target)
        if run is None:
            return set(), 0, 0, 0.0, "", ""
        if is_scored(run):
            metrics = read_object(run / "metrics.json")
            total, failed = metrics.get("questions", 0), metrics.get("failed", 0)
            told = [f"{failed} of {total} questions failed"] * bool(failed)
            with interpreting(run / "metrics.json"):
                told += [f"{role}: {described(c)}" for role, c in metrics.get("replies", {}).items() if c["bad"]]
            return set(job.numbers), total, total, predicted_seconds(run), str(run), "; ".join(told)
        if not job.tasks and job.kind == "evaluate":
            return set(), rows(run), asked(run), predicted_seconds(run), str(run), ""
        if job.kind == "merge":
            return set(), 0, 0, 0.0, str(run), ""
        parts = {task: run / Shard(job.tasks, task).folder for task in job.numbers}
        done = {t for t, part in parts.items() if is_whole(part) or (part.is_dir() and ended(job, t)[0] == 0)}
        of = sum(asked(part) for part in parts.values())
        known = all(asked(part) for part in parts.values())
        answered = sum(min(rows(part), asked(part) or rows(part)) for part in parts.values())
        return done, answered, of if known else 0, sum(map(predicted_seconds, parts.values())), str(run), ""

    def _index(self, job: Job) -> tuple[set[int], int, int, float, str, str]:
        folder = Path(job.target.path)
        store = Store(folder)
        there = [stage for stage in job.target.stages if store.key(stage) is not None]
        settings = _named_writers(settings_of(store))
        is_same = all(settings.get(name) == value for name, value in _named_writers(job.target.decisive).items())
        is_whole = store.manifest["complete"] and len(there) == len(job.target.stages)
        # What none of its stages reads keeps its settings when the job has run: then nobody may have built since.
        manifest, log = folder / "manifest.json", ended_file(job, 0)
        is_newest = ended(job, 0)[0] == 0 and manifest.exists() and log.stat().st_mtime >= manifest.stat().st_mtime
        done = {0} if is_whole and (is_same or is_newest) else set()
        seconds = sum(store.info(stage).get("seconds", 0.0) for stage in there)
        return done, 0, 0, seconds, str(folder) if there else "", f"{len(there)} of {len(job.target.stages)} stages"

    def _training(self, job: Job) -> tuple[set[int], int, int, float, str, str]:
        run = Path(job.target.path)
        step = max((row.get("step", 0) for row in last_rows(run)), default=0)
        seconds = sum(row.get("seconds", 0.0) for row in last_rows(run))
        changed = changed_settings(run, job.target.decisive)
        remark = f"{run} has another value of {', '.join(changed[:5])}" if changed else ""
        done = {0} if read_object(run / "metrics.json") and not changed else set()
        return done, step, 0, seconds, str(run), remark

    def _report(self, job: Job) -> tuple[set[int], int, int, float, str, str]:
        log = ended_file(job, 0)
        before = [ended_file(self.jobs[n], t) for n in job.needs if n in self.jobs for t in self.jobs[n].numbers]
        before.append(Path(job.arguments[0]))
        made = log.stat().st_mtime if ended(job, 0)[0] == 0 else 0.0
        is_new = made and all(not path.exists() or path.stat().st_mtime <= made for path in before)
        return {0} if is_new else set(), 0, 0, 0.0, str(log_file(job, 0)) if made else "", ""


def is_scored(run: Path) -> bool:
    """Tell whether a run has its predictions and its metrics."""
    return bool(read_object(run / "metrics.json")) and (run / "predictions.jsonl").is_file()


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


def changed_settings(run: Path, wanted: Mapping[str, Any]) -> list[str]:
    """Return the settings of a training run, or of one of its folds, that differ from those that are wanted."""
    plain = json.loads(json.dumps(dict(wanted)))
    found: set[str] = set()
    for folder in (run, *folds_of(run)):
        if (held := read_object(folder / "meta.json").get("settings")) is not None:
            found |= set(differences({key: held.get(key) for key in plain}, plain))
    return sorted(found)


def progress(job: Job, task: int) -> str:
    """Return one word that changes whenever a task gets further; empty where there is nothing to tell it by."""
    if job.kind == "index":
        folder = Path(job.target.path)
        partial = sum(path.stat().st_size for path in folder.glob(".partial/*"))
        return f"{sum(Store(folder).key(stage) is not None for stage in job.target.stages)}-{partial}"
    if job.kind == "train":
        run = Path(job.target.path)
        return str(sum(rows(folder, "metrics.jsonl") for folder in (run, *folds_of(run))))
    if job.kind == "evaluate":
        run_ = Runs(job.target.path).find(job.target)
        part = run_ / Shard(job.tasks, task).folder if run_ and job.tasks else run_
        return str(rows(part)) if part else "0"
    return ""
