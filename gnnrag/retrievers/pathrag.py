"""PathRAG: flow-pruned paths between the entities of a question, written as context.

The released code moves weight over edges, without decay on the first hop and with a gate of 0.3 (`edge_flow`); the
paper moves it over nodes (`node_flow`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise
from typing import Literal

import numpy as np

from gnnrag.graphs.paths import Path, paths_between_seeds
from gnnrag.graphs.rendering import GraphHits, above, distinct, passages_in_order, round_robin
from gnnrag.parts import part
from gnnrag.retrievers.base import rank_hits_in_order
from gnnrag.retrievers.knowledge import KnowledgeGraphRetriever, classic_passages
from gnnrag.roles.base import Keywords, KeywordsTask
from gnnrag.types import Query, Ranking

Flow = Literal["released", "paper"]
PairPaths = Mapping[tuple[int, int], Sequence[Path]]


@dataclass(frozen=True, slots=True)
class FlowPath:
    nodes: Path
    score: float


def edge_flow(paths: Sequence[Path], decay: float = 0.8, gate: float = 0.3) -> list[float]:
    """Return the score of each path of one (source, target) pair, of 1 to 3 edges, as the released code computes it.

    The source hands each first edge an equal share, undecayed; an edge passes its weight on, decayed and shared among
    the successors, only if the weight is above the gate. A path's score is the mean weight of its edges. With four or
    more first hops every share is below the default gate and nothing gets beyond the first edge. A node that
    comes at two depths makes the sums depend on the order of visits: here ascending ids, released a hash's.
    """
    if not paths:
        return []
    source, target = paths[0][0], paths[0][-1]
    after = {node: sorted(followers) for node, followers in _successors(paths).items()}
    weight: dict[tuple[int, int], float] = {}
    for y in after[source]:
        first = weight[source, y] = weight.get((source, y), 0.0) + 1.0 / len(after[source])
        if y == target or first <= gate:
            continue
        for z in after[y]:
            second = weight[y, z] = weight.get((y, z), 0.0) + decay * first / len(after[y])
            if z == target or second <= gate:
                continue
            for u in after[z]:
                weight[z, u] = weight.get((z, u), 0.0) + decay * second / len(after[z])
    return [sum(weight.get(e, 0.0) for e in pairwise(p)) / (len(p) - 1) for p in paths]


def node_flow(paths: Sequence[Path], decay: float = 0.8, gate: float = 0.05) -> list[float]:
    """Return the score of each path of one (source, target) pair, as the paper defines it.

    A node's resource is the decayed sum of what its predecessors share out; a node whose share for each successor is
    below the gate (the paper's theta) keeps it. A path's score is the resource on its nodes over its number of edges.
    Nodes are visited in topological order of the union of the paths. Where paths run both ways between two nodes there
    is none: then in order of least depth, and what would flow back is not counted.
    """
    if not paths:
        return []
    after = _successors(paths)
    resource = dict.fromkeys([*after, paths[0][-1]], 0.0)
    resource[paths[0][0]] = 1.0
    order = _visiting_order(paths, after)
    place = {node: i for i, node in enumerate(order)}
    for node in order:
        successors = sorted(after.get(node, ()))
        share = resource[node] / len(successors) if successors else 0.0
        if share >= gate:
            for other in successors:
                if place[other] > place[node]:
                    resource[other] += decay * share
    return [sum(resource[node] for node in path) / (len(path) - 1) for path in paths]


def _visiting_order(paths: Sequence[Path], after: Mapping[int, set[int]]) -> list[int]:
    before: dict[int, set[int]] = {}
    for node, others in after.items():
        for other in others:
            before.setdefault(other, set()).add(node)
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError:
        depth: dict[int, int] = {}
        for path in paths:
            for i, node in enumerate(path):
                depth[node] = min(depth.get(node, i), i)
        return sorted(depth, key=lambda node: (depth[node], node))


def pool_paths(pairs: PairPaths, score: Callable[[Sequence[Path]], list[float]], by_node_set: bool) -> list[FlowPath]:
    """Return the paths of all pairs, best first, each once, before the cap of `path_limit`.

    Paths of equal score keep the order of the pairs; the better direction of a path wins. With `by_node_set`, as
    released, paths over the same nodes in any order are one; else only a path and its reverse are.
    """
    scored = [FlowPath(p, s) for paths in pairs.values() for p, s in zip(paths, score(paths), strict=True)]
    kept: dict[Path, FlowPath] = {}
    for path in sorted(scored, key=lambda path: -path.score):
        key = tuple(sorted(path.nodes)) if by_node_set else min(path.nodes, path.nodes[::-1])
        kept.setdefault(key, path)
    return list(kept.values())


def path_limit(pairs: PairPaths, most: int = 15) -> int:
    """Return how many paths PathRAG keeps: half of those of each length, over both directions; at most `most`."""
    counts: dict[int, int] = {}
    for paths in pairs.values():
        for path in paths:
            counts[len(path)] = counts.get(len(path), 0) + 1
    return min(most, sum(count // 2 for count in counts.values()))


def reliable_paths(
    pairs: PairPaths,
    flow: Flow = "released",
    decay: float = 0.8,
    gate: float | None = None,
    most: int = 15,
    by_node_set: bool = True,
) -> list[FlowPath]:
    """Return PathRAG's paths, at most `most`, the most reliable first (a prompt shows them in reverse).

    `pairs` is of `paths_between_seeds`; gate None: 0.3 for `released`, 0.05 for `paper`.
    """
    run, usual = (edge_flow, 0.3) if flow == "released" else (node_flow, 0.05)
    bound = usual if gate is None else gate
    return pool_paths(pairs, lambda paths: run(paths, decay, bound), by_node_set)[: path_limit(pairs, most)]


def _successors(paths: Sequence[Path]) -> dict[int, set[int]]:
    after: dict[int, set[int]] = {}
    for path in paths:
        for node, other in pairwise(path):
            after.setdefault(node, set()).add(other)
    return after


@dataclass(frozen=True)
class PathRAGHits:
    """What a query found, as positions: seeds; relations with their ends; paths, most reliable first."""

    seeds: Sequence[int]
    themes: GraphHits
    paths: Sequence[FlowPath]


@part("retriever", "pathrag")
class PathRAGRetriever(KnowledgeGraphRetriever):
    """Paths between seed entities (Chen et al., "PathRAG: Pruning Graph-based RAG with Relational Paths", 2025).

    Seeds are the entities nearest to the low-level keywords; simple paths of up to 3 edges between them are scored by
    flow and pooled. Relations nearest to the high-level keywords and the question add their ends and passages. A
    missing kind of keywords is replaced by the other, or by the query.

    Channel `text` ranks passages: those of the relations and those of the seeds, position by position; then those that
    state the paths, which PathRAG's context shows as text only; then the rest by cosine (`tail`). Channel `graph` ranks
    paths (id: names joined by ` -> `), then entities and relations. Scores are 1 / rank; the branch is `paths`,
    `no_paths`, or `naive_fallback` where nothing was found.

    `profile=released` differs in these points, but follows edges in both directions, as the paper, and goes on where
    a kind of keywords or relations is missing:
    - Relations are searched by the high-level keywords alone and come by degrees and weight.
    - Their passages come before those of the seeds, and no others: paths are shown as text only.
    - No bound on the paths of a pair and on hubs; paths over the same nodes are one.
    """

    profile: Literal["fixed", "released"] = "fixed"
    top_k: int = 40  # seeds, and relations searched for
    hops: int = 3  # longest path
    flow: Flow = "released"  # of the code, or of the paper
    decay: float = 0.8  # of each hop
    gate: float | None = None  # what passes nothing on; null: 0.3, paper 0.05
    max_paths: int = 15  # paths kept
    pair_cap: int | None = 50  # fixed: paths of a pair that are looked at; null: all
    hub_degree: int | None = 500  # fixed: no path passes through nodes of more edges; null: no bound
    passage_tokens: int = 4000
    relation_tokens: int = 3000
    entity_tokens: int = 5000  # of the entities, and of the paths

    role_names, task_type = ("keywords",), KeywordsTask

    def search_texts(self, query: str, reply: Keywords) -> tuple[str, str]:
        low, high = ", ".join(reply.low), ", ".join(reply.high)
        low, high = low or high or query, high or low
        return low, high if high and self.profile == "released" else f"{query} {high}".strip()

    def rank_one(self, query: Query, reply: Keywords, vector: np.ndarray, low: np.ndarray, high: np.ndarray) -> Ranking:
        hits = self.find(low, high, self.mask(query))
        is_empty = not hits.seeds and not hits.themes.edges
        branch = "paths" if hits.paths else "naive_fallback" if is_empty else "no_paths"
        if query.channel == "graph":
            return self._graph_ranking(hits, query, branch)
        cosines = self.index.passage_vectors @ vector
        return self.with_tail(self._passages(hits), query, branch, cosines)

    def find(self, low: np.ndarray | None, high: np.ndarray | None, mask: np.ndarray | None = None) -> PathRAGHits:
        """Return seeds, relations and paths for the vectors of the keywords, of what `mask` (num_passages,) has."""
        seeds = [] if low is None else above(self.scores("entities", low, mask), self.top_k, self.cosine_floor)
        edges, shown = list[int](), self.shown
        if high is not None:
            edges = above(self.edges.best(self.scores("relations", high, mask)), self.top_k, self.cosine_floor)
        if self.profile == "released":
            edges.sort(key=lambda edge: (-self.edges.degree_sums[edge], -self.graph.edge_weights[edge]))
        edges = shown.fit(edges, shown.edge_row, self.relation_tokens)
        ends = shown.fit(distinct(self.edges.ends[edges].ravel().tolist()), shown.entity_row, self.entity_tokens)
        return PathRAGHits(seeds, GraphHits(ends, edges), self.paths(seeds))

    def paths(self, seeds: Sequence[int]) -> list[FlowPath]:
        """Return the most reliable paths between seeds."""
        is_released = self.profile == "released"
        bounds = (None, None) if is_released else (self.pair_cap, self.hub_degree)
        pairs = paths_between_seeds(self.edges, seeds, self.hops, *bounds)
        best = reliable_paths(pairs, self.flow, self.decay, self.gate, self.max_paths, by_node_set=is_released)
        return self.shown.fit(best, lambda path: self.shown.path_text(path.nodes), self.entity_tokens)

    def _passages(self, hits: PathRAGHits) -> list[int]:
        shown = self.shown
        stated = passages_in_order(hits.themes.edges, self.graph.edge_passages)
        stated = shown.fit(stated, shown.passage_row, self.passage_tokens)
        ranked = classic_passages(hits.seeds, self.graph.entity_passages, self.edges.neighbours)
        ranked = shown.fit(ranked, shown.passage_row, self.passage_tokens)
        if self.profile == "released":
            return distinct([*stated, *ranked])
        own = round_robin(stated, ranked)
        return distinct(chain(own, *(shown.path_passages(path.nodes) for path in hits.paths)))

    def _graph_ranking(self, hits: PathRAGHits, query: Query, branch: str) -> Ranking:
        paths = [self.shown.path_hit(path.nodes) for path in hits.paths]
        entities = [self.shown.entity_hit(e) for e in distinct([*hits.seeds, *hits.themes.entities])]
        relations = [hit for edge in hits.themes.edges for hit in self.shown.relation_hits(edge)]
        hits_in_order = [*paths, *round_robin(entities, relations)]
        return rank_hits_in_order(hits_in_order, query.top_k, branch, self.passes(query))
