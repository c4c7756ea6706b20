"""What a job is: a command line of an existing script, what it needs, and what it leaves behind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnrag.common.files import child, read_json, refuse_links, write_atomic, write_json
from gnnrag.common.records import interpreting, text
from gnnrag.config import to_plain

KINDS = ("index", "evaluate", "merge", "train", "report", "server")
MOST_TASKS = 1_000_000


@dataclass(frozen=True)
class Target:
    """What a job makes, from which is read whether it is done.

    Attributes:
        path: of an index: its folder; of a training: its run; of evaluations: the folder of all runs.
        stages: of an index.
        decisive: of an evaluation: what decides its predictions (`gnnrag.run.rundir.decisive`); of an index and
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
        """Write `config.yaml` and `job.json` into its folder; the latter is for `read_job`.

        Raises:
            ArtefactError: the folder is a link, or holds some: what is written there now and later would be elsewhere.
        """
        folder = Path(self.folder)
        refuse_links(child(folder.parent, folder.name))
        if self.config:
            text_ = yaml.safe_dump(to_plain(self.config), sort_keys=False, allow_unicode=True)
            write_atomic(folder / "config.yaml", text_)
        write_json(folder / "job.json", asdict(self))


def named(text_: str) -> str:
    """Return a name of a job: a folder of a stranger's data may be called anything, and `sbatch` splits at commas."""
    return re.sub(r"[^\w.+@=-]+", "-", text_)


def read_job(folder: str | Path) -> Job:
    """Return the job that was written into a folder, to tell how far it has come: nothing in it is run.

    Raises:
        ArtefactError: there is none, or it is damaged or forged.
    """
    path = Path(folder) / "job.json"
    with interpreting(path, "it is no job that submit.py wrote; submit it anew"):
        try:
            return job_of(read_json(path))
        except FileNotFoundError as error:
            raise ValueError("there is none") from error


def job_of(raw: Mapping[str, Any]) -> Job:
    """Return the job that `asdict` made a mapping of. Raises ValueError, KeyError or the like where it is none."""
    t = raw["target"]
    stages, decisive, data = tuple(map(text, t["stages"])), dict(t["decisive"]), tuple(map(text, t["data"]))
    target = Target(text(t["path"]), stages, decisive, data, text(t["index"]), text(t["name"]))  # type: ignore[arg-type]
    lists = {name: tuple(map(text, raw[name])) for name in ("argv", "arguments", "needs")}
    texts = {name: text(raw[name]) for name in ("name", "kind", "label", "folder", "alone", "missing")}
    if raw["kind"] not in KINDS or type(raw["tasks"]) is not int or not 0 <= raw["tasks"] <= MOST_TASKS:
        raise ValueError(f"{raw['kind']!r:.40} of {raw['tasks']!r:.40} tasks")
    return Job(**{**raw, **lists, **texts, "target": target, "config": dict(raw["config"])})
