"""Training of the selector of queries: what a step learns, validation, report, checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.common.files import digest
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import DataError
from gnnrag.gnn.features import encoder_record
from gnnrag.index.build import build_index
from gnnrag.index.index import Index
from gnnrag.roles.tuned.thoughts import FEATURES, OptionMaker, Selector, save_selector, stack
from gnnrag.run.pipeline import data_source, index_path
from gnnrag.run.rundir import commit
from gnnrag.training.base import OnIndex, RunContext, Training
from gnnrag.training.config import Parts, divide, draw
from gnnrag.training.loop import Rows, Trainer
from gnnrag.training.report import Card, Report
from gnnrag.training.selector_data import Decision, DecisionSet, ThoughtSetConfig, TrainSelectorConfig, check_selector
from gnnrag.types import Question

SUMMARY = (
    "A selector of next queries of gnnrag: it ranks candidate queries that rules build from the question, the passages "
    "read and what they lead to, and picks a fast and a slow one. Use it with `roles.thoughts=tuned "
    "roles.thoughts.path=THIS_FOLDER`."
)
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
        """Fingerprints that the decisions depend on."""
        stages = {name: self.index.fingerprint[name] for name in OptionMaker.stages}
        return {"data": self.data.fingerprints, "index": stages}


@dataclass(frozen=True, eq=False)
class Item:
    """A choice to learn from: a decision, the candidate that is picked already, if one is, and what is dropped."""

    decision: Decision
    picked: int | None
    keep: np.ndarray  # (2, hidden) float32, see `Selector.forward`


class SelectorTraining(Training):
    """Training of the selector on which candidates bring gold passages, judged by its choices; the loop's task."""

    schema, prefix = TrainSelectorConfig, "thoughts-selector"
    columns = ("recall@5", "recall@5_0", "recall@5_1", "recall@5_2", "gain")
    config: TrainSelectorConfig

    def __init__(self, config: TrainSelectorConfig, data: Any, fold: int | None, context: RunContext) -> None:
        self.sets: Mapping[str, ThoughtSet] = data
        super().__init__(config, data, fold, context)
        self.metric = config.metric
        self.inputs = {name: one.inputs for name, one in self.sets.items()}

    @classmethod
    def open(cls, config: TrainSelectorConfig, context: RunContext, on_index: OnIndex) -> Any:
        """Open all sets, and make their decisions."""
        check_selector(config)
        sets = {name: _open_set(name, config, on_index) for name in config.sets}
        if len({one.index.embedder.identity for one in sets.values()}) > 1:
            problem = "the sets' indexes have different embedders; build them with the same one"
            raise DataError("training data", problem)
        return sets

    def divide(self) -> dict[str, Parts]:
        """Let only those questions train and validate that have decisions."""
        parts = {}
        for name, one in self.sets.items():
            texts = {id_: question.text for id_, question in one.questions.items()}
            part = divide(texts, self.config.folds, self.fold, one.config.use)
            known = one.decisions.decisions
            train, validation = (tuple(i for i in ids if i in known) for ids in (part.train, part.validation))
            parts[name] = Parts(train, validation, part.report)
        return parts

    def build(self) -> tuple[SelectorTraining, Selector]:
        """Return a new network, whose weights follow from the seed."""
        self.train = {name: _of(one, self.parts[name].train) for name, one in self.sets.items()}
        self.places = self.draws(self.train)
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(self.config.seed)
            limit = self.config.decisions.candidates
            model = Selector(replace(self.config.selector, features=list(FEATURES), candidates=limit))
        rows = [d.options.beside(d.best[0]) for decisions in self.train.values() for d in decisions]
        model.scale(np.concatenate(rows))
        return self, model

    def batch(self, step: int) -> list[Item]:
        """Return the items of a step."""
        rng = np.random.default_rng([self.config.seed, step])
        size, dropout = self.config.selector.hidden, self.config.selector.dropout
        items = []
        for name, place in self.places[step]:
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
        places = [(name, one, id_) for name, one in self.sets.items() for id_ in self.parts[name].validation]
        rows = [(f"{name}/{id_}", _of(one, [id_])) for name, one, id_ in places[part]]
        return {id_: brings(model, decisions) for id_, decisions in rows if decisions}

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """Ask each question for two rounds, the second from where its first one led."""
        assert isinstance(trainer.bare, Selector)
        places = [(name, id_) for name, parts in self.parts.items() for id_ in parts.report][self.context.share]
        rows = [{"set": name, "id": id_, "metrics": self._rounds(trainer.bare, name, id_)} for name, id_ in places]
        return self.context.gather([row for row in rows if row["metrics"]]), {}

    def _rounds(self, model: Selector, name: str, id_: str) -> dict[str, float]:
        """Return recall@5 of a question's pool before, between and after the rounds; nothing without gold passages."""
        one = self.sets[name]
        question, maker = one.questions[id_], one.decisions.maker
        if not maker.gold(question):
            return {}
        if not self.config.rollouts and id_ in one.decisions.decisions:
            return brings(model, one.decisions.decisions[id_])
        queries, recalls = [question.text], {}
        for round_ in (1, 2):
            pool = maker.pool(queries)
            recalls[f"recall@5_{round_ - 1}"] = maker.recall(question, pool)
            candidates, options = maker.options([maker.task(question, pool, queries[1:], round_)])[0]
            queries += [candidates[i].text for i in model.pick(options) if i is not None]
        return {"recall@5": maker.recall(question, maker.pool(queries)), **recalls}

    def save(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, Selector)
        first = next(iter(self.sets.values()))
        base = {**encoder_record(first.index.embedder), "name": first.config.index.embedder.model}
        digests = {name: digest(one.inputs) for name, one in self.sets.items()}
        facts = {**record, "sets": digests, "commit": commit(), "seed": self.config.seed}
        save_selector(folder, model, base, facts)
        number = sum(p.numel() for p in model.parameters())
        known = {"encoder": base["name"], "parameters": number, "steps": record["step"], "commit": commit()}
        data = [{**row, "licence": self.sets[row["set"]].config.licence} for row in self.sizes()]
        self.write_card(folder, Card("Selector of queries", SUMMARY, known, data, notes=self.run.notes), record)


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


def _open_set(name: str, config: TrainSelectorConfig, on_index: OnIndex) -> ThoughtSet:
    """Load a set, bring its index up to date, and make its decisions: the same whatever the fold."""
    one = config.sets[name]
    d = one.data
    data = load_dataset(d.path, d.split, d.questions, d.limit, sample=d.draw)
    path = index_path(one.index, data.name)
    build_index(path, data.passages, one.index, OptionMaker.stages, data_source(d), on_index, keep_edits=True)
    index, done = Index(path, one.index), 0
    drawn = sorted((q.id for q in data.questions), key=lambda id_: draw(id_, "limit"))[: one.train_limit]
    kept = set() if one.use == "report" else set(drawn)
    learned = [q for q in data.questions if q.id in kept]

    def progress(count: int) -> None:
        nonlocal done
        done += count
        on_index(f"{name}: decisions", done, len(learned))

    decisions = DecisionSet(learned, index, config.decisions, Path(config.cache) / name, progress)
    return ThoughtSet(name, one, data, index, decisions)
