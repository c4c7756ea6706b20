"""Training of the selector of queries, one fold or all: what `training/train_thoughts.py kind=selector` starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gnnrag.common.files import digest, write_atomic
from gnnrag.config import to_plain
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import DataError
from gnnrag.fit.card import Card
from gnnrag.fit.folds import Parts, draw, split_questions
from gnnrag.fit.gnn_sets import sizes
from gnnrag.fit.kinds import Kind, OnIndex
from gnnrag.fit.loop import Task, Trainer
from gnnrag.fit.selector_config import ThoughtSetConfig, TrainSelectorConfig, check_selector
from gnnrag.fit.selector_decisions import DecisionSet
from gnnrag.fit.selector_task import SelectorTask, ThoughtSet, brings
from gnnrag.fit.training import Plan, Report, Surroundings, gathered, score_rows
from gnnrag.gnn.features import encoder_record
from gnnrag.index.build import build_index
from gnnrag.index.index import Index
from gnnrag.roles.thought_features import FEATURES
from gnnrag.roles.thought_options import OptionMaker
from gnnrag.run.pipeline import data_source, index_path
from gnnrag.run.rundir import commit
from gnnrag.tuned.selector import Selector, save_selector
from gnnrag.types import Question

SUMMARY = (
    "A selector of next queries of gnnrag: it ranks candidate queries that rules build from the question, the passages "
    "read and what they lead to, and picks a fast and a slow one. Use it with `roles.thoughts=tuned "
    "roles.thoughts.path=THIS_FOLDER`."
)


@dataclass
class SelectorPlan(Plan):
    """Training of the selector on the questions outside of a fold; see `gnnrag.fit.training.Plan`.

    Args:
        config: settings.
        sets: the sets.
        fold: the one reported on.
        command: the command line, for the card.
    """

    config: TrainSelectorConfig
    sets: Mapping[str, ThoughtSet]
    fold: int | None
    command: str = ""

    def __post_init__(self) -> None:
        """Divide the questions."""
        self._parts = {name: _divide(one, self.config, self.fold) for name, one in self.sets.items()}
        self.fit, self.run = self.config.fit, self.config.run
        self.settings = {**to_plain(self.config), "fold": self.fold}
        self.inputs = {name: one.inputs for name, one in self.sets.items()}
        self.parts = {name: p.plain() for name, p in self._parts.items()}

    @property
    def indexes(self) -> Sequence[Index]:
        """See `Plan`."""
        return [one.index for one in self.sets.values()]

    def build(self) -> tuple[Task, nn.Module]:
        """See `Plan`."""
        task = SelectorTask(self.sets, self._parts, self.config, self.save)
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(self.config.seed)
            limit = self.config.decisions.candidates
            model = Selector(replace(self.config.selector, features=list(FEATURES), candidates=limit))
        rows = [d.options.beside(d.best[0]) for decisions in task.train.values() for d in decisions]
        model.scale(np.concatenate(rows))
        return task, model

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """See `Plan`. Each question is asked for two rounds, the second from where its first one led."""
        accelerator = trainer.accelerator
        places = [(name, id_) for name, parts in self._parts.items() for id_ in parts.report]
        mine = places[accelerator.process_index :: accelerator.num_processes]
        rows = [{"set": name, "id": id_, "metrics": self._asked(trainer.bare, name, id_)} for name, id_ in mine]
        return gathered(accelerator, [row for row in rows if row["metrics"]]), {}

    def _asked(self, model: nn.Module, name: str, id_: str) -> dict[str, float]:
        """Return recall@5 of a question's pool before, between and after the rounds; nothing without gold passages."""
        assert isinstance(model, Selector)
        one = self.sets[name]
        question, judge = one.questions[id_], one.decisions.judge
        if not judge.gold(question):
            return {}
        if not self.config.rollouts and id_ in one.decisions.decisions:
            return brings(model, one.decisions.decisions[id_])
        queries, found = [question.text], {}
        for round_ in (1, 2):
            pool = judge.pool(queries)
            found[f"recall@5_{round_ - 1}"] = judge.recall(question, pool)
            candidates, options = judge.options([judge.task(question, pool, queries[1:], round_)])[0]
            queries += [candidates[i].text for i in model.pick(options) if i is not None]
        return {"recall@5": judge.recall(question, judge.pool(queries)), **found}

    def save(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, Selector)
        first, config = next(iter(self.sets.values())), self.config
        base = {**encoder_record(first.index.embedder), "name": first.config.index.embedder.model}
        facts = {
            **record,
            "sets": {name: digest(one.inputs) for name, one in self.sets.items()},
            "commit": commit(),
            "seed": config.seed,
        }
        save_selector(folder, model, base, facts)
        write_atomic(folder / "README.md", self.card(model, base, record).render())

    def card(self, model: nn.Module, base: Mapping[str, Any], record: Mapping[str, Any]) -> Card:
        """Return the model card."""
        number = sum(p.numel() for p in model.parameters())
        known = {"encoder": base["name"], "parameters": number, "steps": record["step"], "commit": commit()}
        known |= {"made by": f"`{self.command}`"} if self.command else {}
        data = [{**row, "licence": self.sets[row["set"]].config.licence} for row in sizes(self._parts)]
        notes, licence = tuple(self.run.notes), self.run.licence
        return Card("Selector of queries", SUMMARY, known, tuple(data), score_rows(record), notes, licence)


