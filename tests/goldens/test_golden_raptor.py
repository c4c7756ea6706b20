"""RAPTOR as released (`index.tree.cluster=gmm`, `reduction=umap`): clusters, the tree's shape, both retrievals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.graphs import tree as trees
from gnnrag.graphs.tree import Layer, SummaryTree, build_tree, cluster_layer
from gnnrag.index_config import TreeConfig
from gnnrag.parts import set_up
from gnnrag.retrievers.raptor import RaptorRetriever
from tests.goldens.reading import golden

RELEASED = TreeConfig(cluster="gmm", reduction="umap")


@pytest.mark.slow
def test_clusters() -> None:
    """Of up to 20 nodes: of more, UMAP makes other clusters of the stored vectors, which have eight digits."""
    pytest.importorskip("umap")
    for case in golden("raptor_clusters.json.gz")["cases"]:
        if len(case["vectors"]) > 20 or case["error"]:
            continue
        vectors = np.array(case["vectors"], dtype=np.float32)
        names = [str(i) for i in range(len(vectors))]
        found = cluster_layer(Layer(vectors, names, np.array(case["tokens"])), RELEASED)
        assert [rows.tolist() for rows in found] == sorted(map(sorted, case["released"]))


def test_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The released clusters of each layer give its nodes, one alone in its cluster among them."""
    cases = golden("raptor_tree.json.gz")["cases"]
    for case in cases:
        layers = iter(case["released"])
        starts = iter([0, *np.cumsum([len(case["texts"]), *map(len, case["released"])]).tolist()])

        def clusters(layer: Layer, *_: Any, layers: Any = layers, starts: Any = starts) -> list[np.ndarray]:
            first = next(starts)
            return [np.array(sorted(row)) - first for row in next(layers, [])]

        monkeypatch.setattr(trees, "cluster_layer", clusters)
        size = len(case["texts"])
        leaves = Layer(np.eye(size, 4, dtype=np.float32), case["texts"], np.ones(size, dtype=np.int64))
        tree = build_tree(
            leaves, case["texts"], RELEASED, lambda rows: [" ".join(row) for row in rows],
            lambda texts: np.zeros((len(texts), 4), np.float32), len,
        )  # fmt: skip
        expected = [sorted(row) for layer in case["released"] for row in layer]
        assert [children.tolist() for children in tree.children] == expected
        assert [len(layer) for layer in tree.layers] == [size, *map(len, case["released"])]
    assert any(len(row) == 1 for case in cases for layer in case["released"] for row in layer)


def test_retrieval() -> None:
    """Of the whole tree: a walk from or through some of its layers, which the release can do, is no setting here."""
    for case in golden("raptor_retrieval.json.gz")["cases"]:
        summaries = len(case["children"])
        tree = SummaryTree(
            case["num_leaves"], Lists.of(case["layers"]), Lists.of(case["children"]), np.array(case["tokens"]),
            [""] * summaries, np.zeros((summaries, 1), np.float32),
        )  # fmt: skip
        scores = np.array(case["scores"])
        for asked in case["cases"]:
            if asked.get("start_layer") is not None or asked.get("num_layers") is not None:
                continue
            names = ("mode", "nodes", "tokens", "per_layer")
            retriever = RaptorRetriever(**{name: asked[name] for name in names if name in asked})
            set_up(retriever, index=SimpleNamespace(read=lambda _, tree=tree: tree))
            found = retriever.collapsed(scores) if asked["mode"] == "collapsed" else retriever.traverse(scores)[0]
            assert found.tolist() == asked["released"], asked
