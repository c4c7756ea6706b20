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
from gnnrag.roles.base import Chain, VerifierTask
from gnnrag.roles.tuned.chain_verifier import ChainConfig, ChainReading, ChainScorer, expansion_features, search
from gnnrag.roles.tuned.checkpoint import role_folder
from gnnrag.run.rundir import read_seen
from gnnrag.training.base import TOP, Report, by_question, promotion_metrics
from gnnrag.training.config import NetworkConfig, draw
from gnnrag.training.networks import Item, NetworkTraining
from gnnrag.training.rows import VerifierRow
from gnnrag.training.sets import RowsTraining, VerifierRowsConfig
from gnnrag.types import OnProgress, Question

# A step draws chains, and learns which passage comes next. A chain holds gold passages and, at times, wrong ones.
_EMPTY = 0.25  # share of chains that hold nothing yet
_WRONG = 0.5  # share of the others that hold passages that are not gold
_MOST_WRONG, _DEPTH = 3, 15  # so many of these at most, from among the first so many passages of the pool
_SCALED = 2000  # items that the means and deviations of the features are taken of
SUMMARY = (
    "A beam search finds the best chain of passages, each scored by features of itself and of what the passages before "
    "it leave open and lead on to. Use it with `roles.verifier=tuned roles.verifier.path=THIS_FOLDER`."
)


@dataclass
class ChainRowsConfig(VerifierRowsConfig):
    untitled: Share = 0.0  # share of the rows (by a hash of the id) read without titles: some corpora have none


@dataclass
class TrainChainConfig(NetworkConfig):
    kind: str = "chain"
    sets: dict[str, ChainRowsConfig] = field(default_factory=dict)  # by name
    network: ChainConfig = field(default_factory=ChainConfig)
    # weight of the shipped next-hop encoder at inference; it takes no part in the training
    next_hop: Annotated[float, Ge(0)] = 0.0


@dataclass(frozen=True, eq=False)
class ChainExample:
    question_id: str
    reading: ChainReading
    labels: np.ndarray  # (passages,) bool: gold


class ChainTraining(RowsTraining, NetworkTraining):
    network = ChainScorer
    schema, prefix, title, summary = TrainChainConfig, "chain", "Verifier of chains", SUMMARY
    config: TrainChainConfig

    @classmethod
    def open(cls, config: TrainChainConfig, on_index: OnProgress) -> Any:
        return {
            name: replace(one, examples=tuple(example_of(row, config.sets[name]) for row in one.examples))
            for name, one in super().open(config, on_index).items()
        }

    @property
    def seen(self) -> frozenset[str]:
        """Also the questions that shaped the next-hop encoder, if it is used."""
        of_encoder = read_seen(role_folder("thoughts", None)) if self.config.next_hop else None
        return super().seen | (of_encoder or frozenset())

    def build(self) -> tuple[ChainTraining, list[Item], ChainScorer]:
        """Return the network: its weights follow from the seed, the scale of its features from the first items."""
        torch.manual_seed(self.config.seed)
        model = ChainScorer(self.config.network)
        train = {
            name: [example for example in rows if example.labels.any() and not example.labels.all()]
            for name, rows in self.examples("train").items()
        }
        items = self.items(train)
        features = np.concatenate([drawn(item)[1] for item in items[:_SCALED]])
        with torch.no_grad():
            model.mean.copy_(torch.from_numpy(features.mean(0)))
            model.deviation.copy_(torch.from_numpy(np.maximum(features.std(0), 0.01)))
        return self, items, model

    def loss(self, model: nn.Module, items: Sequence[Item], device: torch.device) -> Tensor:
        """Return -log P(a missing gold passage comes next). Shape (len(items),)."""
        chains, features = zip(*map(drawn, items), strict=True)
        scores = model(torch.from_numpy(np.concatenate(features)).to(device)).float()
        losses = []
        for values, chain, item in zip(scores.split([*map(len, features)]), chains, items, strict=True):
            labels = torch.from_numpy(item.example.labels).to(device)
            taken = torch.zeros_like(labels)
            taken[list(chain)] = True
            losses.append(torch.logsumexp(values[~taken], 0) - torch.logsumexp(values[labels & ~taken], 0))
        return torch.stack(losses)

    def measure(self, model: Any, asked: Sequence[tuple[str, str]]) -> Report:
        """Return each question's metrics: the means over its decisions that have gold passages."""
        network, kept, rows = self.config.network, {*asked}, []
        for name, opened in self.sets.items():
            for example in opened.examples:
                if example.labels.any() and (name, example.question_id) in kept:
                    places = search(model, example.reading, network.beam, network.length)[0][0]
                    metrics = promotion_metrics(example.labels, places)
                    metrics[f"all@{TOP}"] = float(metrics[f"recall@{TOP}"] == 1.0)
                    rows.append({"set": name, "id": example.question_id, "metrics": metrics})
        return by_question(rows)

    def report(self) -> tuple[Report, dict[str, Any]]:
        return super().report()[0], {"next_hop": self.config.next_hop}


def example_of(row: VerifierRow, config: ChainRowsConfig) -> ChainExample:
    """Return what the verifier that took a row's decision reads, at times without titles."""
    passages = [shown.passage for shown in row.passages]
    if draw(row.id, "untitled") < config.untitled:
        passages = [replace(passage, title="") for passage in passages]
    scores = tuple(shown.score for shown in row.passages if shown.score is not None)
    cosines = [shown.cosine for shown in row.passages if shown.cosine is not None]
    known = cosines if len(cosines) == len(passages) else ()
    question, chain = Question(row.question_id, row.question), Chain(row.chain, support=row.support)
    reading = ChainReading(VerifierTask(question, chain, tuple(passages), scores), known)
    labels = np.array([passage.id in row.gold for passage in passages], dtype=bool)
    return ChainExample(row.question_id, reading, labels)


def drawn(item: Item) -> tuple[tuple[int, ...], np.ndarray]:
    """Return a chain of places, and the features of all passages as the next one, (passages, features)."""
    chain = draw_chain(item.example.labels, item.rng)
    return chain, expansion_features(item.example.reading, chain)


def draw_chain(labels: np.ndarray, rng: np.random.Generator) -> tuple[int, ...]:
    """Return the places of a chain that lacks at least one gold passage. `labels` (n,) bool: gold."""
    gold, chain = rng.permutation(np.flatnonzero(labels)), list[int]()
    if rng.random() >= _EMPTY:
        chain = gold[: rng.integers(len(gold))].tolist()
        wrong = np.flatnonzero(~labels[:_DEPTH])
        if rng.random() < _WRONG or not chain:
            chain += rng.permutation(wrong)[: rng.integers(1, _MOST_WRONG + 1)].tolist()
    return tuple(sorted(chain))
