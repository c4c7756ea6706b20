"""From what is asked for to a graph of jobs: indexes first, each once, then evaluations, then what reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnnrag.cluster.grid import Point, expand
from gnnrag.cluster.job import Job, Target, named
from gnnrag.cluster.training import Training, trainings
from gnnrag.cluster.wanted import (
    LIBRARY,
    Evaluation,
    cached,
    index_folder,
    is_table,
    is_training,
    target_of,
    unavailable,
)
from gnnrag.common.files import digest
from gnnrag.config import to_plain
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.index.settings import only_recorded
from gnnrag.index_config import SECTIONS
from gnnrag.reports.cross import split_trained

PAPERS = LIBRARY.parent / "configs" / "papers"  # two words name each of its tables: paper and table
REPORTS = "gnnrag-reports"  # they open runs that they share, one after the other


@dataclass(frozen=True)
class Plan:
    """A graph of jobs in an order in which they can run.

    Attributes:
        jobs: by name.
        notes: what a person should know.
    """

    jobs: Mapping[str, Job]
    notes: tuple[str, ...] = ()


def make_plan(
    arguments: Sequence[str], folder: Path, shards: int = 1, on_note: Callable[[str], None] = lambda note: None
) -> Plan:
    """Return the jobs that a command line asks for.

    Args:
        arguments: config files, then `key=value` or `key=a,b,c`; trained parts of tables, `verifier=RUN`.
        folder: where jobs have their folders.
        shards: in how many parts the questions of a run are divided; 1 does not divide them.
        on_note: told what takes long.

    Raises:
        ConfigError: a file or a setting is wrong, or two runs would build one index in two ways.
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
    if trained and (others := [str(s) for s in asked if not is_table(s)]):
        raise ConfigError(f"{', '.join(trained)}=RUN is for tables of papers, and {others[0]} is none")
    wanted = dict(zip(asked, cached(asked, points, on_note), strict=True))
    builder = _Builder(folder, shards)
    for source, found in wanted.items():
        if is_table(source):
            builder.table(source, found, points, [f"{name}={run}" for name, run in trained.items()])
        else:
            for one in found:
                builder.evaluation(one)
    for source in fitted:
        for training in trainings(source, points):
            builder.training(training)
    return builder.finish()


