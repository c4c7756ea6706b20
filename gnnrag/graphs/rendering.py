"""Choose entities, edges and passages of a knowledge graph within token budgets, and write them as a context.

Rows are lists of passages, one for each kept entity or relation, in order. LightRAG: Guo et al., "LightRAG: Simple and
Fast Retrieval-Augmented Generation", as released; PathRAG, MiniRAG and HyperGraphRAG inherited the `classic` rules.
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
MAX_SHARE, MIN_SHARE = 5, 1  # passages of the first and of the last entity


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


def own_passages(rows: Sequence[Sequence[int]]) -> tuple[list[list[int]], Counter[int]]:
    """Give each passage to the first row that cites it; returns non-empty rows, most cited passage first; citations."""
    rows = [row for row in rows if len(row)]
    cited = Counter(passage for row in rows for passage in distinct(row))
    seen: set[int] = set()
    owned = []
    for row in rows:
        fresh = [passage for passage in distinct(row) if passage not in seen]
        seen.update(fresh)
        owned.append(sorted(fresh, key=lambda passage: -cited[passage]))
    return owned, cited


def shares(count: int, most: int = MAX_SHARE, least: int = MIN_SHARE) -> list[int]:
    """Return how many passages each of `count` rows may give: falling from `most` to `least`, half rounded to even."""
    if count == 1:
        return [most]
    return [round(most - i / (count - 1) * (most - least)) for i in range(count)]


def pick_by_weight(owned: Sequence[Sequence[int]], most: int = MAX_SHARE, least: int = MIN_SHARE) -> list[int]:
    """Pick passages by their rows' shares (LightRAG's WEIGHT)."""
    # What a row cannot use of its share is handed out afterwards, one passage at a time, to the first row with any
    # left.
    allowed = shares(len(owned), most, min(most, least))
    used = [min(share, len(row)) for share, row in zip(allowed, owned, strict=True)]
    picked = [passage for row, n in zip(owned, used, strict=True) for passage in row[:n]]
    rest = [passage for row, n in zip(owned, used, strict=True) for passage in row[n:]]
    return picked + rest[: sum(allowed) - sum(used)]


def pick_by_vector(owned: Sequence[Sequence[int]], cosines: np.ndarray, most: int = MAX_SHARE) -> list[int]:
    """Pick the half of the shares' maximum that is nearest to the query (LightRAG's VECTOR); ties in row order."""
    # Rows left without a passage of their own count for the number that is picked.
    pool = [passage for row in owned for passage in row]
    return sorted(pool, key=lambda passage: -float(cosines[passage]))[: most * len(owned) // 2]


def pick(
    rows: Sequence[Sequence[int]],
    cosines: np.ndarray | None,
    most: int = MAX_SHARE,
    without: Iterable[int] = (),
) -> list[int]:
    """Pick by vector, or by weight where `cosines` (num_passages,) is None or NaN for a passage; none of `without`."""
    gone = set(without)
    owned, cited = own_passages([[p for p in row if p not in gone] for row in rows])
    if cosines is None or any(np.isnan(cosines[passage]) for passage in cited):
        return pick_by_weight(owned, most)
    return pick_by_vector(owned, cosines, most)


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
        citations = Counter(gathered(cited, neighbours[item]).tolist())
        for passage in passages[item].tolist():
            rank.setdefault(passage, place)
            support[passage] += citations[passage]
    return sorted(rank, key=lambda passage: (rank[passage], -support[passage]))


def passages_in_order(items: Sequence[int], passages: Lists) -> list[int]:
    """Return the passages of items in the order of these, each once: how relations and hyperedges give theirs."""
    return distinct(gathered(passages, np.asarray(items, dtype=np.int64)).tolist())


def gathered(lists: Lists, items: np.ndarray) -> np.ndarray:
    """Return some of the lists, one after the other. Shape (sum of their lengths,)."""
    return lists.values[lists.places(np.asarray(items, dtype=np.int64))]


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


def seed_edges(edges: Edges, entities: Sequence[int], keys: Sequence[np.ndarray], cap: int | None = None) -> list[int]:
    """Return the edges of entities, each once, an entity's `cap` best at most, by `keys` (num_edges,), higher first."""
    # A later key breaks the ties of those before it; ties of all are in the order of the entities.
    candidates = gathered(edges.incident, np.asarray(entities, dtype=np.int64))
    if cap is not None:
        rows = [_best_first(edges.incident[e], keys)[:cap] for e in entities]
        candidates = np.concatenate(rows) if rows else candidates[:0]
    _, first = np.unique(candidates, return_index=True)
    return _best_first(candidates[np.sort(first)], keys).tolist()


def _best_first(edges: np.ndarray, keys: Sequence[np.ndarray]) -> np.ndarray:
    return edges[np.lexsort([-key[edges] for key in reversed(keys)])] if len(edges) else edges


@dataclass(frozen=True, eq=False)
class Shown:
    """Entities, edges and passages as texts."""

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


def merge(local: GraphHits, other: GraphHits) -> GraphHits:
    """Merge the local and the global side position by position, local first."""
    return GraphHits(round_robin(local.entities, other.entities), round_robin(local.edges, other.edges))


def cut(shown: Shown, found: GraphHits, entity_tokens: int, relation_tokens: int) -> GraphHits:
    """Keep the longest prefixes that fit the budgets."""
    return GraphHits(shown.fit_entities(found.entities, entity_tokens), shown.fit_edges(found.edges, relation_tokens))


def current_passages(
    shown: Shown,
    found: GraphHits,
    near: Sequence[int],
    cosines: np.ndarray | None,
    per_item: int,
    shared: bool = False,
) -> list[int]:
    """Return the passages of the vector search (`near`), of entities and of edges, merged position by position.

    With `cosines` (num_passages,) rows pick by vector, at most `per_item` each, else by weight. Edges pick among all
    their passages if `shared`; else, as released, among those that no entity has picked.
    """
    edges = shown.edges
    ours = pick([edges.graph.entity_passages[e].tolist() for e in found.entities], cosines, per_item)
    theirs = pick([edges.passages[e].tolist() for e in found.edges], cosines, per_item, () if shared else ours)
    return round_robin(near, ours, theirs)
