"""Edges of a graph, sorted for message passing, and batches of questions on a graph: tensors, no index, no text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowBlock:
    """A run of rows with all their edges, small enough for its messages to stay in the processor's cache."""

    rows: tuple[int, int]  # first row, and the row after the last
    edges: Tensor  # (E_b,) int64 ids
    columns: Tensor  # (E_b,) int32 node that each edge reads
    pair_start: Tensor  # (P_b,) int32 first edge of each (row, relation) pair, counted within the block
    pair_row: Tensor  # (P_b,) int64, in the whole graph
    pair_relation: Tensor  # (P_b,) int64
    pairs: Tensor  # (P_b,) int32, 0 .. P_b - 1
    row_start: Tensor  # (rows,) int32 first pair of each row, counted within the block

    @property
    def pair_of_edge(self) -> Tensor:
        """Pair of each edge, counted within the block. Shape (E_b,), int64."""
        marks = torch.zeros(len(self.edges), dtype=torch.int64, device=self.edges.device)
        marks[self.pair_start[1:].long()] = 1
        return marks.cumsum(0)


class EdgeOrder:
    """Edges, (E,) int64 tensors, sorted by (row, relation, edge id); the row is the node that receives."""

    def __init__(self, edges: Tensor, rows: Tensor, relations: Tensor, columns: Tensor, num_rows: int) -> None:
        self.edges, self.rows, self.relations, self.columns = edges, rows, relations, columns
        self.num_rows = num_rows
        self._blocks: dict[int, list[RowBlock]] = {}

    @classmethod
    def sort(cls, rows: Tensor, relations: Tensor, columns: Tensor, num_rows: int) -> EdgeOrder:
        """Sort edges given by id order."""
        width = int(relations.max()) + 1 if len(relations) else 1
        edges = torch.argsort(rows * width + relations, stable=True)
        return cls(edges, rows[edges], relations[edges], columns[edges], num_rows)

    def keep(self, mask: Tensor) -> EdgeOrder:
        """Drop the edges whose entry of `mask`, (E,) bool by edge id, is false; ids and the order stay."""
        kept = mask[self.edges]
        return EdgeOrder(self.edges[kept], self.rows[kept], self.relations[kept], self.columns[kept], self.num_rows)

    def to(self, device: torch.device | str) -> EdgeOrder:
        """Return the order on a device."""
        edges, rows = self.edges.to(device), self.rows.to(device)
        return EdgeOrder(edges, rows, self.relations.to(device), self.columns.to(device), self.num_rows)

    @cached_property
    def pair_bounds(self) -> Tensor:
        """First edge of each (row, relation) pair, and E at the end. Shape (P + 1,), int64."""
        if not len(self.rows):
            return torch.zeros(1, dtype=torch.int64, device=self.rows.device)
        new = torch.ones(len(self.rows), dtype=torch.bool, device=self.rows.device)
        new[1:] = (self.rows[1:] != self.rows[:-1]) | (self.relations[1:] != self.relations[:-1])
        return torch.cat([new.nonzero().flatten(), torch.tensor([len(self.rows)], device=self.rows.device)])

    @cached_property
    def row_bounds(self) -> Tensor:
        """First edge of each row, and E at the end. Shape (N + 1,), int64."""
        starts = torch.arange(self.num_rows + 1, device=self.rows.device)
        return torch.searchsorted(self.rows.contiguous(), starts)

    def blocks(self, size: int) -> list[RowBlock]:
        """Cut the rows into blocks of about `size` edges. A row is never split, so a hub makes a larger block."""
        if size not in self._blocks:
            self._blocks[size] = list(self._cut(size))
        return self._blocks[size]

    def _cut(self, size: int) -> list[RowBlock]:
        bounds = self.row_bounds.tolist()
        pair_bounds, pair_rows = self.pair_bounds, self.rows[self.pair_bounds[:-1]]
        row_pairs = torch.searchsorted(pair_bounds, self.row_bounds).tolist()
        cuts, filled = [0], 0
        for row in range(1, self.num_rows):
            if bounds[row + 1] - filled > size and bounds[row] > filled:
                cuts.append(row)
                filled = bounds[row]
        return [
            self._block(first, last, pair_rows, (bounds[first], bounds[last]), (row_pairs[first], row_pairs[last]))
            for first, last in zip(cuts, [*cuts[1:], self.num_rows], strict=True)
            if last > first
        ]

    def _block(
        self, first: int, last: int, pair_rows: Tensor, edges: tuple[int, int], pairs: tuple[int, int]
    ) -> RowBlock:
        span, chosen = slice(*edges), slice(*pairs)
        starts = self.pair_bounds[chosen]
        row_start = torch.searchsorted(starts, self.row_bounds[first:last])
        return RowBlock(
            rows=(first, last),
            edges=self.edges[span],
            columns=self.columns[span].to(torch.int32),
            pair_start=(starts - edges[0]).to(torch.int32),
            pair_row=pair_rows[chosen],
            pair_relation=self.relations[starts],
            pairs=torch.arange(pairs[1] - pairs[0], dtype=torch.int32, device=starts.device),
            row_start=row_start.to(torch.int32),
        )


