"""Jobs in SLURM: what is in its queue, and what `sbatch` is told. Accounting (`sacct`) is not needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnrag.errors import GnnragError
from gnnrag.files import write_atomic
from gnnrag.jobs.job import Job
from gnnrag.jobs.site import SiteConfig, sbatch_flags, setup_script
from gnnrag.jobs.state import State

WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "CONFIGURING", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
NEVER = {"DependencyNeverSatisfied"}
MARK = "gnnrag:"  # comments of our jobs: the mark, and where the job's folder is
TIMEOUT_S = 60
Queue = dict[tuple[str, int], str]
Run = Callable[[Sequence[str]], str]


def call(command: Sequence[str]) -> str:
    """Run a command of SLURM; returns what it says.

    Raises:
        GnnragError: it is not installed, failed, or did not answer.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise GnnragError(f"{command[0]} is not installed here; --local runs the jobs on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise GnnragError(f"{command[0]} did not answer within {TIMEOUT_S} s") from error
    if done.returncode:
        problem = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise GnnragError(f"{' '.join(command[:1])} refused: {problem.splitlines()[-1]}\n  {' '.join(command)}")
    return done.stdout


@dataclass(frozen=True)
class Queued:
    """What SLURM knows of our jobs.

    Attributes:
        tasks: `running`, `waiting` or why it ended, by job and task.
        ids: number of the newest job of SLURM that is not over, by name of ours.
    """

    tasks: Queue
    ids: Mapping[str, str]


def read_queue(folders: Mapping[str, str], run: Run = call) -> Queued:
    """Return which of our jobs are in the queue.

    Args:
        folders: job folder by name: two checkouts may submit jobs of one name.
        run: runs a command.
    """
    lines = run(["squeue", "--noheader", "--me", "--states=all", "--format=%i|%T|%r|%k"]).splitlines()
    ours = {MARK + str(Path(folder).resolve()): name for name, folder in folders.items()}
    tasks: Queue = {}
    ids: dict[str, str] = {}
    newest: dict[tuple[str, int], int] = {}
    for line in lines:
        id_, state, reason, comment = (*line.strip().split("|", 3), "", "", "")[:4]
        if not (name := ours.get(comment)):
            continue
        number = int(re.match(r"\d+", id_)[0])  # type: ignore[index]
        state = state.split(",")[0]
        is_over = state not in WAITING | RUNNING or (state in WAITING and reason in NEVER)
        told = "running" if state in RUNNING else "waiting"
        if is_over:
            told = f"cancelled: {reason}" if reason in NEVER else state.lower().replace("_", " ")
        for task in array_tasks(id_):
            if newest.get((name, task), -1) <= number:
                newest[name, task] = number
                tasks[name, task] = told
        if not is_over and number >= int(ids.get(name, -1)):
            ids[name] = str(number)
    return Queued({key: told for key, told in tasks.items() if told != "completed"}, ids)


def array_tasks(id_: str) -> list[int]:
    """Return the tasks that an id of `squeue` stands for: `12` (none: 0), `12_3`, `12_[1,4-6%2]`."""
    _, _, text = id_.partition("_")
    if not text:
        return [0]
    found: list[int] = []
    for part in text.strip("[]").partition("%")[0].split(","):
        first, _, last = part.partition("-")
        last, _, step = last.partition(":")
        if first.isdigit():
            found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


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

    def submit(self, states: Sequence[State], queued: Mapping[str, str]) -> dict[str, str]:
        """Submit what is left of each job, after what it needs.

        Args:
            states: of all jobs, in an order in which they can run.
            queued: SLURM's number of those that wait or run already, by name.

        Returns:
            SLURM's number of each job that was submitted now, by name.
        """
        ids = dict(queued)
        submitted: dict[str, str] = {}
        for state in states:
            if not state.left or state.status == "missing":
                continue
            job = state.job
            before = [ids[name] for name in job.needs if name in ids]
            if self.write:
                self._prepare(job)
            id_ = self.run(self.command(job, state.left, before)).strip().split(";")[0]
            ids[job.name] = submitted[job.name] = id_
        return submitted

    def command(self, job: Job, tasks: Sequence[int], before: Sequence[str]) -> list[str]:
        """Return the call of `sbatch` for some tasks of a job.

        Args:
            job: the job.
            tasks: their numbers; a job that is not sharded has the single task 0.
            before: SLURM's numbers of the jobs that it has to wait for.
        """
        folder = (self.home / job.folder).resolve()
        exported = {"GNNRAG_HOME": self.home, "GNNRAG_JOB": folder, "GNNRAG_SETUP": folder / "setup.sh"}
        # singleton: of the jobs with this name one at a time.
        waits = [f"{'afterany' if job.ends_anyway else 'afterok'}:{':'.join(before)}"] if before else []
        waits += ["singleton"] if job.alone else []
        command = [
            *("sbatch", "--parsable", "--requeue", "--open-mode=append", "--kill-on-invalid-dep=yes"),
            *(f"--job-name={job.alone or job.name}", f"--comment={MARK}{folder}", f"--chdir={self.home}"),
            *sbatch_flags(self.site, job.kind),
        ]
        if job.tasks:
            exported["GNNRAG_SHARDS"] = Path(str(job.tasks))
            command.append(f"--array={ranges(tasks)}%{self.site.max_running}")
        command.append(f"--output={folder / ('log-%a.txt' if job.tasks else 'log.txt')}")
        command += [f"--dependency={','.join(waits)}"] if waits else []
        command.append(f"--export=ALL,{','.join(f'{name}={value}' for name, value in exported.items())}")
        return [*command, str(self.home / "slurm" / f"{job.kind}.sbatch"), *job.arguments]

    def _prepare(self, job: Job) -> None:
        folder = Path(job.folder)
        job.write()
        write_atomic(folder / "setup.sh", setup_script(self.site, job.kind, self.home))
        for old in ("idle-*", "progress-*"):  # a person who submits again gives it another chance
            for path in folder.glob(old):
                path.unlink(missing_ok=True)


def ranges(tasks: Sequence[int]) -> str:
    """Return task numbers as `sbatch --array` takes them: 1, 2, 3, 7 as `1-3,7`."""
    found: list[list[int]] = []
    for task in sorted(tasks):
        if found and found[-1][1] == task - 1:
            found[-1][1] = task
        else:
            found.append([task, task])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def is_here() -> bool:
    """Tell whether jobs can be submitted from this machine."""
    return shutil.which("sbatch") is not None and (
        "SLURM_CONF" in os.environ or any(Path(p).exists() for p in ("/etc/slurm/slurm.conf", "/run/slurm/conf"))
    )
