"""RAPTOR: the worked example G5 of specs/backbones_ppr_tree.md 6, and what an index makes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnrag.graphs.tree import SummaryTree
from gnnrag.index.index import Index
from gnnrag.parts import set_up
from gnnrag.retrievers.dense import DenseRetriever
from gnnrag.retrievers.raptor import RaptorRetriever
from gnnrag.types import Query
from tests.helpers.parts import CORPUS, small_index

# Five passages, two summaries.
COSINES = np.array([0.62, 0.40, 0.35, 0.58, 0.20, 0.66, 0.45])
TOKENS = np.array([90, 110, 100, 80, 120, 130, 125])
NAMES = ("L0", "L1", "L2", "L3", "L4", "S0", "S1")
QUERY, GRAPH = Query("q"), Query("q", channel="graph")


def golden(cosines: np.ndarray = COSINES, **settings: Any) -> RaptorRetriever:
    layers = (np.arange(5), np.array([5, 6]))
    children = (np.array([0, 1, 2]), np.array([3, 4]))
    tree = SummaryTree(5, layers, children, TOKENS, ("of L0, L1, L2", "of L3, L4"), cosines[5:, None])
    index = SimpleNamespace(
        ids=list(NAMES[:5]),
        passage_vectors=cosines[:5, None],
        embedder=SimpleNamespace(encode=lambda texts, is_query: np.ones((len(texts), 1))),
        read=lambda stage: tree,
    )
    return set_up(RaptorRetriever(**settings), index=index)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"tokens": 300}, ["S0", "L0", "L3"]),  # 300 exactly
        ({"tokens": 299}, ["S0", "L0"]),  # nothing shorter after L3 is taken instead
        ({"nodes": 2}, ["S0", "L0"]),
        ({}, ["S0", "L0", "L3", "S1", "L1", "L2", "L4"]),
        ({"tokens": 129}, []),
        ({"per_layer": 1}, ["S0", "L0"]),
        ({"per_layer": 2}, ["S0", "S1", "L0", "L3"]),
    ],
)
def test_golden_selection(settings: dict[str, Any], names: list[str]) -> None:
    retriever = golden(**settings)
    nodes = retriever.traverse(COSINES)[0] if "per_layer" in settings else retriever.collapsed(COSINES)
    assert [NAMES[n] for n in nodes.tolist()] == names


@pytest.mark.parametrize(
    ("settings", "scores"),
    [
        ({"tokens": 300}, {"L0": 0.64, "L3": 0.58, "L1": 0.53, "L2": 0.505, "L4": 0.2}),
        ({"tokens": 300, "gamma": 0.0}, {"L0": 0.62, "L3": 0.58, "L1": 0.40, "L2": 0.35, "L4": 0.2}),
        ({"tokens": 300, "gamma": 1.0}, {"L0": 0.66, "L1": 0.66, "L2": 0.66, "L3": 0.58, "L4": 0.2}),
        # What a traversal did not reach comes last.
        ({"mode": "traverse", "per_layer": 1}, {"L0": 0.64, "L1": 0.53, "L2": 0.505, "L3": -1.42, "L4": -1.8}),
    ],
)
def test_golden_ranking(settings: dict[str, Any], scores: dict[str, float]) -> None:
    (ranking,) = golden(**settings).retrieve([QUERY])
    assert ranking.ids == tuple(scores) and ranking.scores == pytest.approx(list(scores.values()), abs=1e-6)
    assert ranking.branch == settings.get("mode", "collapsed") and ranking.low == pytest.approx(min(scores.values()))


@pytest.mark.parametrize("mode", ["collapsed", "traverse"])
def test_a_summary_of_what_a_filter_leaves_out_is_no_hit(mode: str) -> None:
    retriever = golden(mode=mode)
    retriever.index.matching = lambda condition: np.array([True, True, False, True, True])
    retriever.index.position = {name: i for i, name in enumerate(NAMES[:5])}
    text, graph = retriever.retrieve([Query("q", filter="x"), Query("q", "graph", filter="x")])
    assert graph.texts == ("of L3, L4",) and graph.sources == (("L3", "L4"),)
    assert set(text.ids) == {"L0", "L1", "L3", "L4"}
    if mode == "collapsed":  # S0, of which L2 is a part, lifts nothing
        assert text.scores.tolist()[:2] == pytest.approx([0.62, 0.58]) and text.ids[:2] == ("L0", "L3")


def test_summaries_are_hits_of_the_graph_channel() -> None:
    text, graph = golden().retrieve([QUERY, GRAPH])
    assert set(text.ids) == set(NAMES[:5]) and not text.texts
    first, second = graph.hits
    assert (first.kind, first.text, first.sources, first.rank) == ("community", "of L0, L1, L2", ("L0", "L1", "L2"), 1)
    assert (second.text, second.score) == ("of L3, L4", pytest.approx(0.45))
    assert len(golden().retrieve([Query("q", channel="graph", top_k=1)])[0]) == 1
    assert len(golden(nodes=2, tokens=100).retrieve([GRAPH])[0]) == 0


def test_ties_go_by_position() -> None:
    even = np.full(7, 0.5)
    assert golden(even).collapsed(even).tolist() == list(range(7))
    assert golden(even).retrieve([QUERY])[0].ids == NAMES[:5]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    passages = [type(p)(f"{p.id}-{n}", p.title, f"{p.text} Copy {n}.") for p in CORPUS for n in range(6)]
    return small_index(tmp_path_factory.mktemp("raptor"), passages)


def test_gamma_0_is_dense(index: Index) -> None:
    query = Query("Where was Vera Lindqvist born?")
    (raptor,) = set_up(RaptorRetriever(gamma=0.0), index=index).retrieve([query])
    (dense,) = set_up(DenseRetriever(), index=index).retrieve([query])
    assert raptor.ids[:10] == dense.ids[:10] and raptor.scores == pytest.approx(dense.scores, abs=1e-6)
