"""Runs a graph of jobs on this machine: some processes at a time, each job after what it needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gnnrag.cluster.job import Job, State
from gnnrag.cluster.stopping import STOP_FILE, STOPPED
from gnnrag.common.files import open_log, remove, write_atomic

GRACE_S = 120.0  # for a job that was told to stop; then it is killed, and what it had not saved is done again
POLL_S, REPORT_S = 0.1, 15.0
Task = tuple[str, int]


@dataclass
class Outcome:
    """Outcome of the jobs."""

    codes: dict[Task, int] = field(default_factory=dict)  # exit codes of the tasks that ran
    blocked: dict[str, str] = field(default_factory=dict)  # jobs that another one's failure kept from running, and why
    left: list[str] = field(default_factory=list)  # jobs that were not started in time

    @property
    def has_failed(self) -> bool:
        """Whether a task failed, or could not run because another one had."""
        return bool(self.blocked) or any(code not in (0, STOPPED) for code in self.codes.values())


@dataclass
class _Running:
    job: Job
    task: int
    process: subprocess.Popen[bytes]
    started: float
    stop_file: Path


class LocalRunner:
    """Runs what is left of jobs, given in an order in which they can run; `on_wait` is called four times a minute."""

    def __init__(
        self,
        states: Sequence[State],
        home: Path,
        workers: int,
        on_start: Callable[[Job, int], None] = lambda job, task: None,
        on_end: Callable[[Job, int, int, float], None] = lambda job, task, code, seconds: None,
        on_wait: Callable[[Sequence[Task]], None] = lambda tasks: None,
    ) -> None:
        self.home, self.workers = home, workers
        self.on_start, self.on_end, self.on_wait = on_start, on_end, on_wait
        self._jobs = {state.job.name: state.job for state in states}
        self._todo = {s.job.name: list(s.left) for s in states if s.left and s.status != "missing"}
        self._without_result: dict[str, str] = {}  # jobs, and why
        self._blocked: set[str] = set()  # those among them that are not run, as another one has no result
        self._running: list[_Running] = []
        self._is_stopping = False
        self.outcome = Outcome()

    def run(self, deadline: float | None = None) -> Outcome:
        """Run to the end, or until `deadline` (`time.monotonic`) or Ctrl-C (raised): tasks save and stop first."""
        reported = time.monotonic()
        try:
            while self._todo and (deadline is None or time.monotonic() < deadline):
                self._start_ready()
                if not self._running:
                    break  # what is left waits for something that will not come
                self._collect()
                if time.monotonic() - reported >= REPORT_S:
                    reported = time.monotonic()
                    self.on_wait([(r.job.name, r.task) for r in self._running])
        finally:
            self._stop()
        self.outcome.blocked = {name: self._without_result[name] for name in self._todo if name in self._blocked}
        self.outcome.left = [name for name in self._todo if name not in self._blocked]
        return self.outcome

    def _start_ready(self) -> None:
        for name in list(self._todo):
            job = self._jobs[name]
            broken = [need for need in job.needs if need in self._without_result]
            if name not in self._without_result and broken and (not job.ends_anyway or len(broken) == len(job.needs)):
                self._without_result[name] = f"{broken[0]} {self._without_result[broken[0]]}"
                self._blocked.add(name)
            while self._can_start(job):
                self._start(job, self._todo[name].pop(0))

    def _can_start(self, job: Job) -> bool:
        is_ready = job.name not in self._blocked and all(self._is_over(need) for need in job.needs)
        is_excluded = job.alone and any(r.job.alone == job.alone for r in self._running)
        return bool(self._todo[job.name]) and is_ready and not is_excluded and len(self._running) < self.workers

    def _is_over(self, name: str) -> bool:
        """Tell whether no task of a job is left, nor, where it is not run itself, of what it needs."""
        if name in self._blocked:
            return all(self._is_over(need) for need in self._jobs[name].needs)
        return name not in self._todo

    def _start(self, job: Job, task: int) -> None:
        job.write()
        stop_file = self.home / job.file("stop", task)
        remove(stop_file, stop_file.parent)
        write_atomic(job.file("started", task), "")
        threads = str(max(1, (os.cpu_count() or 1) // self.workers))
        environment = {"OMP_NUM_THREADS": threads, **os.environ, STOP_FILE: str(stop_file)}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(self.home), os.environ.get("PYTHONPATH", ""))))
        with open_log(job.log_file(task), fresh=True) as log:
            process = subprocess.Popen(
                [sys.executable, *job.command(task)], cwd=self.home, env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._running.append(_Running(job, task, process, time.monotonic(), stop_file))
        self.on_start(job, task)

    def _collect(self) -> None:
        """Take note of the tasks that have ended since, and wait a moment."""
        for done in [r for r in self._running if r.process.poll() is not None]:
            self._running.remove(done)
            name, code = done.job.name, done.process.returncode
            if self._is_stopping and code in (-signal.SIGTERM, 128 + signal.SIGTERM):
                code = STOPPED  # told before it could listen, or it never does; nothing that it had saved is lost
            failure = "has failed" if code > 0 else f"was killed by signal {-code}"
            how = {0: "done", STOPPED: "was stopped"}.get(code, failure)
            write_atomic(done.job.file("ended", done.task), f"{code} {how}\n")
            remove(done.stop_file, done.stop_file.parent)
            self.outcome.codes[name, done.task] = code
            if code:
                self._without_result.setdefault(name, how)
            if not self._todo.get(name) and not any(r.job.name == name for r in self._running):
                self._todo.pop(name, None)
            self.on_end(done.job, done.task, code, time.monotonic() - done.started)
        time.sleep(POLL_S)

    def _stop(self) -> None:
        """Tell what runs to stop, and wait; a second Ctrl-C, or the grace period, ends the waiting."""
        self._is_stopping = True
        for running in self._running:
            write_atomic(running.stop_file, "")
            running.process.send_signal(signal.SIGTERM)  # to its own process: what that has started cannot save
        deadline = time.monotonic() + GRACE_S
        try:
            while self._running and time.monotonic() < deadline:
                self._collect()
        finally:
            for running in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(running.process.pid, signal.SIGKILL)  # with whatever it has started
            while self._running:
                self._collect()
