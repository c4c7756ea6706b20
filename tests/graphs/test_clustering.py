from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.graphs.tree import Layer, anchor_clusters, cluster_layer, reduce_vectors
from gnnrag.index_config import TreeConfig
from gnnrag.io import digest, hash64

METHODS = ("anchors", "gmm")


def layer(n: int, seed: int = 0, groups: int = 5, tokens: int = 10, dim: int = 16) -> Layer:
    """Return n nodes around a few directions."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(groups, dim))[rng.integers(groups, size=n)] + 0.3 * rng.normal(size=(n, dim))
    vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    names = [digest([seed, i]) for i in range(n)]
    return Layer(vectors, names, np.full(n, tokens))


def found(nodes: Layer, **config) -> list[list[int]]:
    return [rows.tolist() for rows in cluster_layer(nodes, TreeConfig(**config))]


@pytest.mark.parametrize("method", METHODS)
def test_a_long_cluster_that_cannot_be_split_is_cut(method):
    nodes = layer(30)
    same = Layer(np.repeat(nodes.vectors[:1], 30, axis=0), nodes.names, np.full(30, 100))
    assert {i for c in found(same, cluster=method) for i in c} == set(range(30))
    clusters = found(same, cluster=method, cluster_tokens=350, cluster_size=1e9)
    assert {i for c in clusters for i in c} == set(range(30))
    assert max(map(len, clusters)) == 3  # 300 tokens fit, 400 do not


def test_a_node_longer_than_the_budget_is_alone():
    nodes = layer(9)
    tokens = np.where(np.arange(9) == 4, 1000, 10)
    clusters = found(Layer(nodes.vectors, nodes.names, tokens), cluster="gmm", cluster_tokens=50)
    assert [4] in clusters and all(len(c) <= 5 for c in clusters)


def test_gmm_finds_groups_that_lie_apart():
    rng = np.random.default_rng(3)
    centres = np.eye(40)[:4]
    rows = np.concatenate([c + 0.02 * rng.normal(size=(10, 40)) for c in centres])
    vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    names = [str(i) for i in range(40)]
    clusters = found(Layer(vectors, names, np.ones(40)), cluster="gmm", dim=3)
    groups = [set(range(10 * g, 10 * g + 10)) for g in range(4)]
    assert all(any(set(c) <= g for g in groups) for c in clusters)


def test_a_threshold_decides_how_soft_gmm_is():
    hard = found(layer(40), cluster="gmm", threshold=0.5)
    soft = found(layer(40), cluster="gmm", threshold=1e-12)
    assert sum(map(len, hard)) == 40 <= sum(map(len, soft))


class TestAnchors:
    def run(self, nodes: Layer, **config):
        clusters = anchor_clusters(nodes, TreeConfig(**{"margin": 0.05, **config}))
        return {min(rows.tolist(), key=lambda i: hash64(f":{nodes.names[i]}")): rows.tolist() for rows in clusters}

    def test_rows_join_their_nearest_centres(self):
        nodes = layer(200)
        clusters = self.run(nodes, margin=0.1)
        centres = np.array(list(clusters))
        cosines = np.round(nodes.vectors @ nodes.vectors[centres].T, 5)
        for row in set(range(200)) - set(centres.tolist()):
            best = np.sort(cosines[row])[::-1]
            joined = {int(c) for c in centres if row in clusters[int(c)]}
            assert int(centres[cosines[row].argmax()]) in joined
            assert len(joined) == (2 if best[1] >= best[0] - 0.1 else 1)
        assert all(c in members for c, members in clusters.items())
        assert 15 <= len(clusters) <= 50  # 200 / 6.7 is 30
        assert sorted(i for m in self.run(layer(200), max_parents=1).values() for i in m) == list(range(200))
        nodes = layer(10)
        (alone,) = anchor_clusters(nodes, TreeConfig(cluster_size=1e9))
        assert alone.tolist() == list(range(10)), "without a low hash the lowest is a centre"

    @settings(max_examples=25, deadline=None)
    @given(st.sets(st.integers(0, 119), min_size=1, max_size=6))
    def test_a_change_reaches_only_its_neighbourhood(self, gone):
        nodes = layer(120)
        kept = np.array([i for i in range(120) if i not in gone])
        before = self.run(nodes)
        after = {int(kept[c]): [int(kept[i]) for i in m] for c, m in self.run(nodes.take(kept)).items()}
        homeless = {i for c in gone for i in before.get(c, ())}
        for centre, members in after.items():
            assert set(before[centre]) - gone <= set(members)
            # Whoever is new here had a centre that is gone, or now has room for a second one.
            assert set(members) - set(before[centre]) <= homeless


class TestReduction:
    def test_pca_keeps_what_varies_and_has_a_fixed_sign(self):
        rng = np.random.default_rng(1)
        rows = np.zeros((30, 6), np.float32)
        rows[:, 1], rows[:, 4] = 5 * rng.normal(size=30), rng.normal(size=30)
        points = reduce_vectors(rows, "pca", 2, 0)
        assert points.shape == (30, 2)
        assert abs(np.corrcoef(points[:, 0], rows[:, 1])[0, 1]) > 0.99
        assert (reduce_vectors(rows, "pca", 2, 0) == points).all()
        # The largest loading is positive, so that the axis does not depend on how the rows are ordered.
        assert np.allclose(reduce_vectors(rows[::-1], "pca", 2, 0)[::-1], points, atol=1e-6)
        assert reduce_vectors(layer(5).vectors, "pca", 10, 0).shape == (5, 3), "no more than the rows allow"