class RelationalIndex:
    """Edges of a graph, (E,) int64, by target for the forward pass and by source for the backward pass.

    Messages flow from source to target; parallel edges and loops may occur. ValueError for edges outside the graph.
    """

    def __init__(self, source: Tensor, relation: Tensor, target: Tensor, num_nodes: int) -> None:
        if not len(source) == len(relation) == len(target):
            raise ValueError(f"edges: {len(source)} sources, {len(relation)} relations, {len(target)} targets")
        if len(source) and not (
            0 <= int(torch.minimum(source, target).min()) <= int(torch.maximum(source, target).max()) < num_nodes
        ):
            raise ValueError(f"edges: a node lies outside 0 .. {num_nodes - 1}")
        self.source, self.relation, self.target, self.num_nodes = source, relation, target, num_nodes

    @cached_property
    def by_target(self) -> EdgeOrder:
        """Rows are targets."""
        return EdgeOrder.sort(self.target, self.relation, self.source, self.num_nodes)

    @cached_property
    def by_source(self) -> EdgeOrder:
        """Rows are sources."""
        return EdgeOrder.sort(self.source, self.relation, self.target, self.num_nodes)

    @cached_property
    def in_degree(self) -> Tensor:
        """Edges that end at each node. Shape (N,), float32."""
        return torch.bincount(self.target, minlength=self.num_nodes).float()

    def leaving(self, nodes: Tensor) -> RelationalIndex:
        """Return the index of the edges that leave some nodes, (N,) bool; edge ids stay those of this index."""
        kept = RelationalIndex(self.source, self.relation, self.target, self.num_nodes)
        mask = nodes[self.source]
        # Filtering a sorted order needs no second sort, and sums keep their order: zeros drop out of them, exactly.
        kept.__dict__.update(by_target=self.by_target.keep(mask), by_source=self.by_source.keep(mask))
        return kept

    def to(self, device: torch.device | str) -> RelationalIndex:
        """Return the index on a device, sorted orders included."""
        moved = RelationalIndex.__new__(RelationalIndex)
        moved.num_nodes = self.num_nodes
        moved.source, moved.relation, moved.target = (t.to(device) for t in (self.source, self.relation, self.target))
        for name in ("by_target", "by_source"):
            if name in self.__dict__:
                moved.__dict__[name] = self.__dict__[name].to(device)
        return moved


@dataclass(frozen=True)
class GraphBatch:
    """Questions on one graph, in one of two layouts.

    *Shared*: all B questions look at the same N nodes; column b of `seeds` and `features` belongs to question b, and
    `owner` is None. *Blocks*: each question has its own pruned subgraph, all of them side by side in one graph of N =
    sum of N_b nodes; then B = 1, `owner[v]` is the question of node v, and edges may have features of their own.
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
    edge_features: Tensor | None = None  # (E, K') of (question, edge), blocks layout only
    edge_weights: Tensor | None = None  # (E,); 0 removes an edge; None: 1 for all
    owner: Tensor | None = None  # (N,) int64 question of each node in the blocks layout
    index: RelationalIndex | None = None  # the edges sorted, where batches share them; see `sorted`

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

    def sorted(self) -> GraphBatch:
        """Return the batch with its edges sorted; keep it where many batches share a graph (`replace` keeps them)."""
        if self.index is not None:
            return self
        return replace(self, index=RelationalIndex(self.source, self.relation, self.target, self.num_nodes))
