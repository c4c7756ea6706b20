"""Masks over a graph, and loopless paths in it: against networkx and against brute force."""

from __future__ import annotations

from itertools import pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import Edges
from gnnrag.graphs.paths import (
    FAR,
    Neighbourhood,
    grow,
    k_shortest_paths,
    mean_relation_score,
    paths_between_seeds,
    paths_of_length,
)

# 0 - 1 - 2 - 3, 1 = 4 (two relations, one each way round), 4 - 3, a self-loop on 2, 5 alone.
ENDS = np.array([[0, 1], [2, 1], [2, 3], [1, 4], [4, 1], [4, 3], [2, 2]])


def mask(num_nodes, *nodes):
    out = np.zeros(num_nodes, dtype=bool)
    out[list(nodes)] = True
    return out


def random_edges(seed, num_nodes=60, num_relations=140):
    return Edges(np.random.default_rng(seed).integers(0, num_nodes, (num_relations, 2)), num_nodes)


def test_growth_stops_at_the_hops_the_filter_and_terminal_nodes():
    empty = Edges(np.zeros((0, 2), dtype=np.int32), 2)
    assert np.flatnonzero(grow(empty, [1], 3).mask).tolist() == [1] and len(grow(empty, [], 3)) == 0
    edges = Edges(ENDS, 6)
    near = grow(edges, [0], 2)
    assert np.flatnonzero(near.mask).tolist() == [0, 1, 2, 4] and len(near) == 4 and near.anchors == (0,)
    assert near.relations.tolist() == [0, 1, 3, 4, 6]  # the self-loop lies inside as well
    assert grow(edges, [0], 2).distance.tolist() == [0, 1, 2, FAR, 2, FAR]
    assert grow(edges, [0, 3], 1).distance.tolist() == [0, 1, 1, 0, 1, FAR]
    only = mask(6, 1, 2, 3)  # the anchor is exempt
    assert np.flatnonzero(grow(edges, [0], 3, only).mask).tolist() == [0, 1, 2, 3]
    terminal = mask(6, 0, 2)  # reached and not passed, except by the anchor
    assert grow(edges, [0], 3, None, terminal).distance.tolist() == [0, 1, 2, 3, 2, FAR]
    assert np.flatnonzero(grow(edges, [0], 3, closed=mask(6, 2, 4)).mask).tolist() == [0, 1, 2, 4]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), hops=st.integers(1, 4), num_anchors=st.integers(1, 3))
def test_distances_equal_networkx(seed, hops, num_anchors):
    edges, rng = random_edges(seed), np.random.default_rng(seed)
    allowed = rng.random(60) < 0.8
    anchors = rng.choice(60, num_anchors, replace=False).tolist()
    graph = nx.Graph(edges.stated.tolist())
    graph.add_nodes_from(range(60))
    inside = graph.subgraph([n for n in range(60) if allowed[n] or n in anchors])
    expected = [FAR] * 60
    for anchor in anchors:
        for node, steps in nx.single_source_shortest_path_length(inside, anchor, hops).items():
            expected[node] = min(expected[node], steps)
    near = grow(edges, anchors, hops, allowed)
    assert near.distance.tolist() == expected
    for anchor in anchors:
        known = near.through(anchor)
        steps = nx.single_source_shortest_path_length(
            graph.subgraph(np.flatnonzero(near.mask).tolist()), anchor, max(1, hops - 1)
        )
        del steps[anchor]
        assert {n: d for n, d in enumerate(known.tolist()) if d != FAR} == steps


# A diamond with a tail: 0 - {1, 2, 3} - 4 - 5, and 1 - 2.
DIAMOND = Edges(np.array([[0, 1], [0, 2], [0, 3], [1, 4], [2, 4], [3, 4], [4, 5], [1, 2]]), 6)


def brute_force(edges, allowed, closed, anchor, target, hops):
    """All loopless paths by trying every sequence of nodes."""
    inner = [n for n in range(edges.num_nodes) if allowed[n] and not closed[n] and n not in (anchor, target)]
    edges = {tuple(e) for e in edges.stated.tolist()} | {tuple(e[::-1]) for e in edges.stated.tolist()}
    found = []
    for length in range(1, hops + 1):
        for middle in permutations(inner, length - 1):
            path = (anchor, *middle, target)
            if all(e in edges for e in pairwise(path)):
                found.append(path)
    return sorted(found, key=lambda p: (len(p), p[::-1]))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 12), density=st.floats(0.5, 2.5), hops=st.integers(1, 4))
