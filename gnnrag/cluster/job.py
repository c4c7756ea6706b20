"""A job: a command line of a script, what it needs and makes, and the files of its folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnrag.common.files import child, open_regular, read_json, refuse_links, write_atomic, write_json
from gnnrag.common.records import interpreting, text
from gnnrag.config import to_plain
from gnnrag.errors import ArtefactError

KINDS = ("index", "evaluate", "merge", "train", "report", "server")
MOST_TASKS = 1_000_000
_LINE, _TAIL = 1000, 8192  # bytes that are read of how a task ended, and of the end of its log


@dataclass(frozen=True)
class Target:
    """What a job makes, from which is read whether it is done.

    Attributes:
        path: of an index: its folder; of a training: its run; of evaluations: the folder of all runs.
        stages: of an index.
        decisive: of an evaluation: the settings that decide its predictions (`gnnrag.run.rundir.decisive`); of an index
            and of a training: the settings that it is made with.
        data: of an evaluation: where its passages are, and where its questions, as configured.
        index: of an evaluation: the folder of its index; a run on another state of it is another run.
        name: of its run, where the settings give one.
    """

    path: str
    stages: tuple[str, ...] = ()
    decisive: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[str, ...] = ("", "")
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
            settings = yaml.safe_dump(to_plain(self.config), sort_keys=False, allow_unicode=True)
            write_atomic(folder / "config.yaml", settings)
        write_json(folder / "job.json", asdict(self))

    def started_file(self, task: int) -> Path:
        """Return the file that is written when a task starts."""
        return Path(self.folder) / f"started-{task}"

    def ended_file(self, task: int) -> Path:
        """Return the file in which a task's exit code is written at its end."""
        return Path(self.folder) / f"ended-{task}"

    def log_file(self, task: int) -> Path:
        """Return the file that takes what a task says."""
        return Path(self.folder) / (f"log-{task}.txt" if self.tasks else "log.txt")

    def ended(self, task: int) -> tuple[int | None, str]:
        """Return exit code and remark of the last time that a task ran; None where it never ended."""
        try:
            with open_regular(self.ended_file(task)) as handle:
                code, _, remark = handle.read(_LINE).decode("utf-8").strip().partition(" ")
            return int(code), remark
        except (OSError, ValueError, ArtefactError):
            return None, ""

    def was_cut_off(self, task: int) -> bool:
        """Tell whether a task has started since it last ended: it was killed, or runs."""
        started, end = self.started_file(task), self.ended_file(task)
        return started.exists() and (not end.exists() or end.stat().st_mtime < started.stat().st_mtime)

    def log_tail(self, task: int, lines: int = 8) -> list[str]:
        """Return the last lines of a task's log."""
        try:
            with open_regular(self.log_file(task)) as handle:
                handle.seek(max(0, handle.seek(0, 2) - _TAIL))
                log = handle.read().decode("utf-8", "replace")
        except (OSError, ArtefactError):
            return []
        # A progress bar writes over itself: what it showed last is left.
        return [line.rpartition("\r")[2].rstrip() for line in log.strip().splitlines()][-lines:]


def job_name(words: str) -> str:
    """Return a name of a job: a folder of a stranger's data may be called anything, and `sbatch` splits at commas."""
    return re.sub(r"[^\w.+@=-]+", "-", words)


def read_job(folder: str | Path) -> Job:
    """Return the job that was written into a folder, to tell how far it has come: nothing in it is run.

    Raises:
        ArtefactError: there is none, or it is damaged or forged.
    """
    path = Path(folder) / "job.json"
    with interpreting(path, "it is no job that submit.py wrote; submit it anew"):
        try:
            raw = read_json(path)
        except FileNotFoundError as error:
            raise ValueError("there is none") from error
        if raw["kind"] not in KINDS or type(raw["tasks"]) is not int or not 0 <= raw["tasks"] <= MOST_TASKS:
            raise ValueError(f"{raw['kind']!r:.40} of {raw['tasks']!r:.40} tasks")
        target = _checked(raw["target"], ("path", "index", "name"), ("stages", "data"), "decisive")
        texts, lists = ("name", "kind", "label", "folder", "alone", "missing"), ("argv", "arguments", "needs")
        return Job(**{**_checked(raw, texts, lists, "config"), "target": Target(**target)})


def _checked(raw: Mapping[str, Any], texts: tuple[str, ...], lists: tuple[str, ...], settings: str) -> dict[str, Any]:
    """Return a record whose fields are what they are written as. Raises ValueError, KeyError or the like otherwise."""
    several = {name: tuple(map(text, raw[name])) for name in lists}
    return {**raw, **{name: text(raw[name]) for name in texts}, **several, settings: dict(raw[settings])}
