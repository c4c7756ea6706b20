"""Subgraphs of questions, their batches as tensors, and edges sorted for message passing: no index, no text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Subgraph:
    """Part of a graph for one question: n nodes, e edges (each triple both ways, as local rows), r relation rows."""

    nodes: np.ndarray  # (n,) int64 node ids in the whole graph, ascending
    passages: np.ndarray  # (n,) int64 corpus position of each passage node, -1 for other nodes
    source: np.ndarray  # (e,) int64
    relation: np.ndarray  # (e,) int64
    target: np.ndarray  # (e,) int64
    relations: np.ndarray  # (r,) int64 ids in the whole graph, inverses offset by its number of relations, ascending
    relation_vectors: np.ndarray  # (r, F) float32
    question: np.ndarray  # (F,) float32
    seeds: np.ndarray  # (n,) float32 weight of each node as a seed
    features: np.ndarray  # (n, K) float32
    node_vectors: np.ndarray  # (n, F) float16
    prior: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (num_passages,) of search, 0 to 1
    branch: str = ""  # how seeds were found, see gnnrag.gnn.features

    @property
    def candidates(self) -> np.ndarray:
        """The nodes that are ranked: its passages. Shape (n,), bool."""
        return self.passages >= 0


class SortedEdges:
    """Edges, (E,) int64 tensors sorted by (target, relation); parallel edges and loops may occur.

    Messages flow from source to target.
    """

    def __init__(self, source: Tensor, relation: Tensor, target: Tensor, num_nodes: int) -> None:
        width = int(relation.max()) + 1 if len(relation) else 1
        order = torch.argsort(target * width + relation, stable=True)
        self.source, self.relation, self.target = source[order], relation[order], target[order]
        self.num_nodes = num_nodes

    @cached_property
    def pair_starts(self) -> Tensor:
        """First edge of each distinct (target, relation). Shape (P,), int64."""
        is_first = torch.ones_like(self.target, dtype=torch.bool)
        is_first[1:] = (self.target[1:] != self.target[:-1]) | (self.relation[1:] != self.relation[:-1])
        return is_first.nonzero().flatten()

    @cached_property
    def reverse(self) -> SortedEdges:
        """The edges turned round, sorted by their sources: what a backward pass sums over."""
        return SortedEdges(self.target, self.relation, self.source, self.num_nodes)


@dataclass(frozen=True)
class GraphBatch:
    """Questions on one graph, in one of two layouts.

    *Shared*: all B questions look at the same N nodes; column b of `seeds` and `features` belongs to question b, and
    `owner` is None. *Blocks*: each question has its own pruned subgraph, all of them side by side in one graph of N =
    sum of N_b nodes; then B = 1, and `owner[v]` is the question of node v.
    """

    source: Tensor  # (E,) int64, both directions of every triple; messages flow from source to target
    relation: Tensor  # (E,) int64, rows of relation_vectors
    target: Tensor  # (E,) int64
    num_nodes: int  # N
    relation_vectors: Tensor  # (R2, F) of the relations and their inverses
    questions: Tensor  # (Q, F); Q = B in the shared layout
    seeds: Tensor  # (N, B) weight of each node as a seed, 0 for most
    features: Tensor | None = None  # (N, B, K) of (question, node)
    node_vectors: Tensor | None = None  # (N, F) of the nodes' texts
    owner: Tensor | None = None  # (N,) int64 question of each node in the blocks layout

    def to_nodes(self, rows: Tensor) -> Tensor:
        """Give every node its question's row: (Q, d) to (1, B, d), which broadcasts, or to (N, 1, d) in blocks."""
        return rows[None] if self.owner is None else rows.index_select(0, self.owner)[:, None]

    def to(self, device: torch.device | str) -> GraphBatch:
        values = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **values)  # type: ignore[arg-type]


def join(parts: Sequence[Subgraph], graphs: Sequence[int] | None = None) -> GraphBatch:
    """Put subgraphs side by side in the blocks layout; those of one of `graphs` (None: of one) share relation rows."""
    sizes = [len(part.nodes) for part in parts]
    firsts = np.cumsum([0, *sizes[:-1]])
    relations = [part.relations + (n << 32) for part, n in zip(parts, graphs or [0] * len(parts), strict=True)]
    every, where = np.unique(np.concatenate(relations), return_index=True)
    rows = [np.searchsorted(every, ids)[part.relation] for part, ids in zip(parts, relations, strict=True)]

    def put(arrays: Sequence[np.ndarray], kind: type = np.float32) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(np.concatenate(arrays).astype(kind, copy=False)))

    return GraphBatch(
        source=put([part.source + first for part, first in zip(parts, firsts, strict=True)], np.int64),
        relation=put(rows, np.int64),
        target=put([part.target + first for part, first in zip(parts, firsts, strict=True)], np.int64),
        num_nodes=sum(sizes),
        relation_vectors=put([np.concatenate([part.relation_vectors for part in parts])[where]]),
        questions=torch.from_numpy(np.stack([part.question for part in parts]).astype(np.float32)),
        seeds=put([part.seeds for part in parts])[:, None],
        features=put([part.features for part in parts])[:, None],
        node_vectors=put([part.node_vectors for part in parts]),
        owner=put([np.full(size, number) for number, size in enumerate(sizes)], np.int64),
    )
