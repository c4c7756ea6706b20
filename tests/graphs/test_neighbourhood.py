"""Masks over a graph: growth under rules, cuts, labels of one anchor."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.graphs.knowledge import Adjacency
from gnnrag.graphs.paths import FAR, Rules, grow, label_anchor
from tests.helpers.each import each

# 0 - 1 - 2 - 3, 1 = 4 (two relations, one each way round), 4 - 3, a self-loop on 2, 5 alone.
ENDS = np.array([[0, 1], [2, 1], [2, 3], [1, 4], [4, 1], [4, 3], [2, 2]])


def mask(num_nodes, *nodes):
    out = np.zeros(num_nodes, dtype=bool)
    out[list(nodes)] = True
    return out


def random_adjacency(seed, num_nodes=60, num_relations=140):
    return Adjacency(np.random.default_rng(seed).integers(0, num_nodes, (num_relations, 2)), num_nodes)


def test_growth_stops_at_the_hops_the_filter_and_terminal_nodes():
    empty = Adjacency(np.zeros((0, 2), dtype=np.int32), 2)
    assert grow(empty, [1], 3).nodes.tolist() == [1] and len(grow(empty, [], 3)) == 0
    adjacency = Adjacency(ENDS, 6)
    near = grow(adjacency, [0], 2)
    assert near.nodes.tolist() == [0, 1, 2, 4] and len(near) == 4 and near.anchors == (0,)
    assert near.relations.tolist() == [0, 1, 3, 4, 6]  # the self-loop lies inside as well
    assert grow(adjacency, [0], 2).distance.tolist() == [0, 1, 2, FAR, 2, FAR]
    assert grow(adjacency, [0, 3], 1).distance.tolist() == [0, 1, 1, 0, 1, FAR]
    only = Rules(allowed=mask(6, 1, 2, 3))  # the anchor is exempt
    assert grow(adjacency, [0], 3, only).nodes.tolist() == [0, 1, 2, 3]
    terminal = Rules(terminal_only=mask(6, 0, 2))  # reached and not passed, except by the anchor
    assert grow(adjacency, [0], 3, terminal).distance.tolist() == [0, 1, 2, 3, 2, FAR]
    both = Rules(terminal_only=mask(6, 2, 4))
    assert grow(adjacency, [0], 3, both).nodes.tolist() == [0, 1, 2, 4]


def star(leaves):
    """A hub 0 with leaves, each joined to node `leaves + 1`."""
    return Adjacency(np.array([[0, i] for i in range(1, leaves + 1)] + [[i, leaves + 1] for i in range(1, leaves + 1)]),
                     leaves + 3)  # fmt: skip


def test_a_hub_is_reached_but_not_passed_unless_it_is_the_anchor():
    adjacency = star(5)
    rules = Rules(hub_degree=4)
    assert grow(adjacency, [1], 3, rules).nodes.tolist() == [0, 1, 6]
    assert grow(adjacency, [0], 3, rules).nodes.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_a_hub_anchor_is_expanded_to_its_best_neighbours_only():
    adjacency = star(5)
    scores = np.array([0, 0.1, 0.9, 0.2, 0.9, 0.3, 1, 1])
    near = grow(adjacency, [0], 3, Rules(hub_degree=4, hub_keep=2, scores=scores))
    assert near.nodes.tolist() == [0, 2, 4, 6]
    assert near.labels(0).distance.tolist()[:7] == [0, FAR, 1, FAR, 1, FAR, 2]
    # Another anchor's way to a leaf does not open the hub's edge to it.
    near = grow(adjacency, [0, 3], 3, Rules(hub_degree=4, hub_keep=2, scores=scores))
    assert near.distance[3] == 0
    assert near.labels(0).distance[3] == FAR
    with pytest.raises(ValueError, match="hub_keep needs"):
        Rules(hub_degree=4, hub_keep=2)


def test_a_cut_keeps_the_best_of_each_layer_and_the_way_to_them():
    # Three branches from 0: 1 with 4 and 6 behind it, 2 alone, 3 with 5 behind it.
    adjacency = Adjacency(np.array([[0, 1], [0, 2], [0, 3], [1, 4], [3, 5], [4, 6]]), 7)
    scores = np.array([0, 0, 9, 1, 0, 5, 1.0])
    near = grow(adjacency, [0], 3)
    small = near.cut(scores, 1)
    assert small.nodes.tolist() == [0, 1, 2, 3, 4, 5, 6]  # each branch leads to a kept node or is one
    assert grow(adjacency, [0], 2).cut(scores, 1).nodes.tolist() == [0, 2, 3, 5]
    assert len(near) == 7  # unchanged


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), hops=st.integers(1, 4), per_layer=st.integers(1, 4))
def test_a_cut_changes_no_distance(seed, hops, per_layer):
    adjacency = random_adjacency(seed)
    rng = np.random.default_rng(seed)
    rules = Rules(terminal_only=rng.random(60) < 0.3, hub_degree=6)
    near = grow(adjacency, rng.integers(0, 60, 2).tolist(), hops, rules)
    small = near.cut(rng.random(60), per_layer)
    again = grow(adjacency, small.anchors, hops, Rules(small.mask, rules.terminal_only, 6))
    assert np.array_equal(again.distance, small.distance)
    assert np.array_equal(small.distance[small.mask], near.distance[small.mask])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), hops=st.integers(1, 4), num_anchors=st.integers(1, 3))
def test_distances_equal_networkx(seed, hops, num_anchors):
    adjacency, rng = random_adjacency(seed), np.random.default_rng(seed)
    allowed = rng.random(60) < 0.8
    anchors = rng.choice(60, num_anchors, replace=False).tolist()
    graph = nx.Graph(adjacency.ends.tolist())
    graph.add_nodes_from(range(60))
    inside = graph.subgraph([n for n in range(60) if allowed[n] or n in anchors])
    expected = [FAR] * 60
    for anchor in anchors:
        for node, steps in nx.single_source_shortest_path_length(inside, anchor, hops).items():
            expected[node] = min(expected[node], steps)
    near = grow(adjacency, anchors, hops, Rules(allowed=allowed))
    assert near.distance.tolist() == expected
    for anchor in anchors:
        known = near.labels(anchor).distance
        steps = nx.single_source_shortest_path_length(graph.subgraph(near.nodes.tolist()), anchor, max(1, hops - 1))
        assert {n: d for n, d in enumerate(known.tolist()) if d != FAR} == dict(steps)


def test_labels_are_of_an_anchor():
    near = grow(Adjacency(ENDS, 6), [0, 4], 2)
    assert near.labels(4) is near.labels(4)
    with pytest.raises(ValueError, match=r"anchor=1: .* \[0, 4\]"):
        near.labels(1)


@each("anchor, hops, message", [(0, 0, "hops=0"), (0, 127, "hops=127"), (9, 2, "anchor 9")])
def test_anchors_and_hops_are_checked(anchor, hops, message):
    with pytest.raises(ValueError, match=message):
        grow(Adjacency(ENDS, 6), [anchor], hops)
    with pytest.raises(ValueError, match=message):
        label_anchor(Adjacency(ENDS, 6), anchor, hops)
