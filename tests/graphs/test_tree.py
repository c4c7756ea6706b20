from __future__ import annotations

import numpy as np
import pytest

from gnnrag.graphs.tree import Layer, SummaryTree, _soft_clusters, build_tree
from gnnrag.index.embedder import HashEmbedder
from gnnrag.index_config import TreeConfig
from gnnrag.io import digest

EMBED = HashEmbedder().encode
WORDS = ["river", "mill", "bridge", "poet", "castle", "ship", "bread", "engine", "comet", "island", "clock"]


def texts(n: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [f"{i} " + " ".join(rng.choice(WORDS, 6)) for i in range(n)]


def tree(said: list[str], calls: list[list[str]] | None = None, **config) -> SummaryTree:
    def summarise(clusters: list[list[str]]) -> list[str]:
        if calls is not None:
            calls.extend(clusters)
        return [" ".join(text.split()[1] for text in cluster) + f" {len(cluster)}" for cluster in clusters]

    hashes = [digest(t) for t in said]
    leaves = Layer(EMBED(said), hashes, np.array([len(t) for t in said]))
    return build_tree(leaves, said, TreeConfig(**config), summarise, EMBED, len)


@pytest.mark.parametrize("cluster", ["anchors", "gmm"])
@pytest.mark.parametrize("n", [1, 2, 3, 11, 12, 60])
def test_every_leaf_is_reachable_from_the_top(cluster, n):
    found, again = tree(texts(n), cluster=cluster), tree(texts(n), cluster=cluster)
    assert found.texts == again.texts and (found.vectors == again.vectors).all(), "runs are equal"
    assert list(map(list, found.children)) == list(map(list, again.children))
    reached = {int(i) for node in list(found.layers)[-1] for i in found.leaves(int(node))}
    assert reached == set(range(n))
    assert (len(found.texts) == 0) == (n <= 11)
    assert [len(layer) for layer in found.layers] == sorted((len(layer) for layer in found.layers), reverse=True)
    assert len(found.tokens) == n + len(found.texts) and found.vectors.shape == (len(found.texts), 256)


def test_a_node_that_is_alone_moves_up_without_a_call():
    calls: list[list[str]] = []
    found = tree(texts(60), calls, cluster_size=2, max_parents=1)
    assert all(len(c) > 1 for c in calls) and len(calls) == len(found.texts)
    moved = [node for layer in list(found.layers)[1:] for node in layer[layer < 60].tolist()]
    assert moved
    for node in moved:
        assert found.below(node).tolist() == [node] and found.leaves(node).tolist() == [node]


def test_it_ends_at_the_top_size_and_at_the_number_of_layers():
    assert len(tree(texts(300), max_layers=1).layers) == 2
    assert len(tree(texts(300), max_layers=0).layers) == 1
    found = tree(texts(300))
    assert len(found.layers) > 2 and len(list(found.layers)[-1]) <= 11 < len(list(found.layers)[-2])


def test_children_stand_in_the_layer_below():
    found = tree(texts(200), margin=0.3)
    for below, layer in zip(found.layers, list(found.layers)[1:], strict=False):
        for node in layer.tolist():
            assert set(found.below(node).tolist()) <= set(below.tolist())
    parents = found.children.values
    assert len(parents) > len(np.unique(parents))  # clusters overlap: it is no tree in the strict sense


def test_leaves_below_are_sorted_and_distinct():
    found = tree(texts(200), margin=0.3)
    for node in range(200, 200 + len(found.texts)):
        by_hand: set[int] = set()
        todo = [node]
        while todo:
            one = todo.pop()
            if one < 200:
                by_hand.add(one)
            else:
                todo += found.children[one - 200].tolist()
        assert found.leaves(node).tolist() == sorted(by_hand)


def test_equal_texts_are_summarised_once():
    calls: list[list[str]] = []
    found = tree(texts(20) * 2, calls)
    assert all(len(c) == len(set(c)) for c in calls)
    assert {int(i) for node in list(found.layers)[-1] for i in found.leaves(int(node))} == set(range(40))


def test_the_number_of_components_has_the_lowest_bic(monkeypatch):
    from sklearn.mixture import GaussianMixture

    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal(at, 0.3, size=(n, 2)) for at, n in ((0, 14), (6, 7), (12, 3))])
    monkeypatch.setattr("gnnrag.graphs.tree.reduce_vectors", lambda *given: points)
    models = {n: GaussianMixture(n, random_state=224).fit(points) for n in range(1, 24)}
    best = min(models, key=lambda n: models[n].bic(points))
    assert len(_soft_clusters(Layer(points, [""] * 24, np.ones(24)), TreeConfig(), 5)) == best
