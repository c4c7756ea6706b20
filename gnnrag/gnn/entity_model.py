"""The network of mode `entity` with its ranker: scores of entities, and of the passages that they stand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnrag.gnn.batch import GraphBatch
from gnnrag.gnn.config import GNNConfig, RankerConfig
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.rankers import Incidence, Ranker

OUTSIDE = -10.0  # logit, at most, of an entity outside of the neighbourhood


@dataclass(frozen=True)
class Places:
    """Where the entities of a question's block stand in the whole graph, and which passages answer the question.

    Attributes:
        nodes: (n,) int64 ids of the block's nodes.
        num_entities: of the whole graph.
        incidence: entities of each passage.
        gold: (D,) bool, the passages to find.
    """

    nodes: np.ndarray
    num_entities: int
    incidence: Incidence
    gold: np.ndarray


class EntityGNN(QueryGNN):
    """`QueryGNN` over entities, and the ranker that maps its logits to passages; both are trained together.

    Args:
        config: architecture.
        text_size: F, length of a text vector.
        ranker: which one, and its settings.
        checkpointing: see `QueryGNN`.
    """

    def __init__(
        self, config: GNNConfig, text_size: int, ranker: RankerConfig | None = None, checkpointing: bool = False
    ) -> None:
        super().__init__(config, text_size, checkpointing=checkpointing)
        self.ranker = Ranker(ranker or RankerConfig())

    def forward(  # type: ignore[override]  # the passages' scores are part of the pass that processes synchronise
        self,
        batch: GraphBatch,
        relations: Sequence[Tensor] | None = None,
        query: Tensor | None = None,
        layer_weights: Sequence[Tensor] | None = None,
        places: Sequence[Places | None] | None = None,
    ) -> Tensor | tuple[Tensor, list[Tensor | None]]:
        """Return the logits of all nodes; with `places` of each block, also the (D,) scores of its question's passages.

        Blocks without places, or without nodes, have None. The other arguments are those of `QueryGNN.forward`.
        """
        logits = super().forward(batch, relations, query, layer_weights)
        if places is None:
            return logits
        assert batch.owner is not None
        blocks = logits.split(torch.bincount(batch.owner, minlength=len(places)).tolist())
        found = [
            passage_scores(self.ranker, block, place.nodes, place.num_entities, place.incidence)
            if place is not None and len(block)
            else None
            for block, place in zip(blocks, places, strict=True)
        ]
        return logits, found


def whole_logits(inside: Tensor, nodes: np.ndarray, num_entities: int) -> Tensor:
    """Return the logits of all entities from those of a neighbourhood: all others rank after them. Shape (N, 1).

    Args:
        inside: (n, 1) logits.
        nodes: (n,) ids of the neighbourhood's nodes.
        num_entities: N.
    """
    below = min(float(inside.detach().min()) - 1, OUTSIDE)
    rows = torch.from_numpy(nodes).to(inside.device)
    return inside.new_full((num_entities, 1), below).index_copy(0, rows, inside)


def passage_scores(
    ranker: Ranker, inside: Tensor, nodes: np.ndarray, num_entities: int, incidence: Incidence
) -> Tensor:
    """Return the scores of all passages from the logits of a neighbourhood; see `whole_logits`. Shape (D,)."""
    return ranker(whole_logits(inside, nodes, num_entities), incidence.to(inside.device))[:, 0]