class _Builder:
    """Collects jobs; `finish` puts the indexes in front."""

    def __init__(self, folder: Path, shards: int) -> None:
        self.folder, self.shards = folder, shards
        self.jobs: dict[str, Job] = {}
        self.indexes: dict[str, list[Evaluation]] = {}
        self.readers: dict[str, str] = {}  # job that answers questions -> folder of its index
        self.last: dict[str, str] = {}  # key of an evaluation -> its last job
        self.named: dict[tuple[str, str], Evaluation] = {}  # folder and name of a run that is given one -> whose it is

    def evaluation(self, one: Evaluation) -> str:
        """Add what an evaluation needs; returns the name of its last job, empty where it cannot run."""
        if reason := unavailable(one):
            name = f"missing-{digest(one.label)[:8]}"
            self._add(Job(name, "evaluate", one.label, (), (), self._own(name), Target(""), missing=reason))
            return ""
        if one.key in self.last:
            return self.last[one.key]
        target = target_of(one)
        if target.name and (first := self.named.setdefault((one.root, target.name), one)).key != one.key:
            raise ConfigError(
                f"run.name={target.name} is given to several runs ({first.label}; {one.label}): "
                "leave run.name out, each then has a name of its own"
            )
        self.indexes.setdefault(target.index, []).append(one)
        name = named(f"evaluate-{one.name}")
        config = f"{self._own(name)}/config.yaml"
        script = "inference/evaluate.py"
        shard = ("shard={shard}",) if self.shards > 1 else ()
        self.readers[name] = target.index
        count = self.shards if self.shards > 1 else 0
        self._add(Job(name, "evaluate", one.label, (script, config, *shard), (config,), self._own(name), target,
                      tasks=count, config=one.config))  # fmt: skip
        if count:
            merge = named(f"merge-{one.name}")
            self._add(Job(merge, "merge", one.label, (script, config, "shard=merge"), (config,), self._own(merge),
                          target, (name,)))  # fmt: skip
            name = merge
        self.last[one.key] = name
        return name

    def table(self, source: Path, rows: Sequence[Evaluation], points: Sequence[Point], trained: Sequence[str]) -> None:
        """Add the rows of a table and what prints them; with trained parts its script runs the rows itself."""
        for number, point in enumerate(points):
            share = len(rows) // len(points)
            mine = rows[number * share : (number + 1) * share]
            name = f"report-{source.parent.name}-{source.stem}"
            away = str(source.resolve()) if source.resolve().parent.parent != PAPERS else ""
            told = [*point.overrides, *trained, away]  # `away`: another table elsewhere may have the same two names
            name = named(name + (f"-{digest(told)[:8]}" if any(told) else ""))
            label = " / ".join(filter(None, (f"{source.parent.name}/{source.stem}", "table", point.label)))
            arguments = (str(source), *point.overrides, *trained)
            missing = [reason for one in mine if (reason := unavailable(one))]
            here = [one for one in mine if not unavailable(one)]
            needs: Iterable[str] = [self.evaluation(one) for one in (mine if not trained else [])]
            if trained and here:
                for one in here:
                    self.indexes.setdefault(index_folder(one), []).append(one)
                self.readers[name] = "\n".join(dict.fromkeys(index_folder(one) for one in here))
            if not trained:  # its rows have jobs of their own: one that failed is not done again in the limits of this
                arguments += ("--finished",)
            self._add(Job(
                name, "report", label, ("inference/reproduce.py", *arguments), arguments, self._own(name), Target(""),
                tuple(dict.fromkeys(need for need in needs if need)), 0, True, REPORTS, "" if here else missing[0],
            ))  # fmt: skip

    def training(self, one: Training) -> None:
        """Add a training, which builds its own indexes."""
        name = named(f"train-{Path(one.run).name}")
        if name in self.jobs:
            raise ConfigError(f"two trainings have the run {one.run}; give one of them another run.name")
        argv, target = (one.script, *one.arguments), Target(one.run, decisive=one.settings)
        self._add(Job(name, "train", one.label, argv, argv, self._own(name), target))

    def finish(self) -> Plan:
        """Return the plan."""
        names = {}
        first: dict[str, Job] = {}
        for folder, readers in self.indexes.items():
            stages = tuple(dict.fromkeys(stage for one in readers for stage in one.stages))
            _refuse_two_ways(folder, readers)
            settings = only_recorded(to_plain(readers[0].index))
            name = named(f"index-{Path(folder).name}-{digest([folder, sorted(stages), settings])[:8]}")
            own = self._own(name)
            chosen = (f"{own}/config.yaml", f"index.stages={','.join(stages)}")
            argv = ("inference/index.py", "build", *chosen)
            label = f"{folder}: {len(stages)} stages"
            target = Target(folder, stages, settings)
            alone = f"gnnrag-{name.rpartition('-')[0]}"
            first[name] = Job(name, "index", label, argv, chosen, own, target, alone=alone, config=readers[0].config)
            names[folder] = name
        for name, folders in self.readers.items():
            job = self.jobs[name]
            needs = tuple(names[folder] for folder in folders.split("\n"))
            self.jobs[name] = replace(job, needs=(*needs, *job.needs))
        shown = sum(job.missing != "" for job in self.jobs.values())
        notes = (f"{shown} of {len(self.jobs)} jobs cannot run on this machine",) if shown else ()
        return Plan({**first, **self.jobs}, notes)

    def _own(self, name: str) -> str:
        return str(self.folder / name)

    def _add(self, job: Job) -> None:
        if not job.missing and job.name in self.jobs:
            raise ConfigError(f"two jobs are called {job.name}: {self.jobs[job.name].label} and {job.label}")
        self.jobs[job.name] = job


def _refuse_two_ways(folder: str, readers: Sequence[Evaluation]) -> None:
    """Raise ConfigError where runs would build one folder with different settings, each undoing the other's."""
    settings = {digest([one.index[name] for name in SECTIONS]): one for one in readers}
    if len(settings) > 1:
        first, second = list(settings.values())[:2]
        changed = [k for k in SECTIONS if first.index[k] != second.index[k]]
        raise ConfigError(
            f"{first.label} and {second.label} build the index {folder} with another index.{changed[0]}; "
            "submit them one after the other, each with an index.root of its own"
        )
