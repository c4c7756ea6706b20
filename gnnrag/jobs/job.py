"""What a job is: a command line of an existing script, what it needs, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnrag.errors import ArtefactError
from gnnrag.files import write_atomic, write_json

KINDS = ("index", "evaluate", "merge", "train", "report", "server")


@dataclass(frozen=True)
class Target:
    """What a job makes, from which is read whether it is done.

    Attributes:
        path: of an index: its folder; of a training: its run; of evaluations: the folder of all runs.
        stages: of an index.
        decisive: of an evaluation: the settings that decide its predictions (`gnnrag.rundir.decisive`); of an index and
            of a training: the settings that it is made with.
        data: of an evaluation: where its passages are, and where its questions, as configured.
        index: of an evaluation: the folder of its index; a run on another state of it is another run.
        name: of its run, where the settings give one.
    """

    path: str
    stages: tuple[str, ...] = ()
    decisive: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[str, str] = ("", "")
    index: str = ""
    name: str = ""


@dataclass(frozen=True)
class Job:
    """A node of the graph.

    Attributes:
        name: of its own, and fit for a folder.
        kind: one of `KINDS`: which batch script runs it, and which section of the site file says with what.
        label: what a person calls it.
        argv: script and arguments, run in the repository's root; `{shard}` stands for task and tasks, as in `3/8`.
        arguments: those of the batch script of its kind.
        folder: its config, its logs, and how each task ended.
        target: what it makes.
        needs: names of the jobs that have to end before.
        tasks: how many shards it is done in; 0 where it is not sharded.
        ends_anyway: it runs although a job that it needs has failed.
        alone: jobs with the same word here never run at the same time.
        missing: why it cannot run on this machine; empty where it can.
        config: settings that are written into its folder, as they were when it was submitted.
    """

    name: str
    kind: str
    label: str
    argv: tuple[str, ...]
    arguments: tuple[str, ...]
    folder: str
    target: Target
    needs: tuple[str, ...] = ()
    tasks: int = 0
    ends_anyway: bool = False
    alone: str = ""
    missing: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> range:
        """Numbers of its tasks, from 1; a single 0 where it is not sharded."""
        return range(1, self.tasks + 1) if self.tasks else range(1)

    def command(self, task: int) -> list[str]:
        """Return script and arguments of a task."""
        return [part.replace("{shard}", f"{task}/{self.tasks}") for part in self.argv]

    def write(self) -> None:
        """Write `config.yaml` and `job.json` into its folder; the latter is for `read_job`."""
        if self.config:
            text = yaml.safe_dump(dict(self.config), sort_keys=False, allow_unicode=True)
            write_atomic(Path(self.folder) / "config.yaml", text)
        write_json(Path(self.folder) / "job.json", asdict(self))


def read_job(folder: str | Path) -> Job:
    """Return the job that was written into a folder. Raises ArtefactError where there is none, or a damaged one."""
    path = Path(folder) / "job.json"
    try:
        raw = json.loads(path.read_text("utf-8"))
        return job_of(raw)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{path} is no job that submit.py wrote ({error})") from error


def job_of(raw: Mapping[str, Any]) -> Job:
    """Return the job that `asdict` made a mapping of."""
    t = raw["target"]
    target = Target(t["path"], tuple(t["stages"]), t["decisive"], tuple(t["data"]), t["index"], t["name"])
    lists = {name: tuple(raw[name]) for name in ("argv", "arguments", "needs")}
    return Job(**{**raw, **lists, "target": target})
