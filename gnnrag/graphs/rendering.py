"""Choose entities, edges and passages of a knowledge graph within token budgets, and write them as a context.

As LightRAG does; its forks PathRAG, MiniRAG and HyperGraphRAG have the `classic` rules of its first releases.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.text.tokens import TokenCounter
from gnnrag.types import Hit, Kind, Passage

T = TypeVar("T", bound=Hashable)


def round_robin(*rankings: Sequence[T]) -> list[T]:
    """Merge rankings position by position, the first ranking's item first; of equal items the first stays."""
    longest = max(map(len, rankings), default=0)
    return distinct(row[i] for i in range(longest) for row in rankings if i < len(row))


def distinct(items: Iterable[T]) -> list[T]:
    """Return the items in order, each once: with chained rankings, the classic fusion."""
    return list(dict.fromkeys(items))


def passages_in_order(items: Sequence[int], passages: Lists) -> list[int]:
    """Return the passages of items in the order of these, each once: how relations and hyperedges give theirs."""
    return distinct(passages.at(items).tolist())


@dataclass(frozen=True, eq=False)
class Renderer:
    """Writes entities, edges, paths and passages as texts and graph hits, and fits them into token budgets."""

    graph: KnowledgeGraph
    passages: Sequence[Passage]
    counter: TokenCounter
    classic: bool = False  # budgets count descriptions one by one (forks of LightRAG); else joined rows

    def edge_text(self, edge: int) -> str:
        """Return everything that is stated of a pair."""
        return "; ".join(dict.fromkeys(map(self.graph.statement, self.graph.edges.relations[edge].tolist())))

    def entity_row(self, entity: int) -> str:
        """Return what counts of an entity: its row as JSON, or its description alone."""
        graph = self.graph
        if self.classic:
            return graph.descriptions[entity]
        return _row(entity=graph.names[entity], type=graph.types[entity], description=graph.descriptions[entity])

    def edge_row(self, edge: int) -> str:
        """Return what counts of an edge: its row as JSON, or what is stated of it alone."""
        if self.classic:
            return self.edge_text(edge)
        head, tail = (self.graph.names[e] for e in self.graph.edges.ends[edge].tolist())
        return _row(entity1=head, entity2=tail, description=self.edge_text(edge))

    def passage_row(self, passage: int) -> str:
        """Return what counts of a passage: its row as JSON, or its text alone."""
        text = self.passages[passage].content
        return text if self.classic else _row(content=text)

    def fit(self, items: Sequence[T], row: Callable[[T], str], budget: int) -> list[T]:
        """Return the longest prefix of items whose rows fit into a budget of tokens."""
        items = items[: max(budget, 0)]  # most rows have a token, and a hub has thousands
        return list(items[: self.counter.fit(list(map(row, items)), budget, None if self.classic else "\n")])

    def tokens(self, entities: Sequence[int], edges: Sequence[int]) -> int:
        """Return how many tokens the rows of entities and edges take together."""
        return self.counter.count("\n".join([*map(self.entity_row, entities), *map(self.edge_row, edges)]))

    def entity_hit(self, entity: int) -> Hit:
        """Return an entity as a graph hit, unscored; its id is its name."""
        name = self.graph.names[entity]
        return self.hit("entity", name, self.graph.descriptions[entity] or name, self.graph.entity_passages[entity])

    def relation_hits(self, edge: int) -> list[Hit]:
        """Return the relations of an edge as graph hits, unscored."""
        graph = self.graph
        return [
            self.hit("relation", graph.relation_id(r), graph.statement(r), graph.relation_passages[r])
            for r in graph.edges.relations[edge].tolist()
        ]

    def path_text(self, nodes: Sequence[int]) -> str:
        """Return a path in words: each node with type and description, joined by the labels of the edges between."""
        graph, parts = self.graph, []
        for i, node in enumerate(nodes):
            if i:
                relations = graph.edges.relations_between(nodes[i - 1], node)
                labels = dict.fromkeys(graph.labels[r] or graph.texts[r] for r in relations)
                parts.append(f"-- {', '.join(labels)} --")
            kind = f" ({graph.types[node]})" if graph.types[node] else ""
            parts.append(f"{graph.names[node]}{kind}" + (f": {d}" if (d := graph.descriptions[node]) else ""))
        return " ".join(parts)

    def path_hit(self, nodes: Sequence[int]) -> Hit:
        """Return a path as a graph hit, unscored; its id is its names, its sources are what states its edges."""
        name = " -> ".join(self.graph.names[node] for node in nodes)
        return self.hit("path", name, self.path_text(nodes), self.path_passages(nodes))

    def path_passages(self, nodes: Sequence[int]) -> list[int]:
        """Return the passages that state the edges of a path, in its order, each once."""
        edges = [edge for a, b in pairwise(nodes) if (edge := self.graph.edges.between(a, b)) is not None]
        return passages_in_order(edges, self.graph.edge_passages)

    def hit(self, kind: Kind, id_: str, text: str, passages: Iterable[int]) -> Hit:
        """Return a graph hit without a score."""
        return Hit(id_, 0.0, 0, kind, text, tuple(self.passages[int(p)].id for p in passages))


def _row(**columns: str) -> str:
    return json.dumps(columns, ensure_ascii=False)


@dataclass(frozen=True)
class GraphHits:
    """Positions of entities and edges, best first."""

    entities: Sequence[int] = ()
    edges: Sequence[int] = ()
