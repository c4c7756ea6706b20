"""How `submit.py` shows jobs to a person."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gnnrag.cli.console import note
from gnnrag.cli.tables import plain_table
from gnnrag.cluster.job import STATUSES, Job, JobMonitor, State
from gnnrag.cluster.local import Task
from gnnrag.cluster.slurm import Live, Slurm, waited_for
from gnnrag.cluster.stopping import STOPPED
from gnnrag.common.untrusted import printable

HEADINGS = ("job", "of", "state", "shards", "questions", "seconds", "what")
SHOWN = 40  # jobs that are listed one by one; of more, those that run, wait, failed or were stopped
WIDTH = 220


def state_table(states: Sequence[State], blocked: Mapping[str, str]) -> str:
    """Return the jobs as a table, their sum, and the last words of those that failed."""
    hidden = ("missing",) if len(states) <= SHOWN else ("missing", "done", "to do")
    rows = [_cells(s, blocked) for s in states if s.status not in hidden or s.job.name in blocked]
    out = [plain_table(HEADINGS, rows, width=WIDTH)] if rows else []
    reasons = Counter(s.detail for s in states if s.status == "missing")
    out += [f"{count} cannot run here: {reason}" for reason, count in reasons.items()]
    for state in states:
        if state.status == "failed":
            task = _failed_task(state)
            out += [f"{state.job.name}: {state.detail}; {state.job.log_file(task)} ends with"]
            out += [f"    {line}" for line in state.job.log_tail(task)]
    counts = Counter(s.status for s in states)
    sums = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    return printable("\n".join([*out, f"{sums} of {len(states)} jobs"]))


def _failed_task(state: State) -> int:
    number = state.detail.partition(":")[0].removeprefix("shard ")
    return int(number) if state.job.tasks and number.isdigit() else state.job.numbers[0]


def _cells(state: State, blocked: Mapping[str, str]) -> list[str]:
    job = state.job
    shards = f"{job.tasks - len(state.left)}/{job.tasks}" if job.tasks else ""
    if job.tasks and state.status in ("running", "waiting"):
        shards = f"of {job.tasks}"
    answered = f"{state.questions}/{state.of}" if state.of else str(state.questions or "")
    seconds = f"{state.seconds:.0f}" if state.seconds else ""
    return [job.name, job.label, state.status, shards, answered, seconds, _what(state, blocked) or state.run]


def _what(state: State, blocked: Mapping[str, str]) -> str:
    return blocked.get(state.job.name) or state.detail


def as_json(states: Sequence[State], blocked: Mapping[str, str]) -> str:
    """Return the jobs as JSON."""
    rows: list[dict[str, Any]] = []
    for state in states:
        own = {"name": state.job.name, "kind": state.job.kind, "label": state.job.label, "status": state.status}
        numbers = {"tasks": state.job.tasks, "left": list(state.left), "questions": state.questions, "of": state.of}
        more = {"seconds": round(state.seconds, 3), "run": state.run, "folder": state.job.folder}
        rows.append({**own, **numbers, **more, "detail": _what(state, blocked)})
    return json.dumps(rows, indent=2, ensure_ascii=False)


def command_lines(states: Sequence[State], slurm: Slurm | None, live: Live) -> list[str]:
    """Return what would be run: calls of `sbatch`, where names stand for numbers, or commands of this machine."""
    todo = [state for state in states if state.left and state.status != "missing"]
    if slurm is None:
        return [shlex.join(["python", *s.job.command(task)]) for s in todo for task in s.left]
    names = {state.job.name: f"${{{state.job.name}}}" for state in todo}
    return [shlex.join(slurm.command(s.job, s.left, waited_for(s.job, live, names))) for s in todo]


class Reporter:
    """Tells what a local run of `total` tasks is doing, a line at a time."""

    def __init__(self, jobs: Mapping[str, Job], total: int) -> None:
        self.jobs, self.total = jobs, total
        self.started = self.over = 0
        self.begun = time.monotonic()

    def on_start(self, job: Job, task: int) -> None:
        """Tell that a task starts."""
        self.started += 1
        _say(f"[{self.started}/{self.total}] {_called(job, task)}: started")

    def on_end(self, job: Job, task: int, code: int, seconds: float) -> None:
        """Tell how a task ended; of one that failed, its last words."""
        self.over += 1
        word = {0: "done", STOPPED: "stopped"}.get(code, f"failed (exit code {code})")
        _say(f"[{self.over}/{self.total}] {_called(job, task)}: {word}, {seconds:.0f} s")
        if code not in (0, STOPPED):
            for line in job.log_tail(task):
                _say(f"    {printable(line)}")
            _say(f"    ({job.log_file(task)})")

    def on_wait(self, tasks: Sequence[Task]) -> None:
        """Tell how far those that run have come."""
        states = JobMonitor({name: self.jobs[name] for name, _ in tasks}, {}).states()
        steps = [f"{s.job.name} {s.questions}{f'/{s.of}' if s.of else ''}" for s in states if s.questions]
        seconds = time.monotonic() - self.begun
        note(f"{seconds:.0f} s, {self.over} of {self.total} over; " + ("; ".join(steps) or "..."))


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _called(job: Job, task: int) -> str:
    return f"{job.name} shard {task}/{job.tasks}" if job.tasks else job.name
