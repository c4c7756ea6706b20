"""Jobs in SLURM: what is in its queue, and what `sbatch` is told. Accounting (`sacct`) is not needed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnrag.cluster.job import Job
from gnnrag.cluster.site import SiteConfig, sbatch_flags, setup_script
from gnnrag.cluster.state import State
from gnnrag.common.files import remove, write_atomic
from gnnrag.errors import GnnragError

WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "CONFIGURING", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
NEVER = {"DependencyNeverSatisfied"}
MARK = "gnnrag:"  # comments of our jobs: the mark, and where the job's folder is
# Else squeue cuts the tasks of an array after 64 bytes, and a cut 47 reads as 4. (A line for each task, --array, leaves
# out the last of 1-49:4.)
WHOLE = {"SLURM_BITSTR_LEN": "0"}
TIMEOUT_S = 60
Queue = dict[tuple[str, int], str]
Live = Mapping[str, Mapping[str, str]]
Run = Callable[[Sequence[str]], str]


def call(command: Sequence[str]) -> str:
    """Run a command of SLURM; returns what it says.

    Raises:
        GnnragError: it is not installed, failed, or did not answer.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env={**os.environ, **WHOLE}
        )
    except FileNotFoundError as error:
        raise GnnragError(f"{command[0]} is not installed here; --local runs the jobs on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise GnnragError(f"{command[0]} did not answer within {TIMEOUT_S} s{_hint(command)}") from error
    if done.returncode:
        problem = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise GnnragError(
            f"{' '.join(command[:1])} refused: {problem.splitlines()[-1]}{_hint(command)}\n  {' '.join(command)}"
        )
    return done.stdout


def _hint(command: Sequence[str]) -> str:
    """Return what a person may do where the queue, which is asked first, cannot be read: its tools are all there is."""
    return "; where there is no cluster, --local runs the jobs on this machine" if command[0] == "squeue" else ""


@dataclass(frozen=True)
class Queued:
    """What SLURM knows of our jobs.

    Attributes:
        tasks: `running`, `waiting` or why it ended, by job and task.
        live: SLURM's jobs and tasks that are not over (`7`, `7_3`), whether they are `running` or `waiting`, by name of
            ours; one that was submitted again while some of its tasks ran has several numbers.
    """

    tasks: Queue
    live: Live


def read_queue(folders: Mapping[str, str], run: Run = call) -> Queued:
    """Return which of our jobs are in the queue.

    Args:
        folders: job folder by name: two checkouts may submit jobs of one name.
        run: runs a command.
    """
    lines = run(["squeue", "--noheader", "--me", "--states=all", "--format=%i|%T|%r|%k"]).splitlines()
    ours = {MARK + str(Path(folder).resolve()): name for name, folder in folders.items()}
    tasks: Queue = {}
    live: dict[str, dict[str, str]] = {}
    newest: dict[tuple[str, int], int] = {}
    for line in lines:
        id_, state, reason, comment = (*line.strip().split("|", 3), "", "", "")[:4]
        if not (name := ours.get(comment)):
            continue
        number, numbers = array_tasks(id_)
        state = state.split(",")[0]
        is_over = state not in WAITING | RUNNING or (state in WAITING and reason in NEVER)
        told = "running" if state in RUNNING else "waiting"
        if is_over:
            told = f"cancelled: {reason}" if reason in NEVER else state.lower().replace("_", " ")
        for task in numbers:
            if newest.get((name, task), -1) <= number:
                newest[name, task] = number
                tasks[name, task] = told
            if not is_over:
                live.setdefault(name, {})[f"{number}_{task}" if "_" in id_ else str(number)] = told
    return Queued({key: told for key, told in tasks.items() if told != "completed"}, live)


def array_tasks(id_: str) -> tuple[int, list[int]]:
    """Return number and tasks that an id of `squeue` stands for: `12` (none: 0), `12_3`, `12_[1,4-6,10-18:4%2]`.

    Raises:
        GnnragError: it is something else; to guess would submit again what waits.
    """
    part = r"\d+(?:-\d+(?::\d+)?)?"
    if not (found := re.fullmatch(rf"(\d+)(?:_(\d+)|_\[({part}(?:,{part})*)(?:%\d+)?\])?", id_)):
        raise GnnragError(f"squeue names a job {id_!r}; expected a form such as 12, 12_3 or 12_[1,4-6]")
    tasks: list[int] = []
    for text in (found[3] or found[2] or "0").split(","):
        first, _, rest = text.partition("-")
        last, _, step = rest.partition(":")
        tasks += range(int(first), int(last or first) + 1, int(step or 1))
    return int(found[1]), tasks


class Slurm:
    """Submits jobs.

    Args:
        site: what the cluster wants to be told.
        home: the repository.
        run: runs a command; another one only notes what would be submitted.
        write: make the jobs' folders and files.
    """

    def __init__(self, site: SiteConfig, home: Path, run: Run = call, write: bool = True) -> None:
        self.site, self.home, self.run, self.write = site, home, run, write

    def submit(self, states: Sequence[State], live: Live) -> dict[str, str]:
        """Submit what is left of each job, after what it needs; what waits already waits for that as well.

        Args:
            states: of all jobs, in an order in which they can run.
            live: what waits or runs already (`Queued.live`).

        Returns:
            SLURM's number of each job that was submitted now, by name.
        """
        submitted: dict[str, str] = {}
        for state in states:
            job, left = state.job, list(state.left)
            if state.status == "missing":
                continue
            before = waited_for(job, live, submitted)
            if any(name in submitted for name in job.needs):
                mine = live.get(job.name, {})
                lost = self._lost(job, mine, before)
                live = {**live, job.name: {id_: told for id_, told in mine.items() if id_ not in lost}}
                left += [task for task in (array_tasks(id_)[1][0] for id_ in lost) if task not in left]
            if left:
                if self.write:
                    self._prepare(job)
                submitted[job.name] = self.run(self.command(job, left, before)).strip().split(";")[0]
        return submitted

    def _lost(self, job: Job, live: Mapping[str, str], before: Sequence[str]) -> list[str]:
        """Let what waits wait for other jobs, since some that it needs were submitted again.

        Returns:
            Ids that SLURM does not let wait for others as they have ended, mostly as what they needed had failed.

        Raises:
            GnnragError: SLURM did not do it for a job that waits. To submit that again would have it run twice.
        """
        lost = []
        for id_ in [id_ for id_, told in live.items() if told == "waiting"]:
            try:
                self.run(["scontrol", "update", f"JobId={id_}", f"Dependency={dependency(job, before)}"])
            except GnnragError as error:
                state, reason = self._state(id_)
                if state not in WAITING | RUNNING or reason in NEVER:
                    lost.append(id_)
                elif state == "PENDING":
                    problem = f"job {id_} still waits for what failed, give the same command again: {error}"
                    raise GnnragError(problem) from error
        return lost

    def _state(self, id_: str) -> tuple[str, str]:
        """Return a job's state and why it waits; empty where SLURM has forgotten it."""
        try:
            told = self.run(["squeue", "--noheader", f"--jobs={id_}", "--states=all", "--format=%T|%r"])
        except GnnragError:
            return "", ""
        state, _, reason = told.strip().partition("|")
        return state.split(",")[0], reason

    def command(self, job: Job, tasks: Sequence[int], before: Sequence[str]) -> list[str]:
        """Return the call of `sbatch` for some tasks of a job.

        Args:
            job: the job.
            tasks: their numbers; a job that is not sharded has the single task 0.
            before: SLURM's numbers of the jobs that it has to wait for.
        """
        folder = (self.home / job.folder).resolve()
        exported = {"GNNRAG_HOME": self.home, "GNNRAG_JOB": folder, "GNNRAG_SETUP": folder / "setup.sh"}
        command = [
            *("sbatch", "--parsable", "--requeue", "--open-mode=append", "--kill-on-invalid-dep=yes"),
            *(f"--job-name={job.alone or job.name}", f"--comment={MARK}{folder}", f"--chdir={self.home}"),
            *sbatch_flags(self.site, job.kind),
        ]
        if job.tasks:
            exported["GNNRAG_SHARDS"] = Path(str(job.tasks))
            command.append(f"--array={ranges(tasks)}%{self.site.max_running}")
        command.append(f"--output={folder / ('log-%a.txt' if job.tasks else 'log.txt')}")
        waits = dependency(job, before)
        command += [f"--dependency={waits}"] if waits else []
        command.append(f"--export=ALL,{','.join(f'{name}={value}' for name, value in exported.items())}")
        return [*command, str(self.home / "slurm" / f"{job.kind}.sbatch"), *job.arguments]

    def _prepare(self, job: Job) -> None:
        folder = Path(job.folder)
        job.write()
        write_atomic(folder / "setup.sh", setup_script(self.site, job.kind, self.home))
        for old in ("idle-*", "progress-*"):  # a person who submits again gives it another chance
            for path in folder.glob(old):
                remove(path, folder)


def waited_for(job: Job, live: Live, submitted: Mapping[str, str]) -> list[str]:
    """Return what a job has to wait for: whatever is not over of each job that it needs, and what was submitted now.

    Of an array that was there before it is the tasks that are not over: one of the others may have failed, and nothing
    that waits for the whole array would ever start.
    """
    found: list[str] = []
    for name in job.needs:
        found += [*live.get(name, {}), *([submitted[name]] if name in submitted else [])]
    return found


def dependency(job: Job, before: Sequence[str]) -> str:
    """Return the dependency of a job on SLURM's jobs and tasks, as `sbatch` takes it; empty where there is none."""
    waits = [f"{'afterany' if job.ends_anyway else 'afterok'}:{':'.join(before)}"] if before else []
    waits += ["singleton"] if job.alone else []  # of the jobs with this name one at a time
    return ",".join(waits)


def ranges(tasks: Sequence[int]) -> str:
    """Return task numbers as `sbatch --array` takes them: 1, 2, 3, 7 as `1-3,7`."""
    found: list[list[int]] = []
    for task in sorted(tasks):
        if found and found[-1][1] == task - 1:
            found[-1][1] = task
        else:
            found.append([task, task])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
