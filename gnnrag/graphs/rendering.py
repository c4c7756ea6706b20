"""Choose entities, edges and passages of a knowledge graph within token budgets, and write them as a context.

As LightRAG does; its forks PathRAG, MiniRAG and HyperGraphRAG have the `classic` rules of its first releases.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.text.tokens import TokenCounter
from gnnrag.types import Hit, Passage

T = TypeVar("T", bound=Hashable)


def round_robin(*rankings: Sequence[T]) -> list[T]:
    """Merge rankings position by position, the first ranking's item first; of equal items the first stays."""
    longest = max(map(len, rankings), default=0)
    return distinct(row[i] for i in range(longest) for row in rankings if i < len(row))


def distinct(items: Iterable[T]) -> list[T]:
    """Return the items in order, each once: with chained rankings, the classic fusion."""
    return list(dict.fromkeys(items))


def above(scores: np.ndarray, k: int, floor: float) -> list[int]:
    """Return the positions of the `k` best scores that reach a floor, best first, ties by position."""
    positions = np.flatnonzero(scores >= floor)
    return positions[np.argsort(-scores[positions], kind="stable")][:k].tolist()


def classic_passages(
    items: Sequence[int], passages: Lists, neighbours: Lists, neighbour_passages: Lists | None = None
) -> list[int]:
    """Rank the passages of entities (best first) as LightRAG did in 2025, and its forks PathRAG and HyperGraphRAG do.

    A passage stands where the first entity that has it does; those of one entity by how many neighbours, of all
    entities that have the passage, cite them too, then in their own order. Neighbours are one-hop neighbours (PathRAG)
    or hyperedges (HyperGraphRAG, with `neighbour_passages`).
    """
    cited = passages if neighbour_passages is None else neighbour_passages
    rank: dict[int, int] = {}
    support: Counter[int] = Counter()
    for place, item in enumerate(items):
        citations = Counter(cited.at(neighbours[item]).tolist())
        for passage in passages[item].tolist():
            rank.setdefault(passage, place)
            support[passage] += citations[passage]
    return sorted(rank, key=lambda passage: (rank[passage], -support[passage]))


def passages_in_order(items: Sequence[int], passages: Lists) -> list[int]:
    """Return the passages of items in the order of these, each once: how relations and hyperedges give theirs."""
    return distinct(passages.at(items).tolist())


class Edges:
    """Joined pairs: relations of one pair share an edge; a relation of a thing with itself has none.

    Attributes:
        ends: (num_edges, 2) int32.
        of: (num_relations,) int32, edge of each relation, -1 for none.
        weights: (num_edges,) float64, summed over the edge's relations.
        degrees: (num_entities,) int64, edges of each entity.
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        self.ends, self.of, self.weights = graph.pairs
        self.degrees, self.neighbours = graph.degrees, graph.neighbours

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
        return Lists.grouped(self.ends.T.ravel(), np.concatenate([rows, rows]), self.graph.num_entities)

    @cached_property
    def relations(self) -> Lists:
        """Relations of each edge, ascending."""
        rows = np.flatnonzero(self.of >= 0)
        return Lists.grouped(self.of[rows], rows, len(self.ends))

    @cached_property
    def passages(self) -> Lists:
        """Passages that state any relation of each edge, ascending."""
        stated = self.graph.relation_passages
        owners = np.repeat(self.of, stated.sizes)
        pairs = np.unique(np.stack([owners, stated.values], axis=1)[owners >= 0], axis=0)
        return Lists.grouped(pairs[:, 0], pairs[:, 1], len(self.ends))

    def best(self, scores: np.ndarray) -> np.ndarray:
        """Return the best score of each edge's relations. Shape (num_edges,) from (num_relations,)."""
        if not len(self.ends):
            return np.zeros(0)
        return np.maximum.reduceat(np.asarray(scores)[self.relations.values], self.relations.indptr[:-1])

    def between(self, head: int, tail: int) -> list[int]:
        """Return the edges that join two entities, in either direction, ascending."""
        near = self.incident[head]
        return near[(self.ends[near] == tail).any(axis=1)].tolist()

    def text(self, edge: int) -> str:
        """Return everything that is stated of a pair."""
        return "; ".join(dict.fromkeys(self.graph.statement(r) for r in self.relations[edge].tolist()))

    def keywords(self, edge: int) -> str:
        """Return the labels of a pair's relations, or their descriptions where they have no label."""
        graph = self.graph
        return ", ".join(dict.fromkeys(graph.labels[r] or graph.texts[r] for r in self.relations[edge].tolist()))


