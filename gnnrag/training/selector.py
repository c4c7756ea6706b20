"""Training of the selector of queries: what a step learns, validation, and the plan of a fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.common.files import digest, write_atomic
from gnnrag.config import to_plain
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import DataError
from gnnrag.gnn.features import encoder_record
from gnnrag.gnn.sampling import Draws
from gnnrag.index.build import build_index
from gnnrag.index.index import Index
from gnnrag.roles.tuned.thoughts import FEATURES, OptionMaker, Selector, save_selector, stack
from gnnrag.run.pipeline import data_source, index_path
from gnnrag.run.rundir import commit
from gnnrag.training.base import Kind, OnIndex, Plan, Report, Surroundings, gathered, score_rows
from gnnrag.training.config import Parts, draw, split_questions
from gnnrag.training.gnn import sizes
from gnnrag.training.loop import Rows, Task, Trainer
from gnnrag.training.report import Card
from gnnrag.training.selector_data import Decision, DecisionSet, ThoughtSetConfig, TrainSelectorConfig, check_selector
from gnnrag.types import Question

_SECOND = 0.5  # probability that an item of a batch is the choice of a slow query, beside a fast one
_WIDE = 0.2  # temperature by which the fast one is then drawn: good ones mostly


@dataclass(frozen=True)
class ThoughtSet:
    """An opened set: its questions, its index, and the decisions of its questions."""

    name: str
    config: ThoughtSetConfig
    data: Dataset
    index: Index
    decisions: DecisionSet  # of the questions that train or validate in some fold

    @cached_property
    def questions(self) -> dict[str, Question]:
        """The questions by id."""
        return {question.id: question for question in self.data.questions}

    @property
    def inputs(self) -> dict[str, Any]:
        """What the decisions depend on."""
        stages = {name: self.index.fingerprint[name] for name in OptionMaker.stages}
        return {"data": self.data.fingerprints, "index": stages}


@dataclass(frozen=True, eq=False)
class Item:
    """A choice to learn from: a decision, the candidate that is picked already, if one is, and what is dropped."""

    decision: Decision
    picked: int | None
    keep: np.ndarray  # (2, hidden) float32, see `Selector.forward`


class SelectorTask:
    """Learns which candidates bring gold passages, and is judged by what its choices bring.

    Args:
        sets: the sets.
        parts: which of their questions train and validate.
        config: settings.
        save: writes a checkpoint.
    """

    def __init__(
        self,
        sets: Mapping[str, ThoughtSet],
        parts: Mapping[str, Parts],
        config: TrainSelectorConfig,
        save: Callable[[nn.Module, Path, Mapping[str, Any]], None],
    ) -> None:
        self.config, self.save, self.metric = config, save, config.metric
        self.train = {name: _of(one, parts[name].train) for name, one in sets.items()}
        self.validation = {name: {q: _of(one, [q]) for q in parts[name].validation} for name, one in sets.items()}
        shares = {name: one.config.share for name, one in sets.items()}
        counts = {name: len(rows) for name, rows in self.train.items()}
        self.draws = Draws(counts, config.fit.batch_size, config.fit.steps, config.seed, shares)

    def batch(self, step: int) -> list[Item]:
        """Return the items of a step."""
        rng = np.random.default_rng([self.config.seed, step])
        size, dropout = self.config.selector.hidden, self.config.selector.dropout
        items = []
        for name, place in self.draws[step]:
            decision, is_second = self.train[name][place], rng.random() < _SECOND
            number, keep = rng.random(), rng.random((2, size)) >= dropout
            picked = _drawn(decision.gains(None)[:-1], number) if is_second else None
            items.append(Item(decision, picked, keep.astype(np.float32) / (1 - dropout)))
        return items

    def loss(self, model: nn.Module, items: Sequence[Item], device: torch.device) -> Tensor:
        """Return, for each item, the cross-entropy with the gains' softmax, less the weighted expected gain."""
        features, mask = stack([item.decision.options.beside(item.picked) for item in items])
        gains = torch.zeros(len(items), mask.shape[1] + 1)
        for row, item in zip(gains, items, strict=True):
            found = torch.from_numpy(item.decision.gains(item.picked))
            row[: len(found) - 1], row[-1] = found[:-1], found[-1]
        mask = mask.to(device)
        known = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        gains = gains.to(device)
        target = (gains / self.config.temperature).masked_fill(~known, -torch.inf).softmax(dim=1)
        keep = torch.from_numpy(np.stack([item.keep for item in items])).to(device)
        chances = model(features.to(device), mask, keep).log_softmax(dim=1).masked_fill(~known, 0.0)
        expected = (chances.exp() * gains * known).sum(dim=1)
        return -(target * chances).sum(dim=1) - self.config.expected * expected

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Return what the choices at the validation questions' decisions bring."""
        assert isinstance(model, Selector)
        rows = [(f"{name}/{id_}", ds) for name, of in self.validation.items() for id_, ds in of.items()]
        return {id_: brings(model, decisions) for id_, decisions in rows[part] if decisions}


def _of(one: ThoughtSet, ids: Sequence[str]) -> list[Decision]:
    """Return the decisions of questions that have gold passages."""
    return [d for id_ in ids if one.questions[id_].gold for d in one.decisions.decisions[id_] if len(d.options)]


def _drawn(gains: np.ndarray, number: float) -> int:
    """Return the candidate that a number in [0, 1) draws: good ones mostly."""
    weights = np.exp((gains - gains.max()) / _WIDE).cumsum()
    return int(np.searchsorted(weights / weights[-1], number, side="right").clip(max=len(gains) - 1))


def brings(model: Selector, decisions: Sequence[Decision]) -> dict[str, float]:
    """Return gain and recall@5 of a question: those of round 1, and the means over the trails of round 2."""
    found: dict[int, list[tuple[float, float, float]]] = {}
    for decision in decisions:
        fast, slow = (-1 if i is None else i for i in model.pick(decision.options))
        base = decision.worth[-1, -1]
        best = decision.worth[tuple(-1 if i is None else i for i in decision.best)] - base
        row = (float(decision.worth[fast, slow] - base), float(decision.recall[fast, slow]), float(best))
        found.setdefault(decision.round, []).append(row)
    means = {round_: np.mean(rows, axis=0).tolist() for round_, rows in found.items()}
    gain, ceiling = (sum(row[i] for row in means.values()) for i in (0, 2))
    return {
        "gain": gain,
        "ceiling": ceiling,
        "recall@5_0": float(decisions[0].recall[-1, -1]),
        **{f"recall@5_{round_}": row[1] for round_, row in sorted(means.items())},
    }


SUMMARY = (
    "A selector of next queries of gnnrag: it ranks candidate queries that rules build from the question, the passages "
    "read and what they lead to, and picks a fast and a slow one. Use it with `roles.thoughts=tuned "
    "roles.thoughts.path=THIS_FOLDER`."
)


@dataclass
class SelectorPlan(Plan):
    """Training of the selector on the questions outside of a fold; see `gnnrag.training.base.Plan`.

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