def _learned(data: Dataset, config: ThoughtSetConfig) -> list[Question]:
    """Return the questions that may train or validate, the same whatever the fold."""
    if config.use == "report":
        return []
    kept = sorted((q.id for q in data.questions), key=lambda id_: draw(id_, "limit"))[: config.train_limit]
    return [q for q in data.questions if q.id in set(kept)]


def _divide(one: ThoughtSet, config: TrainSelectorConfig, fold: int | None) -> Parts:
    """Return which questions of a set train, validate and report."""
    ids = list(one.questions)
    if one.config.use == "report":
        return Parts((), (), tuple(ids))
    folds = replace(config.folds, report=None if one.config.use == "train" else fold)
    parts = split_questions(ids, folds, {id_: question.text for id_, question in one.questions.items()})
    train, validation = (
        tuple(i for i in ids_ if i in one.decisions.decisions) for ids_ in (parts.train, parts.validation)
    )
    return Parts(train, validation, parts.report)


def open_selector(config: TrainSelectorConfig, around: Surroundings, on_index: OnIndex) -> Callable[[int | None], Plan]:
    """Check the settings, open all sets and make their decisions; returns what makes the plan of a fold."""
    check_selector(config)
    sets = {name: _open_set(name, config, on_index) for name in config.sets}
    embedders = {one.index.embedder.identity for one in sets.values()}
    if len(embedders) > 1:
        raise DataError("training data", "the sets' indexes have different embedders; build them with the same one")
    return lambda fold: SelectorPlan(config, sets, fold, around.command)


def _open_set(name: str, config: TrainSelectorConfig, on_index: OnIndex) -> ThoughtSet:
    """Load a set, bring its index up to date, and make its decisions."""
    one = config.sets[name]
    d = one.data
    data = load_dataset(d.path, d.split, d.questions, d.limit)
    path = index_path(one.index, data.name)
    build_index(path, data.passages, one.index, OptionMaker.stages, data_source(d), on_index, keep_edits=True)
    index, done = Index(path, one.index), 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        on_index(f"{name}: decisions", done, len(learned))

    learned = _learned(data, one)
    decisions = DecisionSet(learned, index, config.decisions, Path(config.cache) / name, told)
    return ThoughtSet(name, one, data, index, decisions)


KIND = Kind(
    TrainSelectorConfig,
    open_selector,
    ("recall@5", "recall@5_0", "recall@5_1", "recall@5_2", "gain"),
    "thoughts-selector",
)
