"""Submits jobs to SLURM without its accounting (`sacct`); `slurm/site.example.yaml` explains `slurm/site.yaml`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from gnnrag.cluster.job import Job, State
from gnnrag.common.files import remove, write_atomic
from gnnrag.config import load_config
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.index_config import one_of


# --------------------------------------------------------------------------------------------------- the site file
@dataclass
class SizeConfig:
    """Resources of one kind of job; null ones are not asked for, or come from the top of the file."""

    time: str | None = None  # limit: 30 (minutes), 4:00:00, 2-12:00:00
    cpus: int | None = None  # per task, or per node of a training
    mem: str | None = None  # per node: 500M, 32G
    gres: str | None = None  # gpu:1, gpu:a100:4
    nodes: int = 1  # more than one: training alone
    processes: int | None = None  # of a training, per node; null: one per GPU, else one
    partition: str | None = None
    qos: str | None = None
    flags: list[str] = field(default_factory=list)  # further ones of sbatch


@dataclass
class SizesConfig:
    """One section for each kind of job."""

    index: SizeConfig = field(default_factory=SizeConfig)
    evaluate: SizeConfig = field(default_factory=SizeConfig)
    merge: SizeConfig = field(default_factory=SizeConfig)
    report: SizeConfig = field(default_factory=SizeConfig)
    train: SizeConfig = field(default_factory=SizeConfig)
    server: SizeConfig = field(default_factory=SizeConfig)


@dataclass
class ContainerConfig:
    """An image that holds Python and the packages; the repository itself is mounted where it lies."""

    kind: str = one_of("none", "apptainer", "pyxis")
    image: str | None = None
    mounts: list[str] = field(default_factory=list)  # FOLDER or FOLDER:FOLDER_INSIDE
    python: str = "python3"  # inside the image


@dataclass
class SiteConfig:
    """Everything that differs from cluster to cluster."""

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    flags: list[str] = field(default_factory=list)  # further ones of sbatch, for every job
    max_running: int = 16  # tasks of one array that run at once
    signal_s: int = 120  # how long before the time limit a job is told to save
    max_restarts: int = 50  # after so many starts a job is not put into the queue again
    modules: list[str] = field(default_factory=list)  # `module load` for each
    environment: list[str] = field(default_factory=list)  # NAME=VALUE for each, after the modules; may name $OTHERS
    python: str = ".venv/bin/python"  # relative to the repository, or absolute; not used in a container
    launcher: str = one_of("torchrun", "accelerate")  # of trainings
    vllm: str = "vllm serve"  # command of the server job, before the model
    container: ContainerConfig = field(default_factory=ContainerConfig)
    jobs: SizesConfig = field(default_factory=SizesConfig)


_FORMS = {"time": (re.compile(r"(\d+-)?\d+(:\d+){0,2}"), "4:00:00"), "mem": (re.compile(r"\d+[KMGT]?"), "32G")}
_LEAST = {"max_running": 1, "signal_s": 1, "max_restarts": 0}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.S)
_VARIABLE = re.compile(r"(\$[A-Za-z_]\w*)", re.A)


def load_site(path: str | Path | None) -> SiteConfig:
    """Read a site file (None: the cluster's defaults). Raises ConfigError: no file, unknown key, what SLURM refuses."""
    site = load_config(SiteConfig, path) if path else SiteConfig()
    where = f"{path}: " if path else ""
    for section in fields(SizesConfig):
        size: SizeConfig = getattr(site.jobs, section.name)
        key = f"{where}jobs.{section.name}"
        for name, (pattern, example) in _FORMS.items():
            value = getattr(size, name)
            if value is not None and not pattern.fullmatch(value):
                raise ConfigError(f"{key}.{name}={value!r}: write it as {example}, in quotes")
        if size.nodes < 1 or (size.nodes > 1 and section.name != "train"):
            raise ConfigError(f"{key}.nodes={size.nodes}: at least 1, and more for a training alone")
        if min(value for value in (size.cpus, size.processes, 1) if value is not None) < 1:
            raise ConfigError(f"{key}: cpus and processes must be at least 1")
    for name, least in _LEAST.items():
        if getattr(site, name) < least:
            raise ConfigError(f"{where}{name}={getattr(site, name)}: must be at least {least}")
    if wrong := [line for line in site.environment if not _ASSIGNMENT.fullmatch(line)]:
        raise ConfigError(f"{where}environment: {wrong[0]!r} is not of the form NAME=VALUE")
    if site.container.kind != "none" and not site.container.image:
        raise ConfigError(f"{where}container.kind={site.container.kind} needs container.image")
    return site


def sbatch_flags(site: SiteConfig, kind: str) -> list[str]:
    """Return the flags of `sbatch` for a kind of job."""
    size: SizeConfig = getattr(site.jobs, kind)
    given = {
        "account": site.account,
        "partition": size.partition or site.partition,
        "qos": size.qos or site.qos,
        "time": size.time,
        "nodes": size.nodes,
        "cpus-per-task": size.cpus,
        "mem": size.mem,
        "gres": size.gres,
        "signal": f"B:USR1@{site.signal_s}",
    }
    return [*(f"--{name}={value}" for name, value in given.items() if value is not None), *site.flags, *size.flags]


def setup_script(site: SiteConfig, kind: str, home: Path) -> str:
    """Return what batch scripts source: modules, environment, `python`, `vllm`, `srun_flags`, processes of a node."""
    size: SizeConfig = getattr(site.jobs, kind)
    lines = [f"# written for jobs of the kind {kind}"]
    lines += [f"module load {shlex.quote(name)}" for name in site.modules]
    for assignment in site.environment:
        name, _, value = assignment.partition("=")
        lines.append(f"export {name}={_with_variables(value)}")
    inside, flags = _container(site.container, home, bool(size.gres))
    own = site.python if Path(site.python).is_absolute() or "/" not in site.python else str(home / site.python)
    python = [*inside, site.container.python if site.container.kind != "none" else own]
    arrays = {"python": python, "vllm": [*inside, *shlex.split(site.vllm)], "srun_flags": flags}
    lines += [f"{name}=({' '.join(map(shlex.quote, words))})" for name, words in arrays.items()]
    lines.append(f"export GNNRAG_LAUNCHER={site.launcher} GNNRAG_MAX_RESTARTS={site.max_restarts}")
    lines.append(f"export GNNRAG_PROCESSES={size.processes or ''}")
    return "\n".join([*lines, ""])


def _container(box: ContainerConfig, home: Path, has_gpu: bool) -> tuple[list[str], list[str]]:
    """Return the words in front of Python, and the flags of `srun`, that put a command into the container."""
    pairs = [mount if ":" in mount else f"{mount}:{mount}" for mount in (str(home), *box.mounts)]
    if box.kind == "apptainer":
        binds = [word for pair in pairs for word in ("--bind", pair)]
        return ["apptainer", "exec", *["--nv"] * has_gpu, f"--pwd={home}", *binds, box.image or ""], []
    if box.kind == "pyxis":
        mounts = f"--container-mounts={','.join(pairs)}"
        return [], [f"--container-image={box.image}", mounts, f"--container-workdir={home}"]
    return [], []


def _with_variables(value: str) -> str:
    """Return a value for bash in which `$NAME` stands for a variable, and all else for itself."""
    parts = _VARIABLE.split(value)  # every second one is a variable
    return "".join(f'"{part}"' if i % 2 else shlex.quote(part) for i, part in enumerate(parts) if part) or "''"


# ------------------------------------------------------------------------------------------------------- the queue
WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "CONFIGURING", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
NEVER = {"DependencyNeverSatisfied"}
MARK = "gnnrag:"  # comments of our jobs: the mark, and where the job's folder is
# Else squeue cuts the tasks of an array after 64 bytes, and a cut 47 reads as 4. (A line for each task, --array, leaves
# out the last of 1-49:4.)
WHOLE = {"SLURM_BITSTR_LEN": "0"}
TIMEOUT_S = 60
# SLURM's jobs and tasks that are not over (`7`, `7_3`) and whether they are `running` or `waiting`, by name of our job;
# one that was submitted again while some of its tasks ran has several numbers.
Live = Mapping[str, Mapping[str, str]]
Run = Callable[[Sequence[str]], str]


def call(command: Sequence[str]) -> str:
    """Return what a command of SLURM says. Raises GnnragError: it is not installed, failed, or did not answer."""
    name = command[0]  # the queue is asked first: where it cannot be read, its tools are all there is
    hint = "; where there is no cluster, --local runs the jobs on this machine" if name == "squeue" else ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env={**os.environ, **WHOLE}
        )
    except FileNotFoundError as error:
        raise GnnragError(f"{name} is not installed here; --local runs the jobs on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise GnnragError(f"{name} did not answer within {TIMEOUT_S} s{hint}") from error
    if done.returncode:
        problem = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise GnnragError(f"{name} refused: {problem.splitlines()[-1]}{hint}\n  {' '.join(command)}")
    return done.stdout


@dataclass(frozen=True)
class Queued:
    """Our jobs in SLURM's queue."""

    tasks: Mapping[tuple[str, int], str]  # `running`, `waiting` or why it ended, by job and task
    live: Live


def read_queue(folders: Mapping[str, str], run: Run = call) -> Queued:
    """Return which of our jobs are in the queue, by the folder of each: two checkouts may submit jobs of one name."""
    lines = run(["squeue", "--noheader", "--me", "--states=all", "--format=%i|%T|%r|%k"]).splitlines()
    ours = {MARK + str(Path(folder).resolve()): name for name, folder in folders.items()}
    tasks: dict[tuple[str, int], str] = {}
    live: dict[str, dict[str, str]] = {}
    newest: dict[tuple[str, int], int] = {}
    for line in lines:
        id_, state, reason, comment = (*line.strip().split("|", 3), "", "", "")[:4]
        if not (name := ours.get(comment)):
            continue
        number, numbers = array_tasks(id_)
        state = state.split(",")[0]
        is_live = _is_live(state, reason)
        status = "running" if state in RUNNING else "waiting"
        if not is_live:
            status = f"cancelled: {reason}" if reason in NEVER else state.lower().replace("_", " ")
        for task in numbers:
            if newest.get((name, task), -1) <= number:
                newest[name, task] = number
                tasks[name, task] = status
            if is_live:
                live.setdefault(name, {})[f"{number}_{task}" if "_" in id_ else str(number)] = status
    return Queued({key: status for key, status in tasks.items() if status != "completed"}, live)


def _is_live(state: str, reason: str) -> bool:
    return state in RUNNING or (state in WAITING and reason not in NEVER)


def array_tasks(id_: str) -> tuple[int, list[int]]:
    """Return number and tasks of `12` (none: 0), `12_3`, `12_[1,4-6,10-18:4%2]`; raises GnnragError for all else."""
    part = r"\d+(?:-\d+(?::\d+)?)?"
    if not (found := re.fullmatch(rf"(\d+)(?:_(\d+)|_\[({part}(?:,{part})*)(?:%\d+)?\])?", id_)):
        raise GnnragError(f"squeue names a job {id_!r}; expected a form such as 12, 12_3 or 12_[1,4-6]")
    tasks: list[int] = []
    for text in (found[3] or found[2] or "0").split(","):
        first, _, rest = text.partition("-")
        last, _, step = rest.partition(":")
        tasks += range(int(first), int(last or first) + 1, int(step or 1))
    return int(found[1]), tasks


# ------------------------------------------------------------------------------------------------------ submission
class Slurm:
    """Submits jobs of the repository `home`; `run` runs a command."""

    def __init__(self, site: SiteConfig, home: Path, run: Run = call) -> None:
        self.site, self.home, self.run = site, home, run

    def submit(self, states: Sequence[State], live: Live) -> dict[str, str]:
        """Submit what is left of each job, after what it needs; returns SLURM's numbers of those submitted, by name."""
        submitted: dict[str, str] = {}
        for state in states:
            job, left = state.job, list(state.left)
            if state.status == "missing":
                continue
            before = waited_for(job, live, submitted)
            if any(name in submitted for name in job.needs):
                mine = live.get(job.name, {})
                lost = self._redirect(job, mine, before)
                live = {**live, job.name: {id_: status for id_, status in mine.items() if id_ not in lost}}
                left += [task for task in (array_tasks(id_)[1][0] for id_ in lost) if task not in left]
            if left:
                self._prepare(job)
                submitted[job.name] = self.run(self.command(job, left, before)).strip().split(";")[0]
        return submitted

    def _redirect(self, job: Job, live: Mapping[str, str], before: Sequence[str]) -> list[str]:
        """Let what waits wait for jobs submitted again; returns ids that have ended, mostly as what they needed failed.

        Raises GnnragError where SLURM refuses one that waits: submitted again, it would run twice.
        """
        lost = []
        for id_ in [id_ for id_, status in live.items() if status == "waiting"]:
            try:
                self.run(["scontrol", "update", f"JobId={id_}", f"Dependency={_dependency(job, before)}"])
            except GnnragError as error:
                state, reason = self._state(id_)
                if not _is_live(state, reason):
                    lost.append(id_)
                elif state == "PENDING":
                    problem = f"job {id_} still waits for what failed, give the same command again: {error}"
                    raise GnnragError(problem) from error
        return lost

    def _state(self, id_: str) -> tuple[str, str]:
        """Return a job's state and why it waits; empty where SLURM has forgotten it."""
        try:
            line = self.run(["squeue", "--noheader", f"--jobs={id_}", "--states=all", "--format=%T|%r"])
        except GnnragError:
            return "", ""
        state, _, reason = line.strip().partition("|")
        return state.split(",")[0], reason

    def command(self, job: Job, tasks: Sequence[int], before: Sequence[str]) -> list[str]:
        """Return the call of `sbatch` for some tasks of a job, after SLURM's jobs `before`."""
        folder = (self.home / job.folder).resolve()
        exported = f"GNNRAG_HOME={self.home},GNNRAG_JOB={folder},GNNRAG_SETUP={folder / 'setup.sh'}"
        command = [
            *("sbatch", "--parsable", "--requeue", "--open-mode=append", "--kill-on-invalid-dep=yes"),
            *(f"--job-name={job.alone or job.name}", f"--comment={MARK}{folder}", f"--chdir={self.home}"),
            *sbatch_flags(self.site, job.kind),
        ]
        if job.tasks:
            exported += f",GNNRAG_SHARDS={job.tasks}"
            command.append(f"--array={ranges(tasks)}%{self.site.max_running}")
        command.append(f"--output={folder / ('log-%a.txt' if job.tasks else 'log.txt')}")
        if waits := _dependency(job, before):
            command.append(f"--dependency={waits}")
        return [*command, f"--export=ALL,{exported}", str(self.home / "slurm" / f"{job.kind}.sbatch"), *job.arguments]

    def _prepare(self, job: Job) -> None:
        folder = Path(job.folder)
        job.write()
        write_atomic(folder / "setup.sh", setup_script(self.site, job.kind, self.home))
        for old in (*folder.glob("idle-*"), *folder.glob("progress-*")):
            remove(old, folder)  # a person who submits again gives it another chance


def waited_for(job: Job, live: Live, submitted: Mapping[str, str]) -> list[str]:
    """Return what a job waits for: what is not over of each job that it needs, and what was submitted now."""
    # Never for a whole old array: where a task of it has failed, nothing that waits for it would start.
    numbers: list[str] = []
    for name in job.needs:
        numbers += [*live.get(name, {}), *([submitted[name]] if name in submitted else [])]
    return numbers


def _dependency(job: Job, before: Sequence[str]) -> str:
    """Return the dependency of a job on SLURM's jobs and tasks, as `sbatch` takes it; empty where there is none."""
    waits = [f"{'afterany' if job.ends_anyway else 'afterok'}:{':'.join(before)}"] if before else []
    return ",".join([*waits, *["singleton"] * bool(job.alone)])  # singleton: of the jobs with this name one at a time


def ranges(tasks: Sequence[int]) -> str:
    """Return task numbers as `sbatch --array` takes them: 1, 2, 3, 7 as `1-3,7`."""
    runs: list[list[int]] = []
    for task in sorted(tasks):
        if runs and runs[-1][-1] == task - 1:
            runs[-1].append(task)
        else:
            runs.append([task])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
