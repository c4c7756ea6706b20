"""What the network reads: a graph and the questions asked of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gnnrag.gnn.edges import RelationalIndex


@dataclass(frozen=True)
class GraphBatch:
    """Questions on one graph, in one of two layouts.

    *Shared*: all B questions look at the same N nodes; column b of `seeds` and `features` belongs to question b, and
    `owner` is None. *Blocks*: each question has its own pruned subgraph, all of them side by side in one graph of
    N = sum of N_b nodes; then B = 1, `owner[v]` is the question of node v, and edges may have features of their own.

    Attributes:
        source, relation, target: (E,) int64, both directions of every triple; messages flow from source to target.
        num_nodes: N.
        relation_vectors: (R2, F) vectors of the relations and their inverses; row `relation[e]` belongs to edge e.
        questions: (Q, F) question vectors; Q = B in the shared layout.
        seeds: (N, B) weight of each node as a seed, 0 for most.
        features: (N, B, K) features of (question, node), or None.
        node_vectors: (N, F) vectors of the nodes' texts, or None.
        edge_features: (E, K') features of (question, edge), blocks layout only, or None.
        edge_weights: (E,) weights of edges; 0 removes one; None for all 1.
        owner: (N,) int64 question of each node in the blocks layout, or None.
        index: the edges sorted, where many batches share them; see `gnnrag.gnn.model.with_index`.
    """

    source: Tensor
    relation: Tensor
    target: Tensor
    num_nodes: int
    relation_vectors: Tensor
    questions: Tensor
    seeds: Tensor
    features: Tensor | None = None
    node_vectors: Tensor | None = None
    edge_features: Tensor | None = None
    edge_weights: Tensor | None = None
    owner: Tensor | None = None
    index: RelationalIndex | None = None

    @property
    def width(self) -> int:
        """B: columns of a state, 1 in the blocks layout."""
        return self.seeds.shape[1]

    def spread(self, rows: Tensor) -> Tensor:
        """Give every node its question's row: (Q, d) to (1, B, d), which broadcasts, or to (N, 1, d) in blocks."""
        return rows[None] if self.owner is None else rows.index_select(0, self.owner)[:, None]

    def to(self, device: torch.device | str) -> GraphBatch:
        """Return the batch on a device."""
        kinds = (Tensor, RelationalIndex)
        values = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, kinds)}
        return replace(self, **values)  # type: ignore[arg-type]
