"""Scores of entities to scores of passages (mode `entity`): GFM-RAG, arXiv 2502.01113, section 3.4."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnrag.errors import ConfigError, nearest
from gnnrag.gnn.config import RankerConfig
from gnnrag.graphs.knowledge import Lists


@dataclass(frozen=True)
class Incidence:
    """GFM-RAG's matrix M: which entities stand in which passages."""

    entities: Tensor  # (nnz,) int64 entities of passage 0, then of passage 1, ..., ascending in each
    starts: Tensor  # (D,) int64 first entry of each passage
    frequency: Tensor  # (N,) float32, passages that each entity stands in

    @classmethod
    def of(cls, entity_passages: Lists, num_passages: int) -> Incidence:
        """Turn the passages of each entity into the entities of each passage."""
        passages = entity_passages.values.astype(np.int64)
        entities = np.repeat(np.arange(len(entity_passages)), entity_passages.sizes)
        order = np.argsort(passages, kind="stable")
        starts = np.searchsorted(passages[order], np.arange(num_passages))
        frequency = torch.from_numpy(entity_passages.sizes.astype(np.float32))
        return cls(torch.from_numpy(entities[order]), torch.from_numpy(starts.astype(np.int64)), frequency)

    def to(self, device: torch.device | str) -> Incidence:
        """Return the incidence on a device."""
        return Incidence(self.entities.to(device), self.starts.to(device), self.frequency.to(device))

    @property
    def sizes(self) -> Tensor:
        """Entities of each passage. Shape (D,), int64."""
        ends = torch.cat([self.starts[1:], torch.tensor([len(self.entities)], device=self.starts.device)])
        return ends - self.starts

    def spread(self, values: Tensor) -> Tensor:
        """Sum (N, B) values of entities over each passage. Shape (D, B)."""
        return functional.embedding_bag(self.entities, values, self.starts, mode="sum")


def inverse_frequency(frequency: Tensor, unseen: float = 0.0) -> Tensor:
    """Return 1 / frequency, and `unseen` for entities that stand in no passage."""
    # Rankers use 0. As weight of a seed, GFM-RAG uses 0 too, which silently drops the seed; ours is 1.
    return torch.where(frequency > 0, 1 / frequency.clamp(min=1), unseen)


class Ranker(nn.Module):
    """Maps logits of entities to scores of passages.

    - simple: sum of the logits of a passage's entities; idf: each logit times 1 / frequency first;
    - topk: how many of the best `top_k` entities stand in the passage; idf_topk: these weigh 1 / frequency;
    - learned: sum of `frequency^-a sigmoid(b s + c)` over the entities, divided by `size^e`; a, b, c and e are trained.

    Ties are common in top-k scores, sums of few reciprocals: `tie_break` adds that share of `sigmoid(s) / frequency` of
    the chosen entities. Raises ConfigError for an unknown name, or a `top_k` below 1.
    """

    NAMES = ("simple", "idf", "topk", "idf_topk", "learned")

    def __init__(self, config: RankerConfig) -> None:
        super().__init__()
        if config.name not in self.NAMES:
            raise ConfigError(f"gnn.ranker.name={config.name!r}: {nearest(config.name, self.NAMES)}")
        if config.top_k < 1:
            raise ConfigError(f"gnn.ranker.top_k={config.top_k}: must be at least 1")
        self.config = config
        if config.name == "learned":
            self.rarity, self.scale = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(1.0))
            self.shift, self.length = nn.Parameter(torch.tensor(0.0)), nn.Parameter(torch.tensor(0.0))

    def forward(self, logits: Tensor, incidence: Incidence) -> Tensor:
        """Return the (D, B) scores of passages from (N, B) logits of entities."""
        name, frequency = self.config.name, incidence.frequency.to(logits.dtype)[:, None]
        if name == "simple":
            return incidence.spread(logits)
        if name == "learned":
            share = torch.sigmoid(self.scale * logits + self.shift) * frequency.clamp(min=1) ** -self.rarity
            size = incidence.sizes.clamp(min=1).to(logits.dtype)[:, None]
            return incidence.spread(share) / size**self.length
        rarity = inverse_frequency(frequency)
        if name == "idf":
            return incidence.spread(logits * rarity)
        chosen = self._best(logits)
        values = chosen if name == "topk" else chosen * rarity
        if self.config.tie_break:
            values = values + self.config.tie_break * chosen * rarity * logits.sigmoid()
        return incidence.spread(values)

    def _best(self, logits: Tensor) -> Tensor:
        """Mark the best `top_k` entities of each column by 1; of equals the first ones. Shape (N, B)."""
        best = torch.sort(logits, dim=0, descending=True, stable=True).indices[: self.config.top_k]
        return torch.zeros_like(logits).scatter(0, best, 1.0)
