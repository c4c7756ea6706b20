"""The verifier that scores chains: each passage is judged beside those that were taken before it.

After Beam Retrieval (Zhang et al., 2024, arXiv 2308.08973), section 3: hypotheses grow passage by passage and compete
in a beam. Here a hypothesis is a set, its score the sum of log-softmax values over the pool, and a small network on
features of question, chain and candidate (`gnnrag.roles.tuned.chain_features`) takes the cross-encoder's place. What
the next-hop encoder expects after a passage of the chain is added with a weight of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from gnnrag.batching import Worker
from gnnrag.index.index import Index
from gnnrag.io import digest
from gnnrag.roles.base import Role, Verdict, VerifierTask
from gnnrag.roles.tuned.chain_features import CONDITIONAL, STATIC, ChainReading
from gnnrag.roles.tuned.checkpoint import TunedRecord, load_trained
from gnnrag.roles.tuned.thoughts import NextHop, fits
from gnnrag.session import Session

CHAIN = "chain"
_FAR = 5.0  # standard deviations at which a feature is clipped: other corpora have other extremes


@dataclass
class ChainConfig:
    """The network and its search; a checkpoint names all of it."""

    hidden: Annotated[int, Ge(1)] = 32  # width of its one hidden layer
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.1  # of that layer, in training
    beam: Annotated[int, Ge(1)] = 2  # chains that are followed at once
    length: Annotated[int, Ge(1)] = 5  # passages of a chain


class ChainScorer(nn.Module):
    """Scores an expansion of a chain: a linear term and one hidden layer on its features. All scores start at 0."""

    role: ClassVar[str] = "verifier"
    kind: ClassVar[str] = CHAIN
    schema: ClassVar[type] = ChainConfig

    def __init__(self, config: ChainConfig) -> None:
        super().__init__()
        self.config, count = config, len(STATIC) + len(CONDITIONAL)
        # mean, deviation: of the features in training; they are saved with the weights
        self.mean = nn.Parameter(torch.zeros(count), requires_grad=False)
        self.deviation = nn.Parameter(torch.ones(count), requires_grad=False)
        self.weighted = nn.Linear(count, 1, bias=False)
        self.hidden, self.out = nn.Linear(count, config.hidden), nn.Linear(config.hidden, 1, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.zeros_(self.weighted.weight)
        nn.init.zeros_(self.out.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Return scores. Shapes (..., features) to (...)."""
        scaled = ((features - self.mean) / self.deviation).clamp(-_FAR, _FAR)
        scores: Tensor = self.weighted(scaled) + self.out(self.dropout(torch.tanh(self.hidden(scaled))))
        return scores.squeeze(-1)


def expansion_features(reading: ChainReading, chain: Sequence[int]) -> np.ndarray:
    """Return features of all passages as the next one of a chain. Shape (n, features), float32."""
    return np.concatenate([reading.static, reading.conditional(chain)], axis=1)


Beam = list[tuple[tuple[int, ...], float]]  # sets of places, ascending, with their scores, best first


class NextHopScores:
    """Scores of passages as the next hop after a chain, by the next-hop encoder, which reads each passage once."""

    def __init__(self, encoder: NextHop, weight: float, question: str, positions: Sequence[int]) -> None:
        self.encoder, self.weight, self.question, self.positions = encoder, weight, question, positions
        self._pool = encoder.index.passage_vectors[list(positions)]  # (n, dim)
        self._rows: dict[int, np.ndarray] = {}  # by place: cosines of what may follow with all passages, (n,)

    def __call__(self, chains: Sequence[tuple[int, ...]]) -> np.ndarray:
        """Return weight times the largest cosine with a query after a passage of the chain. Shape (chains, n)."""
        if new := sorted({place for held in chains for place in held} - self._rows.keys()):
            vectors = self.encoder.vectors([(self.question, (self.positions[place],)) for place in new])
            self._rows |= dict(zip(new, vectors @ self._pool.T, strict=True))
        none = np.zeros(len(self.positions), np.float32)
        return self.weight * np.stack([np.max([self._rows[p] for p in held], 0) if held else none for held in chains])


@torch.inference_mode()
def search(
    model: ChainScorer, reading: ChainReading, beam: int, length: int, following: NextHopScores | None = None
) -> Beam:
    """Return the best chains of `length` passages (or all there are); two orders of one set are one chain."""
    chains: Beam = [((), 0.0)]
    for _ in range(min(length, reading.count)):
        grown: dict[tuple[int, ...], float] = {}
        added = following([held for held, _ in chains]) if following else np.zeros((len(chains), 1), np.float32)
        for (held, score), more in zip(chains, added, strict=True):
            values = model(torch.from_numpy(expansion_features(reading, held))) + torch.from_numpy(more)
            values[list(held)] = -torch.inf
            chances = torch.log_softmax(values.double(), 0).numpy()
            for place in np.argsort(-chances, kind="stable")[: min(beam, reading.count - len(held))].tolist():
                found = tuple(sorted((*held, place)))
                grown[found] = max(score + float(chances[place]), grown.get(found, -np.inf))
        chains = sorted(grown.items(), key=lambda item: (-item[1], item[0]))[:beam]
    return chains


class ChainVerifier(Role[VerifierTask, Verdict]):
    """Selects the passages of the best chain, with the settings of `TunedVerifier`.

    An index by another embedder than the next-hop encoder's is read without that encoder.
    """

    def __init__(self, index: Index, folder: Path, record: TunedRecord, settings: Any) -> None:
        self.index, self.model = index, load_trained(folder, record, ChainScorer)
        self.length = settings.max_selected or self.model.config.length
        self.beam = settings.beam or self.model.config.beam
        self._worker = Worker()  # the event loop goes on meanwhile
        learned = float(record.facts.get("next_hop") or 0.0)
        self.weight = learned if settings.next_hop is None else settings.next_hop
        is_wanted = settings.next_hop is not None or settings.encoder is not None  # and must fit
        self.encoder: NextHop | None = None
        if self.weight and (is_wanted or fits(settings.encoder, index)):
            self.encoder = NextHop.open(index, settings.encoder, settings.base, settings.device)
        following = [self.encoder.fingerprint, self.weight] if self.encoder else []
        self.fingerprint = digest([record.fingerprint, self.length, self.beam, *following])

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        """Return the ids of the best chain in the order shown."""
        if not task.passages:
            return Verdict()
        chains = await self._worker(lambda: self._chains(task))
        ids = [passage.id for passage in task.passages]
        rows = [{"ids": [ids[i] for i in places], "score": round(score, 4)} for places, score in chains]
        session.record("verifier_chains", chains=rows, next_hop=self.weight if self.encoder else 0.0)
        return Verdict(tuple(ids[i] for i in chains[0][0]))

    def _chains(self, task: VerifierTask) -> Beam:
        known = all(p.id in self.index.position for p in task.passages)
        cosines: Sequence[float] = ()
        following = None
        if known:
            positions = [self.index.position[p.id] for p in task.passages]
            if self.encoder:
                following = NextHopScores(self.encoder, self.weight, task.question.text, positions)
            vectors = self.index.passage_vectors[positions]
            cosines = (vectors @ self.index.embedder.encode([task.question.text], is_query=True)[0]).tolist()
        return search(self.model, ChainReading(task, cosines), self.beam, self.length, following)
