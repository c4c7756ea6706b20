"""The graph of jobs for what is asked for: indexes first, each once, then evaluations, then what reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnnrag.cluster.grid import LIBRARY, Evaluation, Point, Training, cached, expand, is_table, is_training, trainings
from gnnrag.cluster.job import Job, Target, job_name
from gnnrag.common.files import digest
from gnnrag.config import to_plain
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.index.settings import only_recorded
from gnnrag.index_config import SECTIONS
from gnnrag.reports.cross import split_trained

PAPERS = LIBRARY.parent / "configs" / "papers"  # two words name each of its tables: paper and table
Words = tuple[str, ...]
REPORTS = "gnnrag-reports"  # they open runs that they share, one after the other


@dataclass(frozen=True)
class Plan:
    """A graph of jobs."""

    jobs: Mapping[str, Job]  # by name, in an order in which they can run
    notes: tuple[str, ...] = ()  # what a person should know


def make_plan(
    arguments: Sequence[str], folder: Path, shards: int = 1, on_note: Callable[[str], None] = lambda note: None
) -> Plan:
    """Return the jobs of a command line: config files, then `key=value`, `key=a,b,c`, or `verifier=RUN` for tables.

    `shards` divide the questions of a run (1: whole). Raises ConfigError: bad settings, or an index built in two ways.
    """
    if shards < 1:
        raise ConfigError(f"--shards {shards}: must be at least 1")
    sources = [Path(a) for a in arguments if "=" not in a]
    trained, settings = split_trained([a for a in arguments if "=" in a])
    if not sources:
        raise GnnragError("give a config, such as configs/evaluate/sample.yaml, or tables, configs/papers/bdtr/*.yaml")
    if len(set(sources)) < len(sources):
        raise ConfigError("a config file stands there twice")
    points = expand(settings)
    fitted = [source for source in sources if is_training(source)]
    asked = [source for source in sources if source not in fitted]
    if trained and (others := [str(source) for source in asked if not is_table(source)]):
        raise ConfigError(f"{', '.join(trained)}=RUN is for tables of papers, and {others[0]} is none")
    graph = _Graph(folder, shards if shards > 1 else 0)
    for source, required in zip(asked, cached(asked, points, on_note), strict=True):
        if is_table(source):
            graph.add_tables(source, required, points, [f"{name}={run}" for name, run in trained.items()])
        else:
            for evaluation in required:
                graph.add_evaluation(evaluation)
    for source in fitted:
        for training in trainings(source, points):
            graph.add_training(training)
    return graph.plan()


@dataclass
class _Graph:
    """Collects jobs below a folder, runs in so many shards (0: whole); `plan` puts the indexes in front."""

    folder: Path
    shards: int
    jobs: dict[str, Job] = field(default_factory=dict)
    indexes: dict[str, list[Evaluation]] = field(default_factory=dict)  # folder -> those who read it
    readers: dict[str, list[str]] = field(default_factory=dict)  # job that answers questions -> folders of its indexes
    last: dict[str, str] = field(default_factory=dict)  # key of an evaluation -> its last job
    named: dict[tuple[str, str], Evaluation] = field(default_factory=dict)  # folder and given name of a run -> whose

    def add_evaluation(self, evaluation: Evaluation) -> str:
        """Add what an evaluation needs; returns the name of its last job, empty where it cannot run."""
        if reason := evaluation.unavailable:
            name = f"missing-{digest(evaluation.label)[:8]}"
            self._add(name, "evaluate", evaluation.label, (), (), Target(""), missing=reason)
            return ""
        if evaluation.key in self.last:
            return self.last[evaluation.key]
        target, label = evaluation.target, evaluation.label
        first = self.named.setdefault((evaluation.root, target.name), evaluation)
        if target.name and first.key != evaluation.key:
            raise ConfigError(
                f"run.name={target.name} is given to several runs ({first.label}; {label}): "
                "leave run.name out, each then has a name of its own"
            )
        name = last = job_name(f"evaluate-{evaluation.name}")
        config = str(self.folder / name / "config.yaml")
        argv = ("inference/evaluate.py", config)
        shard = ("shard={shard}",) if self.shards else ()
        more = {"tasks": self.shards, "config": evaluation.config}
        self._add(name, "evaluate", label, (*argv, *shard), (config,), target, **more)
        self._read_indexes(name, [evaluation])
        if self.shards:
            last = job_name(f"merge-{evaluation.name}")
            self._add(last, "merge", label, (*argv, "shard=merge"), (config,), target, needs=(name,))
        self.last[evaluation.key] = last
        return last

    def add_tables(
        self, source: Path, rows: Sequence[Evaluation], points: Sequence[Point], trained: Sequence[str]
    ) -> None:
        """Add a table at each point of the grid, from the rows of all of them."""
        share = len(rows) // len(points)
        for number, point in enumerate(points):
            self.add_table(source, rows[number * share : (number + 1) * share], point, trained)

    def add_table(self, source: Path, rows: Sequence[Evaluation], point: Point, trained: Sequence[str]) -> None:
        """Add the rows of a table and what prints them; with trained parts its script runs the rows itself."""
        away = str(source.resolve()) if source.resolve().parent.parent != PAPERS else ""
        parts = [*point.overrides, *trained, away]  # `away`: another table elsewhere may have the same two names
        suffix = f"-{digest(parts)[:8]}" if any(parts) else ""
        name = job_name(f"report-{source.parent.name}-{source.stem}{suffix}")
        label = " / ".join(filter(None, (f"{source.parent.name}/{source.stem}", "table", point.label)))
        missing = [reason for row in rows if (reason := row.unavailable)]
        here = [row for row in rows if not row.unavailable]
        arguments = (str(source), *point.overrides, *trained)
        needs: list[str] = []
        if trained:
            self._read_indexes(name, here)
        else:  # its rows have jobs of their own: one that failed is not done again in the limits of this
            needs = [need for row in rows if (need := self.add_evaluation(row))]
            arguments += ("--finished",)
        more = {"ends_anyway": True, "alone": REPORTS, "missing": "" if here else missing[0]}
        argv = ("inference/reproduce.py", *arguments)
        self._add(name, "report", label, argv, arguments, Target(""), needs=tuple(dict.fromkeys(needs)), **more)

    def add_training(self, training: Training) -> None:
        """Add a training, which builds its own indexes."""
        name = job_name(f"train-{Path(training.run).name}")
        if name in self.jobs:
            raise ConfigError(f"two trainings have the run {training.run}; give one of them another run.name")
        argv = (training.script, *training.arguments)
        self._add(name, "train", training.label, argv, argv, Target(training.run, settings=training.settings))

    def plan(self) -> Plan:
        asked, self.jobs = self.jobs, {}
        builds = {folder: self._add_index(folder, readers) for folder, readers in self.indexes.items()}
        for name, folders in self.readers.items():
            needs = (*(builds[folder] for folder in folders), *asked[name].needs)
            asked[name] = replace(asked[name], needs=needs)
        missing = sum(job.missing != "" for job in asked.values())
        notes = (f"{missing} of {len(asked)} jobs cannot run on this machine",) if missing else ()
        return Plan({**self.jobs, **asked}, notes)

    def _add_index(self, folder: str, readers: Sequence[Evaluation]) -> str:
        """Add what builds an index with the stages of all who read it; returns its name."""
        _refuse_two_ways(folder, readers)
        stages = tuple(dict.fromkeys(stage for one in readers for stage in one.stages))
        settings = only_recorded(to_plain(readers[0].index))
        base = job_name(f"index-{Path(folder).name}")
        name = f"{base}-{digest([folder, sorted(stages), settings])[:8]}"
        arguments = (str(self.folder / name / "config.yaml"), f"index.stages={','.join(stages)}")
        argv, label = ("inference/index.py", "build", *arguments), f"{folder}: {len(stages)} stages"
        more = {"alone": f"gnnrag-{base}", "config": readers[0].config}
        self._add(name, "index", label, argv, arguments, Target(folder, stages, settings), **more)
        return name

    def _read_indexes(self, name: str, evaluations: Sequence[Evaluation]) -> None:
        for evaluation in evaluations:
            self.indexes.setdefault(evaluation.index_folder, []).append(evaluation)
        self.readers[name] = list(dict.fromkeys(evaluation.index_folder for evaluation in evaluations))

    def _add(
        self, name: str, kind: str, label: str, argv: Words, arguments: Words, target: Target, **more: Any
    ) -> None:
        if not more.get("missing") and name in self.jobs:
            raise ConfigError(f"two jobs are called {name}: {self.jobs[name].label} and {label}")
        self.jobs[name] = Job(name, kind, label, argv, arguments, str(self.folder / name), target, **more)


def _refuse_two_ways(folder: str, readers: Sequence[Evaluation]) -> None:
    """Raise ConfigError where runs would build one folder with different settings, each undoing the other's."""
    ways = {digest([one.index[name] for name in SECTIONS]): one for one in readers}
    if len(ways) > 1:
        first, second = list(ways.values())[:2]
        changed = [k for k in SECTIONS if first.index[k] != second.index[k]]
        raise ConfigError(
            f"{first.label} and {second.label} build the index {folder} with another index.{changed[0]}; "
            "submit them one after the other, each with an index.root of its own"
        )
