"""Subgraphs of a question (`num_nodes`, `edge_index`, `edge_type`), their sorted edges, and their batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnrag.common.tables import Lists
from gnnrag.gnn import GNNConfig
from gnnrag.graphs.messages import STRUCTURE, MessageGraph
from gnnrag.index.index import Index
from gnnrag.index.message_stages import MessageKnowledge


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
        self.plan: Any = None  # what the GPU kernel prepares, once

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

    @property
    def num_pairs(self) -> int:
        """P: number of distinct (row, relation) pairs."""
        return len(self.pair_bounds) - 1

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

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.source)

    @cached_property
    def by_target(self) -> EdgeOrder:
        """Rows are targets."""
        return EdgeOrder.sort(self.target, self.relation, self.source, self.num_nodes)

    @cached_property
    def by_source(self) -> EdgeOrder:
        """Rows are sources."""
        return EdgeOrder.sort(self.source, self.relation, self.target, self.num_nodes)

    @cached_property
    def by_relation(self) -> EdgeOrder:
        """Rows are relations, columns sources."""
        count = int(self.relation.max()) + 1 if len(self.relation) else 1
        return EdgeOrder.sort(self.relation, torch.zeros_like(self.relation), self.source, count)

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
        if self.source.is_cuda:
            kept.__dict__.update(by_relation=self.by_relation.keep(mask))
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


# -------------------------------------------------------------------------------------------- subgraphs of a question
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
    edge_features: np.ndarray  # (e, K') float32
    node_vectors: np.ndarray  # (n, F) float16
    prior: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (num_passages,) of search, 0 to 1
    branch: str = ""  # how seeds were found, see gnnrag.gnn.features

    def targets(self, gold: Sequence[int]) -> np.ndarray:
        """Return which nodes are the passages `gold` (corpus positions). Shape (n,), bool."""
        return np.isin(self.passages, np.asarray(list(gold), dtype=np.int64))

    @property
    def candidates(self) -> np.ndarray:
        """The nodes that are ranked: its passages. Shape (n,), bool."""
        return self.passages >= 0


def join(parts: Sequence[Subgraph]) -> GraphBatch:
    """Put subgraphs side by side in the blocks layout; common relations are one row. ValueError without any."""
    if not parts:
        raise ValueError("join needs at least one subgraph")
    sizes = [len(part.nodes) for part in parts]
    firsts = np.cumsum([0, *sizes[:-1]])
    every, where = np.unique(np.concatenate([part.relations for part in parts]), return_index=True)
    rows = np.concatenate([part.relation_vectors for part in parts])[where]
    edges = [np.searchsorted(every, part.relations)[part.relation] for part in parts]

    def put(arrays: Sequence[np.ndarray], kind: type = np.float32) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(np.concatenate(arrays).astype(kind, copy=False)))

    return GraphBatch(
        source=put([part.source + first for part, first in zip(parts, firsts, strict=True)], np.int64),
        relation=put(edges, np.int64),
        target=put([part.target + first for part, first in zip(parts, firsts, strict=True)], np.int64),
        num_nodes=sum(sizes),
        relation_vectors=put([rows]),
        questions=torch.from_numpy(np.stack([part.question for part in parts]).astype(np.float32)),
        seeds=put([part.seeds for part in parts])[:, None],
        features=put([part.features for part in parts])[:, None],
        node_vectors=put([part.node_vectors for part in parts]),
        edge_features=put([part.edge_features for part in parts]),
        owner=put([np.full(size, number) for number, size in enumerate(sizes)], np.int64),
    )


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
    index: RelationalIndex | None = None  # the edges sorted, where batches share them; see gnnrag.gnn.model.with_index

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


@dataclass
class PruneConfig:
    """How much of the graph a question sees."""

    passages: int = 200  # passages, those that a short walk from the seeds likes best
    sentences: int = 1500  # no further passage is taken once they have so many sentences
    entities: int = 800  # names that two of the passages share, the rarest first
    seed_passages: int = 50  # passages that dense and lexical search like best, where walks start
    hub: int = 200  # names that more passages share lead nowhere
    steps: int = 3  # length of the walk


class TextGraph:
    """The parts of an index (with the stages `NODE_STAGES`) that a network of mode `node` reads."""

    def __init__(self, index: Index, config: GNNConfig | None = None, prune: PruneConfig | None = None) -> None:
        self.index, self.config, self.sizes = index, config or GNNConfig(), prune or PruneConfig()
        knowledge: MessageKnowledge = index.read("message_graph")
        assert knowledge.grounding is not None, "a graph of facts alone has no passages"
        self.graph, self.grounding = knowledge.graph, knowledge.grounding
        self.entity_vectors = as_rows(index.read("entity_vectors"), index)
        self.relation_vectors = with_inverses(index.read("relation_vectors"), self.graph, self.config)
        self.sentence_vectors = as_rows(index.read("sentence_vectors"), index)
        self.hierarchy, self.titles = index.hierarchy, index.titles
        ends = self.graph.triples[:, [0, 2]].ravel()
        self.degrees = np.bincount(ends, minlength=self.graph.num_nodes)

    @cached_property
    def fact_rows(self) -> np.ndarray:
        """Rows of the triples that are facts."""
        return np.flatnonzero(self.graph.triples[:, 1] >= len(STRUCTURE))

    @cached_property
    def passage_sentences(self) -> Lists:
        """Sentences of each passage in reading order."""
        return Lists(self.hierarchy.passage_indptr.astype(np.int64), self.hierarchy.passage_sentences)


def as_rows(vectors: np.ndarray, index: Index) -> np.ndarray:
    """Return vectors as they are, or (0, F) where there are none: an empty artefact knows no F."""
    return vectors if len(vectors) else np.zeros((0, index.passage_vectors.shape[1]), np.float32)


def with_inverses(vectors: np.ndarray, graph: MessageGraph, config: GNNConfig) -> np.ndarray:
    """Return (2 * num_relations, F): relations, then inverses by `config.inverse`; those of sentences are negative."""
    if len(vectors) == graph.num_relations or config.inverse == "negative":
        base = vectors[: graph.num_relations]
        return np.concatenate([base, -base])
    return vectors
