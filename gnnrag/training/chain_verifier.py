"""Training of the chain verifier: chains drawn from the gold passages, a softmax over the pool, validation by beam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn

from gnnrag.config import Share
from gnnrag.roles.tuned.chain_features import ChainReading
from gnnrag.roles.tuned.chain_verifier import ChainConfig, ChainScorer, expansion_features, search
from gnnrag.roles.tuned.checkpoint import role_folder
from gnnrag.run.rundir import read_seen
from gnnrag.training.config import TrainConfig, draw
from gnnrag.training.loop import Trainer, means_of_sets
from gnnrag.training.report import TOP, Report, by_question, promotion_metrics
from gnnrag.training.row_sets import RowsTraining, VerifierRowsConfig, seen_of, shown_of
from gnnrag.training.rows import VerifierRow

# Chains that a step learns to go on from: some of the gold passages, and some that are none.
_EMPTY = 0.25  # share of lists that start a chain
_WRONG = 0.5  # share of the other lists whose chain has passages that are not gold,
_MOST_WRONG, _DEPTH = 3, 15  # at most so many, among the first so many of the pool
SUMMARY = (
    "A verifier of gnnrag that scores chains: each passage by features of question and candidate and by what the "
    "passages taken before it leave open and lead on to; a beam of sets. It reads no text with an encoder. Use it with "
    "`roles.verifier=tuned roles.verifier.path=THIS_FOLDER`, on every method that asks a verifier."
)


@dataclass
class ChainRowsConfig(VerifierRowsConfig):
    untitled: Share = 0.0  # share of the rows whose passages lose their titles: some corpora have none


@dataclass
class TrainChainConfig(TrainConfig):
    kind: str = "chain"
    sets: dict[str, ChainRowsConfig] = field(default_factory=dict)  # by name
    network: ChainConfig = field(default_factory=ChainConfig)
    # weight that the next-hop encoder which ships is given in use; its scores teach nothing
    next_hop: Annotated[float, Ge(0)] = 0.0
    metric: str = "recall@5"  # of validation, that decides which weights are kept


@dataclass(frozen=True, eq=False)
class ChainExample:
    """A decision of a set."""

    set: str
    question_id: str
    reading: ChainReading
    labels: np.ndarray  # (passages,) bool: gold


@dataclass(frozen=True, eq=False)
class DrawnChain:
    """A chain to go on from: each gold passage that it lacks is right."""

    example: ChainExample
    chain: tuple[int, ...]

    @property
    def features(self) -> np.ndarray:
        """Features of all passages as the next one. Shape (passages, features)."""
        return expansion_features(self.example.reading, self.chain)


class ChainTraining(RowsTraining):
    schema, prefix, title, summary = TrainChainConfig, "chain", "Verifier of chains", SUMMARY
    summarise = staticmethod(means_of_sets)  # no set counts for its size
    columns = ("recall@5", "pool_recall@5", "all@5", "precision")
    config: TrainChainConfig

    @classmethod
    def example(cls, name: str, row: VerifierRow, config: ChainRowsConfig) -> ChainExample:
        return chain_example(name, row, config.untitled)

    @property
    def seen(self) -> frozenset[str]:
        """Those of the next-hop encoder that it is used with, too."""
        of_encoder = read_seen(role_folder("thoughts", None)) if self.config.next_hop else None
        return super().seen | (of_encoder or frozenset())

    # ------------------------------------------------------------------------------------------- network and batches
    def build(self) -> tuple[ChainTraining, ChainScorer]:
        """Return the network, whose weights follow from the seed, and its features' scale from the training data."""
        torch.manual_seed(self.config.seed)
        model = ChainScorer(self.config.network)
        self.train = {
            name: [example for example in rows if example.labels.any() and not example.labels.all()]
            for name, rows in self.examples("train").items()
        }
        self.places = self.draws(self.train)
        rows = [e for name in sorted(self.train) for e in self.train[name]]
        features = np.concatenate([self._draw(e, [self.config.seed, 0, i]).features for i, e in enumerate(rows)])
        with torch.no_grad():
            model.mean.copy_(torch.from_numpy(features.mean(0)))
            model.deviation.copy_(torch.from_numpy(np.maximum(features.std(0), 0.01)))
        return self, model

    def _draw(self, example: ChainExample, seed: Sequence[int]) -> DrawnChain:
        return DrawnChain(example, draw_chain(example.labels, np.random.default_rng(seed)))

    def batch(self, step: int) -> list[DrawnChain]:
        drawn = enumerate(self.places[step])
        return [
            self._draw(self.train[name][item], [self.config.seed, step + 1, place]) for place, (name, item) in drawn
        ]

    def loss(self, model: nn.Module, items: Sequence[DrawnChain], device: torch.device) -> Tensor:
        """Return minus the log of the chance that a right passage comes next. Shape (len(items),)."""
        scores = model(torch.from_numpy(np.concatenate([one.features for one in items])).to(device)).float()
        losses = []
        for values, one in zip(scores.split([len(one.example.labels) for one in items]), items, strict=True):
            labels = torch.from_numpy(one.example.labels).to(device)
            taken = torch.zeros_like(labels)
            taken[list(one.chain)] = True
            losses.append(torch.logsumexp(values[~taken], 0) - torch.logsumexp(values[labels & ~taken], 0))
        return torch.stack(losses)

    # ------------------------------------------------------------------------------------------ validation and report
    def measure(self, model: Any, asked: Sequence[tuple[str, str]]) -> Report:
        """Return each question's metrics: the means over its decisions that have gold passages."""
        network, kept, rows = self.config.network, {*asked}, []
        for opened in self.sets.values():
            for example in opened.examples:
                if example.labels.any() and (example.set, example.question_id) in kept:
                    places = search(model, example.reading, network.beam, network.length)[0][0]
                    metrics = promotion_metrics(example.labels, places)
                    metrics[f"all@{TOP}"] = float(metrics[f"recall@{TOP}"] == 1.0)
                    rows.append({"set": example.set, "id": example.question_id, "metrics": metrics})
        return by_question(rows)

    def report(self, fitted: Trainer) -> tuple[Report, dict[str, Any]]:
        return super().report(fitted)[0], {"next_hop": self.config.next_hop}

    def more_facts(self) -> dict[str, Any]:
        return vars(self.config.network)


def chain_example(name: str, row: VerifierRow, untitled: float) -> ChainExample:
    """Return a row as an example, of the passages that the verifier saw; which rows lose titles follows from ids."""
    seen = seen_of(row)
    passages = [p.passage for p in seen]
    if draw(row.id, "untitled") < untitled:
        passages = [replace(p, title="") for p in passages]
    labels = np.array([p.id in row.gold for p in seen], dtype=bool)
    return ChainExample(name, row.question_id, ChainReading(shown_of(row, passages)), labels)


def draw_chain(labels: np.ndarray, rng: np.random.Generator) -> tuple[int, ...]:
    """Return a chain that lacks at least one gold passage, as places; gold in any order, wrong ones from the top."""
    gold, chain = rng.permutation(np.flatnonzero(labels)), list[int]()
    if rng.random() >= _EMPTY:
        chain = gold[: rng.integers(len(gold))].tolist()
        wrong = np.flatnonzero(~labels[:_DEPTH])
        if rng.random() < _WRONG or not chain:
            chain += rng.permutation(wrong)[: rng.integers(1, _MOST_WRONG + 1)].tolist()
    return tuple(sorted(chain))
