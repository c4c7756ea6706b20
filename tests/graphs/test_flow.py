"""PathRAG's flow: golden examples 15.1 and 15.2 of specs/graph_kbs.md, and its quirks by name."""

import numpy as np
import pytest

from gnnrag.graphs.knowledge import Edges
from gnnrag.graphs.paths import paths_between_seeds
from gnnrag.retrievers.pathrag import FlowPath, edge_flow, node_flow, path_limit, pool_paths, reliable_paths

A, B, C, S, T = range(5)  # alphabetical, as the golden example iterates
GOLDEN = Edges(np.array([[S, A], [S, B], [A, T], [A, C], [B, C], [C, T]]), 5)


def name(path):
    return "".join("ABCST"[node] for node in path)


@pytest.fixture
def golden():
    return paths_between_seeds(GOLDEN, [S, T])


def scored(paths, flow, **settings):
    return dict(zip(map(name, paths), flow(paths, **settings), strict=True))


def close(expected):
    return {key: pytest.approx(value, abs=1e-6) for key, value in expected.items()}


def test_golden_15_1_of_both_flows(golden):
    assert scored(golden[S, T], node_flow) == close({"SAT": 0.972, "SACT": 0.808, "SBCT": 0.808})
    assert scored(golden[S, T], edge_flow) == close({"SAT": 0.35, "SACT": 0.34, "SBCT": 0.406667})
    assert scored(golden[T, S], edge_flow) == close({"TAS": 0.45, "TCAS": 0.366667, "TCBS": 0.233333})


def test_golden_15_1_pooled(golden):
    pooled = pool_paths(golden, edge_flow, by_node_set=True)
    assert {name(p.nodes): p.score for p in pooled} == close({"TAS": 0.45, "SBCT": 0.406667, "TCAS": 0.366667})
    assert path_limit(golden) == 3
    kept = reliable_paths(golden)
    assert [name(p.nodes) for p in reversed(kept)] == ["TCAS", "SBCT", "TAS"]  # the order of the prompt


H, Z = 0, 5
HUB = Edges(np.array([[H, x] for x in range(1, 5)] + [[x, Z] for x in range(1, 5)]), 6)


def test_golden_15_2_hub_gate_q_pr_5():
    """Q-PR-5: four first hops share 0.25 each, which is below the gate: nothing reaches the target."""
    paths = paths_between_seeds(HUB, [H, Z])[H, Z]
    assert edge_flow(paths) == pytest.approx([0.125] * 4, abs=1e-6)
    assert edge_flow(paths, gate=0.25) == pytest.approx([0.125] * 4, abs=1e-6)  # the gate itself does not pass
    assert edge_flow(paths, gate=0.2) == pytest.approx([(0.25 + 0.2) / 2] * 4, abs=1e-6)
    assert node_flow(paths) == pytest.approx([0.92] * 4, abs=1e-6)


def test_q_pr_4_the_released_code_takes_two_orders_of_the_same_nodes_for_one():
    pairs = {(0, 3): [(0, 1, 2, 3), (0, 2, 1, 3)], (3, 0): [(3, 2, 1, 0), (3, 1, 2, 0)]}
    assert len(pool_paths(pairs, edge_flow, by_node_set=True)) == 1
    both = pool_paths(pairs, edge_flow, by_node_set=False)
    assert sorted(min(p.nodes, p.nodes[::-1]) for p in both) == [(0, 1, 2, 3), (0, 2, 1, 3)]


def test_q_pr_6_sums_follow_ascending_ids_whatever_the_order_of_the_paths():
    """Node 1 is at depth 1 and at depth 2, so that the edge weights depend on the order of the visits."""
    paths = [(0, 1, 4), (0, 2, 1, 4), (0, 1, 3, 4)]
    scores = dict(zip(paths, edge_flow(paths), strict=True))
    again = dict(zip(paths[::-1], edge_flow(paths[::-1]), strict=True))
    assert scores == again
    # By hand, ids ascending: 01 = .5; 13 = 14 = .2; then 02 = .5, 21 = .4, which adds .16 to 13 and to 14.
    assert scores == close({(0, 1, 4): 0.43, (0, 2, 1, 4): (0.5 + 0.4 + 0.36) / 3, (0, 1, 3, 4): (0.5 + 0.36) / 3})


def test_paper_flow_on_paths_that_run_both_ways():
    """1 and 2 each come before the other: the lower id goes first, and 2's share for it is not counted."""
    paths = [(0, 1, 2, 3), (0, 2, 1, 3)]
    s1, s2 = 0.4, 0.4 + 0.8 * 0.4 / 2
    s3 = 0.8 * s1 / 2 + 0.8 * s2 / 2
    assert node_flow(paths) == pytest.approx([(1 + s1 + s2 + s3) / 3] * 2)


def test_paper_flow_stops_below_theta():
    chain = [(0, 1, 2)]
    assert node_flow(chain) == pytest.approx([(1 + 0.8 + 0.64) / 2])
    assert node_flow(chain, gate=0.81) == pytest.approx([(1 + 0.8) / 2])
    assert node_flow(chain, gate=0.8) == pytest.approx([(1 + 0.8 + 0.64) / 2])  # theta itself still passes


def test_the_limit_counts_each_length_by_itself():
    pairs = {(0, 1): [(0, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1)], (1, 0): []}
    assert path_limit(pairs) == 0 + 1
    assert path_limit({(0, 1): [(0, i, 1) for i in range(2, 100)]}) == 15
    assert path_limit({(0, 1): [(0, i, 1) for i in range(2, 100)]}, most=4) == 4


def test_equal_scores_keep_the_order_of_the_pairs():
    pairs = {(0, 1): [(0, 1)], (1, 0): [(1, 0)], (0, 2): [(0, 2)], (2, 0): [(2, 0)]}
    assert reliable_paths(pairs) == [FlowPath((0, 1), 1.0), FlowPath((0, 2), 1.0)]


def test_no_paths():
    assert edge_flow([]) == node_flow([]) == reliable_paths({}) == []
