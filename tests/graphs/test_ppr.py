"""Personalised PageRank against worked examples, a direct solve, igraph and networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from gnnrag.graphs.ppr import PageRankOperator


def adjacency_of(num_nodes: int, edges: list[tuple[int, int, float]]) -> sparse.csr_array:
    matrix = np.zeros((num_nodes, num_nodes))
    for a, b, weight in edges:
        matrix[a, b] += weight
        matrix[b, a] += weight
    return sparse.csr_array(matrix)


def solve_directly(adjacency: sparse.csr_array, reset: np.ndarray, damping: float) -> np.ndarray:
    """The formula of specs/backbones_ppr_tree.md 1.5 as a dense linear system."""
    matrix = adjacency.toarray()
    reset = reset / reset.sum(axis=0)
    strengths = matrix.sum(axis=1)
    walk = np.divide(matrix, strengths[:, None], out=np.zeros_like(matrix), where=strengths[:, None] > 0)
    columns = []
    for r in reset.T:
        system = np.eye(len(matrix)) - damping * walk.T - damping * np.outer(r, strengths == 0)
        columns.append(np.linalg.solve(system, (1 - damping) * r))
    return np.stack(columns, axis=1)


# G1 of specs/backbones_ppr_tree.md: alice, acme corp, springfield, shelbyville, springfield town, P0..P3.
G1_PASSAGES = [(5, 0), (5, 2), (5, 1), (6, 1), (6, 3), (6, 0), (7, 4), (7, 3)]
G1_DENSE = [0.05, 0.05 * 0.384615, 0.0, 0.05 * 0.615385]
G1_SEEDS = [0.390625, 0.3515625, 1.0, 0.421875, 0.0]


def g1_graph(relation: float = 2.0, synonym: float = 2.0) -> sparse.csr_array:
    counts = [(0, 1, 2), (0, 2, 1), (1, 3, 1), (4, 3, 1)]
    edges = [(a, b, relation * count) for a, b, count in counts]
    edges += [(2, 4, synonym * 0.87), *((a, b, 1.0) for a, b in G1_PASSAGES)]
    return adjacency_of(9, edges)


@pytest.mark.parametrize(
    "case, graph, seeds, dense, damping, expected",
    [
        ("a", g1_graph(), G1_SEEDS, G1_DENSE, 0.5, [0.063312, 0.039633, 0.020296, 0.006842]),
        ("b", g1_graph(), [0.28125, 0.28125, 1, 0.421875, 0], G1_DENSE, 0.5, [0.064174, 0.038632, 0.021442, 0.007436]),
        ("e", g1_graph(relation=1, synonym=1), G1_SEEDS, G1_DENSE, 0.5, [0.092314, 0.056212, 0.028436, 0.006842]),
        ("h", g1_graph(), [0] * 5, G1_DENSE, 0.5, [0.317304, 0.131421, 0.005753, 0.181818]),
        ("i", g1_graph(synonym=4), G1_SEEDS, G1_DENSE, 0.5, [0.054892, 0.038030, 0.019882, 0.006842]),
    ],
)
def test_hipporag_goldens(case, graph, seeds, dense, damping, expected):
    scores = PageRankOperator(graph, damping).solve(np.array([*seeds, *dense]), tol=1e-10)
    np.testing.assert_allclose(scores[5:], expected, atol=1e-6)
    assert scores.sum() == pytest.approx(1.0, abs=1e-9)
    if case == "a":
        np.testing.assert_allclose(scores[:5], [0.204166, 0.170279, 0.272940, 0.143453, 0.079079], atol=1e-6)
        wrong = [0.063491, 0.039970, 0.020726, 0.007195]  # case f: isolated nodes teleport uniformly
        assert np.abs(scores[5:] - wrong).min() > 1e-4


def random_graph(rng: np.random.Generator, is_bipartite: bool) -> sparse.csr_array:
    n = int(rng.integers(4, 25))
    dense = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.2), 1)
    if is_bipartite:
        side = rng.random(n) < 0.4
        dense *= side[:, None] != side[None, :]
    isolated = rng.random(n) < 0.15
    dense[isolated] = 0
    dense[:, isolated] = 0
    return sparse.csr_array(dense + dense.T)


@pytest.mark.parametrize("is_bipartite", [False, True])
def test_matches_direct_solve_igraph_and_networkx(is_bipartite):
    import igraph

    rng = np.random.default_rng(1)
    for trial in range(50):
        graph = random_graph(rng, is_bipartite)
        n = graph.shape[0]
        damping = (0.5, 0.85, 0.2)[trial % 3]
        reset = rng.random((n, 3)) * (rng.random((n, 3)) < 0.4)
        reset[0] += 0.1
        scores = PageRankOperator(graph, damping).solve(reset, tol=1e-12)
        np.testing.assert_allclose(scores, solve_directly(graph, reset, damping), atol=1e-10)
        np.testing.assert_allclose(scores.sum(axis=0), 1.0, atol=1e-9)

        upper = sparse.triu(graph).tocoo()
        edges = list(zip(upper.row.tolist(), upper.col.tolist(), strict=True))
        peer = igraph.Graph(n=n, edges=edges)
        theirs = peer.personalized_pagerank(
            directed=False, damping=damping, reset=reset[:, 0].tolist(), weights=upper.data.tolist()
        )
        np.testing.assert_allclose(scores[:, 0], theirs, atol=1e-10)
        if trial < 10:
            named = dict(enumerate(reset[:, 0].tolist()))
            network = nx.from_scipy_sparse_array(graph)
            other = nx.pagerank(network, alpha=damping, personalization=named, tol=1e-13, max_iter=500)
            np.testing.assert_allclose(scores[:, 0], [other[i] for i in range(n)], atol=1e-9)


@pytest.mark.parametrize("is_bipartite", [False, True])
@pytest.mark.parametrize("tol", [1e-7, 1e-9])
def test_error_stays_below_tolerance_where_strengths_differ_by_orders_of_magnitude(is_bipartite, tol):
    """Along a chain whose weights grow, an error that is small where the walk starts is large where it ends."""
    edges = [(t, t + 1, 8.0**t) for t in range(15)] + ([] if is_bipartite else [(0, 2, 1.0)])
    graph, reset = adjacency_of(16, edges), np.eye(16)[:, :1]
    for damping in (0.5, 0.85):
        scores = PageRankOperator(graph, damping).solve(reset, tol)
        assert np.abs(scores - solve_directly(graph, reset, damping)).max() <= tol


def test_float32_is_close_whatever_the_scale_of_sparse_or_dense_seeds():
    graph, reset = g1_graph(), np.random.default_rng(6).random((9, 40))
    walk, exact = PageRankOperator(graph), solve_directly(graph, reset, 0.5)
    for seeds in (reset, sparse.csc_array(reset), reset * 1e-60):
        scores = walk.solve(seeds, 1e-6)
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, exact, atol=2e-6)


def test_empty_batch_and_empty_graph():
    walk = PageRankOperator(adjacency_of(3, [(0, 1, 1.0)]))
    assert walk.solve(np.zeros((3, 0))).shape == (3, 0)
    assert PageRankOperator(sparse.csr_array((0, 0))).solve(np.zeros((0, 0))).shape == (0, 0)


@pytest.mark.parametrize("bad", [np.zeros(3), np.array([1.0, -0.1, 0]), np.array([np.nan, 1, 0]), np.ones(4)])
def test_bad_resets_are_refused(bad):
    walk = PageRankOperator(adjacency_of(3, [(0, 1, 1.0), (1, 2, 1.0)]))
    with pytest.raises(ValueError, match="reset"):
        walk.solve(bad)


def test_bad_graphs_and_dampings_are_refused():
    with pytest.raises(ValueError, match="at least 0"):
        PageRankOperator(sparse.csr_array(np.array([[0, -1.0], [-1, 0]])))
    for damping in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="damping"):
            PageRankOperator(sparse.csr_array((2, 2)), damping)


@pytest.mark.parametrize(
    "seed, damping, tol", [(0, 0.5, 1e-3), (1, 0.85, 1e-3), (2, 0.5, 1e-6), (3, 0.1, 1e-2), (4, 0.95, 1e-4)]
)
def test_push_lacks_at_most_what_its_bound_says(seed: int, damping: float, tol: float) -> None:
    """Never too much, and of each node at most `tol` times the sum of its weights: hubs, isolated nodes and seeds."""
    rng = np.random.default_rng(seed)
    edges = [(0, i, 1.0) for i in range(1, 60)]  # a hub
    pairs = rng.integers(1, 90, (150, 2)).tolist()
    edges += [(a, b, w) for (a, b), w in zip(pairs, rng.random(150).tolist(), strict=True) if a != b]
    adjacency = adjacency_of(100, edges)
    reset = rng.random((100, 7)) * (rng.random((100, 7)) < 0.1)
    reset[[0, 95]] += 0.5
    exact, strengths = solve_directly(adjacency, reset, damping), adjacency.sum(axis=1)
    walk = PageRankOperator(adjacency, damping, precision="fast")
    for seeds in (reset, sparse.csc_array(reset)):
        lacking = exact - walk.solve(seeds, tol)
        assert lacking.min() > -1e-6  # float32
        assert (lacking <= tol * strengths[:, None] + 1e-6).all()
    assert (strengths[95], lacking[95].max() < 1e-6) == (0, True), "what lies on isolated nodes is exact"
    if tol >= 1e-3:
        assert lacking.max() > 1e-6, "it stopped early"
    alone = [walk.solve(reset[:, i], tol, rows=slice(3, 50)) for i in range(7)]
    np.testing.assert_allclose(np.stack(alone, axis=1), walk.solve(reset, tol, rows=slice(3, 50)), atol=1e-6)


def test_push_stays_near_the_seeds() -> None:
    path = adjacency_of(5000, [(i, i + 1, 1.0) for i in range(4999)])
    found = PageRankOperator(path, 0.5, precision="fast").solve(np.eye(1, 5000)[0], 1e-6)
    assert found[:10].min() > 1e-6 and not found[40:].any()


def test_precision_says_how_a_graph_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, reset = g1_graph(), np.array([*G1_SEEDS, *G1_DENSE])
    exact = PageRankOperator(graph).solve(reset)
    assert (PageRankOperator(graph, precision="auto").solve(reset) == exact).all(), "small graphs are solved as a whole"
    monkeypatch.setattr("gnnrag.graphs.ppr._EXACT_UP_TO", 3)
    near = PageRankOperator(graph, precision="auto").solve(reset)
    assert (near != exact).any() and np.allclose(near, exact, atol=1e-6)
