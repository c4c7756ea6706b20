"""Write entities, edges and passages of a knowledge graph as a context, for one or two levels of keywords."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gnnrag.graphs.picking import Edges, classic_passages, distinct, passages_in_order, pick, round_robin
from gnnrag.text.tokens import TokenCounter
from gnnrag.types import Hit, Passage


@dataclass(frozen=True, eq=False)
class Shown:
    """Entities, edges and passages as texts.

    Attributes:
        edges: of a knowledge graph.
        passages: of the corpus.
        counter: of tokens.
        classic: budgets count descriptions only, one by one, as LightRAG did in 2025 and its forks do; else whole rows,
            joined.
    """

    edges: Edges
    passages: Sequence[Passage]
    counter: TokenCounter
    classic: bool = False

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
class Found:
    """Positions of entities and edges, best first."""

    entities: Sequence[int] = ()
    edges: Sequence[int] = ()


def merge(local: Found, other: Found, classic: bool = False) -> Found:
    """Merge the local and the global side: position by position, local first; classic: all of the global side first."""
    if classic:
        return Found(distinct([*other.entities, *local.entities]), distinct([*other.edges, *local.edges]))
    return Found(round_robin(local.entities, other.entities), round_robin(local.edges, other.edges))


def cut(shown: Shown, found: Found, entity_tokens: int, relation_tokens: int) -> Found:
    """Keep the longest prefixes that fit the budgets."""
    return Found(shown.fit_entities(found.entities, entity_tokens), shown.fit_edges(found.edges, relation_tokens))


def current_passages(
    shown: Shown,
    found: Found,
    near: Sequence[int],
    cosines: np.ndarray | None,
    per_item: int,
    shared: bool = False,
) -> list[int]:
    """Return the passages of the vector search, of entities and of edges, merged position by position.

    Args:
        shown: the graph and its texts.
        found: what was kept.
        near: passages of the vector search, best first.
        cosines: (num_passages,) of the query and each passage, to pick by vector; None picks by weight.
        per_item: largest share of one entity or edge.
        shared: edges pick among all their passages; else, as released, among those that no entity has picked, so that
            what both levels point at stands no higher than what one does.
    """
    edges = shown.edges
    ours = pick([edges.graph.entity_passages[e].tolist() for e in found.entities], cosines, per_item)
    theirs = pick([edges.passages[e].tolist() for e in found.edges], cosines, per_item, () if shared else ours)
    return round_robin(near, ours, theirs)


def classic_sides(shown: Shown, local: Found, other: Found, tokens: int, summed: bool = False) -> list[int]:
    """Return the passages of the global side's edges, then those of the local side's entities, each within a budget.

    `summed`: see `classic_passages`.
    """
    edges = shown.edges
    ranked = classic_passages(local.entities, edges.graph.entity_passages, edges.neighbours, summed=summed)
    stated = passages_in_order(other.edges, edges.passages)
    return distinct([*shown.fit_passages(stated, tokens), *shown.fit_passages(ranked, tokens)])