@dataclass(frozen=True, eq=False)
class Renderer:
    """Writes entities, edges, paths and passages as texts and graph hits, and fits them into token budgets."""

    edges: Edges
    passages: Sequence[Passage]
    counter: TokenCounter
    classic: bool = False  # budgets count descriptions one by one (forks of LightRAG); else joined rows

    def entity_row(self, entity: int) -> str:
        """Return what counts of an entity: its row as JSON, or its description alone."""
        graph = self.edges.graph
        if self.classic:
            return graph.descriptions[entity]
        return _row(entity=graph.names[entity], type=graph.types[entity], description=graph.descriptions[entity])

    def edge_row(self, edge: int) -> str:
        """Return what counts of an edge: its row as JSON, or what is stated of it alone."""
        text = self.edges.text(edge)
        if self.classic:
            return text
        head, tail = (self.edges.graph.names[e] for e in self.edges.ends[edge].tolist())
        return _row(entity1=head, entity2=tail, description=text)

    def passage_row(self, passage: int) -> str:
        """Return what counts of a passage: its row as JSON, or its text alone."""
        text = self.passages[passage].content
        return text if self.classic else _row(content=text)

    def fit_entities(self, entities: Sequence[int], budget: int) -> list[int]:
        """Return the longest prefix that fits into a budget of tokens."""
        return list(entities[: self._fit([self.entity_row(e) for e in entities], budget)])

    def fit_edges(self, edges: Sequence[int], budget: int) -> list[int]:
        """Return the longest prefix that fits into a budget of tokens."""
        shown = edges[: max(budget, 0)]  # a row has a token at least, and a hub has thousands of rows
        return list(shown[: self._fit([self.edge_row(e) for e in shown], budget)])

    def fit_passages(self, passages: Sequence[int], budget: int) -> list[int]:
        """Return the longest prefix that fits into a budget of tokens."""
        return list(passages[: self._fit([self.passage_row(p) for p in passages], budget)])

    def tokens(self, entities: Sequence[int], edges: Sequence[int]) -> int:
        """Return how many tokens the rows of entities and edges take together."""
        rows = [self.entity_row(e) for e in entities] + [self.edge_row(e) for e in edges]
        return self.counter.count("\n".join(rows))

    def entity_hit(self, entity: int) -> Hit:
        """Return an entity as a graph hit, unscored; its id is its name."""
        graph = self.edges.graph
        text = graph.descriptions[entity] or graph.names[entity]
        return Hit(graph.names[entity], 0.0, 0, "entity", text, self.ids(graph.entity_passages[entity].tolist()))

    def relation_hits(self, edge: int) -> list[Hit]:
        """Return the relations of an edge as graph hits, unscored."""
        graph = self.edges.graph
        return [
            Hit(
                graph.relation_id(r),
                0.0,
                0,
                "relation",
                graph.statement(r),
                self.ids(graph.relation_passages[r].tolist()),
            )
            for r in self.edges.relations[edge].tolist()
        ]

    def path_text(self, nodes: Sequence[int]) -> str:
        """Return a path in words: each node with type and description, joined by the keywords of the edges between."""
        graph, parts = self.edges.graph, []
        for i, node in enumerate(nodes):
            if i:
                joined = [self.edges.keywords(e) for e in self.edges.between(nodes[i - 1], node)]
                parts.append(f"-- {', '.join(dict.fromkeys(joined))} --")
            kind = f" ({graph.types[node]})" if graph.types[node] else ""
            parts.append(f"{graph.names[node]}{kind}" + (f": {d}" if (d := graph.descriptions[node]) else ""))
        return " ".join(parts)

    def fit_paths(self, paths: Sequence[Sequence[int]], budget: int) -> int:
        """Return how many of the first paths fit into a budget of tokens."""
        return self._fit([self.path_text(path) for path in paths], budget)

    def path_hit(self, nodes: Sequence[int]) -> Hit:
        """Return a path as a graph hit, unscored; its id is its names, its sources are what states its edges."""
        name = " -> ".join(self.edges.graph.names[node] for node in nodes)
        return Hit(name, 0.0, 0, "path", self.path_text(nodes), self.ids(self.path_passages(nodes)))

    def path_passages(self, nodes: Sequence[int]) -> list[int]:
        """Return the passages that state the edges of a path, in its order, each once."""
        steps = [self.edges.between(a, b) for a, b in pairwise(nodes)]
        return passages_in_order([edge for step in steps for edge in step], self.edges.passages)

    def ids(self, passages: Sequence[int]) -> tuple[str, ...]:
        """Return the ids of passages."""
        return tuple(self.passages[p].id for p in passages)

    def _fit(self, rows: Sequence[str], budget: int) -> int:
        return self.counter.fit(rows, budget, None if self.classic else "\n")


def _row(**columns: str) -> str:
    return json.dumps(columns, ensure_ascii=False)


@dataclass(frozen=True)
class GraphHits:
    """Positions of entities and edges, best first."""

    entities: Sequence[int] = ()
    edges: Sequence[int] = ()
