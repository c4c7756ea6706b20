"""What the selector learns from, step by step, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.datasets.base import Dataset
from gnnrag.fit.folds import Parts
from gnnrag.fit.loop import Rows
from gnnrag.fit.selector_config import ThoughtSetConfig, TrainSelectorConfig
from gnnrag.fit.selector_decisions import Decision, DecisionSet
from gnnrag.gnn.sampling import Draws
from gnnrag.index.index import Index
from gnnrag.roles.thought_options import OptionMaker
from gnnrag.tuned.selector import Selector, stack
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
