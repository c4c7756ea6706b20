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
    """Target of a job, from which is read whether it is done."""

    path: str  # of an index: its folder; of a training: its run; of evaluations: the folder of all runs
    stages: tuple[str, ...] = ()  # of an index
    # The settings that it is made with; of an evaluation those that decide its predictions.
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[str, ...] = ("", "")  # of an evaluation: where its passages and its questions are, as configured
    index: str = ""  # of an evaluation: the folder of its index; a run on another state of it is another run
    name: str = ""  # of its run, where the settings give one


@dataclass(frozen=True)
class Job:
    """A node of the graph."""

    name: str  # of its own, and fit for a folder
    kind: str  # one of `KINDS`: which batch script runs it, and which section of the site file says with what
    label: str  # what a person calls it
    argv: tuple[str, ...]  # script and arguments, run in the repository's root; `{shard}` stands for `3/8`
    arguments: tuple[str, ...]  # those of the batch script of its kind
    folder: str  # its config, its logs, and how each task ended
    target: Target
    needs: tuple[str, ...] = ()  # names of the jobs that have to end before
    tasks: int = 0  # how many shards it is done in; 0 where it is not sharded
    ends_anyway: bool = False  # it runs although a job that it needs has failed
    alone: str = ""  # jobs with the same word here never run at the same time
    missing: str = ""  # why it cannot run on this machine; empty where it can
    config: Mapping[str, Any] = field(default_factory=dict)  # written into its folder when it is submitted

    @property
    def numbers(self) -> range:
        """Numbers of its tasks, from 1; a single 0 where it is not sharded."""
        return range(1, self.tasks + 1) if self.tasks else range(1)

    def command(self, task: int) -> list[str]:
        """Return script and arguments of a task."""
        return [part.replace("{shard}", f"{task}/{self.tasks}") for part in self.argv]

    def write(self) -> None:
        """Write `config.yaml` and `job.json` into its folder. Raises ArtefactError where that is, or holds, a link."""
        folder = Path(self.folder)
        refuse_links(child(folder.parent, folder.name))
        if self.config:
            settings = yaml.safe_dump(to_plain(self.config), sort_keys=False, allow_unicode=True)
            write_atomic(folder / "config.yaml", settings)
        write_json(folder / "job.json", asdict(self))

    def file(self, what: str, task: int) -> Path:
        """Return a file of a task: `started`, `ended` (with its exit code) or `stop` (which tells it to stop)."""
        return Path(self.folder) / f"{what}-{task}"

    def log_file(self, task: int) -> Path:
        """Return the file that takes what a task says."""
        return Path(self.folder) / (f"log-{task}.txt" if self.tasks else "log.txt")

    def ended(self, task: int) -> tuple[int | None, str]:
        """Return exit code and remark of the last time that a task ran; None where it never ended."""
        try:
            with open_regular(self.file("ended", task)) as handle:
                code, _, remark = handle.read(_LINE).decode("utf-8").strip().partition(" ")
            return int(code), remark
        except (OSError, ValueError, ArtefactError):
            return None, ""

    def was_cut_off(self, task: int) -> bool:
        """Tell whether a task has started since it last ended: it was killed, or runs."""
        started, end = self.file("started", task), self.file("ended", task)
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
    """Return the job that was written into a folder; nothing in it is run. Raises ArtefactError if it is damaged."""
    path = Path(folder) / "job.json"
    with interpreting(path, "it is no job that submit.py wrote; submit it anew"):
        try:
            raw = read_json(path)
        except FileNotFoundError as error:
            raise ValueError("there is none") from error
        if raw["kind"] not in KINDS or type(raw["tasks"]) is not int or not 0 <= raw["tasks"] <= MOST_TASKS:
            raise ValueError(f"{raw['kind']!r:.40} of {raw['tasks']!r:.40} tasks")
        target = _checked(raw["target"], ("path", "index", "name"), ("stages", "data"), "settings")
        texts, lists = ("name", "kind", "label", "folder", "alone", "missing"), ("argv", "arguments", "needs")
        return Job(**{**_checked(raw, texts, lists, "config"), "target": Target(**target)})


def _checked(raw: Mapping[str, Any], texts: tuple[str, ...], lists: tuple[str, ...], settings: str) -> dict[str, Any]:
    """Return a record whose fields are what they are written as. Raises ValueError, KeyError or the like otherwise."""
    several = {name: tuple(map(text, raw[name])) for name in lists}
    return {**raw, **{name: text(raw[name]) for name in texts}, **several, settings: dict(raw[settings])}
