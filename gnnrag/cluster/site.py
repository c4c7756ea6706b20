"""What a cluster wants to be told: one small file, `slurm/site.yaml`; `slurm/site.example.yaml` explains its keys."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from gnnrag.config import load_config
from gnnrag.errors import ConfigError
from gnnrag.index_config import one_of

_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}")
_MEMORY = re.compile(r"\d+[KMGT]?")
_NAME = re.compile(r"[A-Za-z_]\w*=.*", re.S)
_VARIABLE = re.compile(r"(\$[A-Za-z_]\w*)", re.A)


@dataclass
class SizeConfig:
    """What one kind of job asks for; what is null is not asked for, or comes from the top of the file."""

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


def load_site(path: str | Path | None) -> SiteConfig:
    """Read a site file; without one, everything is as the cluster has it by default.

    Raises:
        ConfigError: no such file, an unknown key (with the nearest valid one), or a value that SLURM would not take.
    """
    site = load_config(SiteConfig, path) if path else SiteConfig()
    where = f"{path}: " if path else ""
    for kind in (f.name for f in fields(SizesConfig)):
        size = size_of(site, kind)
        for name, pattern, example in (("time", _TIME, "4:00:00"), ("mem", _MEMORY, "32G")):
            value = getattr(size, name)
            if value is not None and not pattern.fullmatch(value):
                raise ConfigError(f"{where}jobs.{kind}.{name}={value!r}: write it as {example}, in quotes")
        if size.nodes < 1 or (size.nodes > 1 and kind != "train"):
            raise ConfigError(f"{where}jobs.{kind}.nodes={size.nodes}: at least 1, and more for a training alone")
        if min(value for value in (size.cpus, size.processes, 1) if value is not None) < 1:
            raise ConfigError(f"{where}jobs.{kind}: cpus and processes must be at least 1")
    for name, least in (("max_running", 1), ("signal_s", 1), ("max_restarts", 0)):
        if getattr(site, name) < least:
            raise ConfigError(f"{where}{name}={getattr(site, name)}: must be at least {least}")
    if wrong := [line for line in site.environment if not _NAME.fullmatch(line)]:
        raise ConfigError(f"{where}environment: {wrong[0]!r} is not of the form NAME=VALUE")
    if site.container.kind != "none" and not site.container.image:
        raise ConfigError(f"{where}container.kind={site.container.kind} needs container.image")
    return site


def size_of(site: SiteConfig, kind: str) -> SizeConfig:
    """Return what a kind of job asks for."""
    size: SizeConfig = getattr(site.jobs, kind)
    return size


def sbatch_flags(site: SiteConfig, kind: str) -> list[str]:
    """Return the flags of `sbatch` for a kind of job."""
    size = size_of(site, kind)
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
    """Return what a batch script sources first: modules, environment, and the words that start Python.

    It sets the arrays `python`, `vllm` and `srun_flags`, and how many processes a node of a training has.
    """
    size, box = size_of(site, kind), site.container
    lines = [f"module load {shlex.quote(name)}" for name in site.modules]
    for line in site.environment:
        name, _, value = line.partition("=")
        lines.append(f"export {name}={_with_variables(value)}")
    inside, flags = _container(site, home, bool(size.gres))
    own = site.python if Path(site.python).is_absolute() or "/" not in site.python else str(home / site.python)
    for name, words in (
        ("python", [*inside, box.python if box.kind != "none" else own]),
        ("vllm", [*inside, *shlex.split(site.vllm)]),
        ("srun_flags", flags),
    ):
        lines.append(f"{name}=({' '.join(map(shlex.quote, words))})")
    lines.append(f"export GNNRAG_LAUNCHER={site.launcher} GNNRAG_MAX_RESTARTS={site.max_restarts}")
    lines.append(f"export GNNRAG_PROCESSES={size.processes or ''}")
    return "\n".join([f"# written for jobs of the kind {kind}", *lines, ""])


def _container(site: SiteConfig, home: Path, has_gpu: bool) -> tuple[list[str], list[str]]:
    """Return the words in front of Python, and the flags of `srun`, that put a command into the container."""
    box = site.container
    image = box.image or ""
    pairs = [mount if ":" in mount else f"{mount}:{mount}" for mount in (str(home), *box.mounts)]
    words: dict[str, Callable[[], tuple[list[str], list[str]]]] = {
        "none": lambda: ([], []),
        "apptainer": lambda: (
            ["apptainer", "exec", *(["--nv"] if has_gpu else []), f"--pwd={home}", *_each("--bind", pairs), image],
            [],
        ),
        "pyxis": lambda: (
            [],
            [f"--container-image={image}", f"--container-mounts={','.join(pairs)}", f"--container-workdir={home}"],
        ),
    }
    return words[box.kind]()


def _with_variables(value: str) -> str:
    """Return a value for bash in which `$NAME` stands for a variable, and all else for itself."""
    parts = _VARIABLE.split(value)  # every second one is a variable
    return "".join(f'"{part}"' if i % 2 else shlex.quote(part) for i, part in enumerate(parts) if part) or "''"


def _each(flag: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]
