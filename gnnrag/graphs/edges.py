"""The knowledge graph as LightRAG and its forks store it: one edge for each joined pair, with all that states it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph, Lists
from gnnrag.graphs.picking import gathered


class Edges:
    """Joined pairs. Relations of one pair share an edge; a relation of a thing with itself has none.

    Args:
        graph: the knowledge graph.
        directed: as PathRAG stores it, A to B and B to A are two edges, and neighbours are those that an edge leads to
            (Q-PR-1); else a pair is one edge whatever its direction.

    Attributes:
        ends: shape (num_edges, 2), int32.
        of: edge of each relation, -1 for none. Shape (num_relations,), int32.
        weights: summed over the edge's relations. Shape (num_edges,), float64.
        degrees: edges of each entity. Shape (num_entities,), int64.
        neighbours: of each entity.
    """

    def __init__(self, graph: KnowledgeGraph, directed: bool = False) -> None:
        self.graph = graph
        if not directed:
            self.ends, self.of, self.weights = graph.pairs
            self.degrees, self.neighbours = graph.degrees, graph.neighbours
            return
        heads, tails = graph.ends.T.astype(np.int64)
        proper = heads != tails
        count = max(graph.num_entities, 1)
        keys, inverse = np.unique(heads[proper] * count + tails[proper], return_inverse=True)
        self.ends = np.stack(np.divmod(keys, count), axis=1).astype(np.int32)
        self.of = np.full(graph.num_relations, -1, dtype=np.int32)
        self.of[proper] = inverse
        self.weights = np.bincount(inverse, weights=graph.weights[proper], minlength=len(keys))
        self.degrees = np.bincount(self.ends.ravel(), minlength=graph.num_entities)
        self.neighbours = _grouped(self.ends[:, 0], self.ends[:, 1], graph.num_entities)

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def degree_sums(self) -> np.ndarray:
        """Sum of the degrees of both ends. Shape (num_edges,), int64."""
        return self.degrees[self.ends].sum(axis=1)

    @cached_property
    def incident(self) -> Lists:
        """Edges of each entity, ascending."""
        rows = np.arange(len(self.ends))
        return _grouped(self.ends.T.ravel(), np.concatenate([rows, rows]), self.graph.num_entities)

    @cached_property
    def relations(self) -> Lists:
        """Relations of each edge, ascending."""
        rows = np.flatnonzero(self.of >= 0)
        return _grouped(self.of[rows], rows, len(self.ends))

    @cached_property
    def passages(self) -> Lists:
        """Passages that state any relation of each edge, ascending."""
        stated = self.graph.relation_passages
        owners = np.repeat(self.of, stated.sizes)
        pairs = np.unique(np.stack([owners, stated.values], axis=1)[owners >= 0], axis=0)
        return _grouped(pairs[:, 0], pairs[:, 1], len(self.ends))

    def best(self, scores: np.ndarray) -> np.ndarray:
        """Return the best score of each edge's relations. Shape (num_edges,) from (num_relations,)."""
        if not len(self.ends):
            return np.zeros(0)
        return np.maximum.reduceat(np.asarray(scores)[self.relations.values], self.relations.indptr[:-1])

    def between(self, head: int, tail: int) -> list[int]:
        """Return the edges that join two entities, in either direction, ascending."""
        mine = self.incident[head]
        return mine[(self.ends[mine] == tail).any(axis=1)].tolist()

    def text(self, edge: int) -> str:
        """Return everything that is stated of a pair."""
        return "; ".join(dict.fromkeys(self.graph.statement(r) for r in self.relations[edge].tolist()))

    def keywords(self, edge: int) -> str:
        """Return the labels of a pair's relations, or their descriptions where they have no label."""
        graph = self.graph
        return ", ".join(dict.fromkeys(graph.labels[r] or graph.texts[r] for r in self.relations[edge].tolist()))


def seed_edges(edges: Edges, entities: Sequence[int], keys: Sequence[np.ndarray], cap: int | None = None) -> list[int]:
    """Return the edges of entities, each once, best first; ties in the order in which the entities bring them.

    Args:
        edges: all edges.
        entities: best first.
        keys: (num_edges,) each, higher is better; a later one breaks the ties of those before it.
        cap: edges that one entity may bring, its best; None for all.
    """
    found = gathered(edges.incident, np.asarray(entities, dtype=np.int64))
    if cap is not None:
        rows = [_best_first(edges.incident[e], keys)[:cap] for e in entities]
        found = np.concatenate(rows) if rows else found[:0]
    _, first = np.unique(found, return_index=True)
    return _best_first(found[np.sort(first)], keys).tolist()


def _best_first(edges: np.ndarray, keys: Sequence[np.ndarray]) -> np.ndarray:
    return edges[np.lexsort([-key[edges] for key in reversed(keys)])] if len(edges) else edges


def _grouped(owners: np.ndarray, values: np.ndarray, count: int) -> Lists:
    """Return the values of each owner, ascending."""
    order = np.lexsort((values, owners))
    indptr = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=count), out=indptr[1:])
    return Lists(indptr, values[order].astype(np.int32))