def test_equals_brute_force(seed, n, density, hops):
    rng = np.random.default_rng(seed)
    edges = Edges(rng.integers(0, n, (int(n * density), 2)), n)
    anchor, target = rng.choice(n, 2, replace=False).tolist()
    allowed, closed = rng.random(n) < 0.9, rng.random(n) < 0.1
    allowed[anchor] = True
    near = Neighbourhood(edges, hops, closed, (anchor,), np.where(allowed, 0, FAR))
    expected = brute_force(edges, allowed, closed, anchor, target, hops) if allowed[target] else []
    assert [p for n in range(1, hops + 1) for p in paths_of_length(near, anchor, target, n)] == expected
    for k in (1, 3):
        assert k_shortest_paths(near, anchor, target, k, no_score) == expected[:k]


def no_score(path):
    return 0.0


def test_ties_are_ranked_by_score_then_by_ids(monkeypatch):
    near = grow(DIAMOND, [0], 3)
    assert k_shortest_paths(near, 0, 4, 4, no_score) == [(0, 1, 4), (0, 2, 4), (0, 3, 4), (0, 2, 1, 4)]
    best = mean_relation_score(DIAMOND, np.array([0, 0, 0.2, 0, 0, 0.9, 0, 0]))
    assert k_shortest_paths(near, 0, 4, 1, best) == [(0, 3, 4)]
    # Length comes first, whatever the score.
    assert k_shortest_paths(near, 0, 4, 3, len)[:3] == [(0, 1, 4), (0, 2, 4), (0, 3, 4)]
    monkeypatch.setattr("gnnrag.graphs.paths.COLLECT_CAP", 2)
    assert k_shortest_paths(near, 0, 4, 1, best) == [(0, 1, 4)], "only so many are compared"


def test_parallel_relations_count_by_the_best_of_them():
    edges = Edges(np.array([[0, 1], [1, 0], [1, 2]]), 3)
    score = mean_relation_score(edges, np.array([0.1, 0.7, 0.3]))
    assert score((0, 1, 2)) == pytest.approx(0.5)
    assert list(paths_of_length(grow(edges, [0], 2), 0, 2, 2)) == [(0, 1, 2)]  # one path, not two


def test_seed_pairs_both_ways_with_hub_and_cap():
    found = paths_between_seeds(DIAMOND, [5, 0, 3])
    assert list(found) == [(5, 0), (5, 3), (0, 5), (0, 3), (3, 5), (3, 0)]
    assert found[5, 0] == [(5, 4, 1, 0), (5, 4, 2, 0), (5, 4, 3, 0)]
    assert found[0, 5] == [path[::-1] for path in found[5, 0]]
    assert found[0, 3] == [(0, 3), (0, 1, 4, 3), (0, 2, 4, 3)]
    assert [len(v) for v in paths_between_seeds(DIAMOND, [5, 0, 3], cap=1).values()] == [1] * 6
    assert list(paths_between_seeds(DIAMOND, [5, 0], hub_degree=3)) == []  # node 4 has four neighbours
    assert list(paths_between_seeds(DIAMOND, [4, 5], hub_degree=3)) == [(4, 5), (5, 4)]  # a hub may be an end
    assert paths_between_seeds(DIAMOND, [4]) == {}


def test_detours_that_all_fail_end_the_search_but_lose_no_shortest_path(monkeypatch):
    """0 and 1 hang on 2, which alone leads back from 30 nodes that are all joined: no second path, however long."""
    clique = [(a, b) for a in range(2, 32) for b in range(a + 1, 32)]
    edges = Edges(np.array([(0, 2), (1, 2), *clique, (31, 32)]), 33)
    near, tried = grow(edges, [0], 10), []
    asked = Lists.__getitem__
    monkeypatch.setattr(Lists, "__getitem__", lambda self, node: tried.append(node) or asked(self, node))
    assert k_shortest_paths(near, 0, 1, 3, no_score) == [(0, 2, 1)]
    assert len(tried) <= 20_001, "and the look-up of a direct edge"
    right = [(0, 2, 31, 32), (0, 2, 3, 31, 32), (0, 2, 4, 31, 32)]
    assert k_shortest_paths(near, 0, 32, 3, no_score) == right
