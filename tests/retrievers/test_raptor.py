"""RAPTOR: the worked example G5 of specs/backbones_ppr_tree.md 6, and what an index makes of it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gnnrag.graphs.tree import SummaryTree
from gnnrag.index.index import Index
from gnnrag.parts import ready
from gnnrag.retrievers.dense import DenseRetriever
from gnnrag.retrievers.raptor import RaptorRetriever
from gnnrag.types import Query
from tests.helpers.each import each
from tests.helpers.parts import CORPUS, small_index

# The worked example G5 of `specs/backbones_ppr_tree.md` 6: five passages, two summaries.
COSINES = np.array([0.62, 0.40, 0.35, 0.58, 0.20, 0.66, 0.45])
TOKENS = np.array([90, 110, 100, 80, 120, 130, 125])
NAMES = ("L0", "L1", "L2", "L3", "L4", "S0", "S1")


def golden(cosines=COSINES, **config) -> RaptorRetriever:
    layers = (np.arange(5), np.array([5, 6]))
    children = (np.array([0, 1, 2]), np.array([3, 4]))
    tree = SummaryTree(5, layers, children, TOKENS, ("of L0, L1, L2", "of L3, L4"), cosines[5:, None])
    index = SimpleNamespace(
        ids=list(NAMES[:5]),
        passage_vectors=cosines[:5, None],
        embedder=SimpleNamespace(encode=lambda texts, is_query: np.ones((len(texts), 1))),
        read=lambda stage: tree,
    )
    return ready(RaptorRetriever(**config), index=index)


def selected(**config) -> list[str]:
    return [NAMES[n] for n in golden(**config).select(COSINES).nodes.tolist()]


@each(
    "config, names",
    [
        ({"tokens": 300}, ["S0", "L0", "L3"]),  # 300 exactly
        ({"tokens": 299}, ["S0", "L0"]),  # nothing shorter after L3 is taken instead
        ({"nodes": 2}, ["S0", "L0"]),
        ({}, ["S0", "L0", "L3", "S1", "L1", "L2", "L4"]),
        ({"tokens": 129}, []),
        ({"mode": "traverse", "per_layer": 1}, ["S0", "L0"]),
        ({"mode": "traverse", "per_layer": 2}, ["S0", "S1", "L0", "L3"]),
        ({"mode": "traverse", "per_layer": 1, "num_layers": 1}, ["S0"]),
        ({"mode": "traverse", "per_layer": 2, "start_layer": 0}, ["L0", "L3"]),
    ],
)
def test_golden_selection(config, names):
    assert selected(**config) == names


@each(
    "gamma, scores",
    [
        (0.5, {"L0": 0.64, "L3": 0.58, "L1": 0.53, "L2": 0.505, "L4": 0.2}),
        (0.0, {"L0": 0.62, "L3": 0.58, "L1": 0.40, "L2": 0.35, "L4": 0.2}),
        (1.0, {"L0": 0.66, "L1": 0.66, "L2": 0.66, "L3": 0.58, "L4": 0.2}),
    ],
)
def test_golden_mapping(gamma, scores):
    ranking = golden(tokens=300, gamma=gamma).retrieve([Query("q")])[0]
    assert ranking.ids == tuple(scores) and ranking.scores == pytest.approx(list(scores.values()), abs=1e-6)
    assert ranking.branch == "collapsed" and ranking.low == pytest.approx(0.2)


def test_a_traversal_ranks_what_it_did_not_reach_last():
    ranking = golden(mode="traverse", per_layer=1).retrieve([Query("q")])[0]
    assert ranking.ids == ("L0", "L1", "L2", "L3", "L4")
    assert ranking.scores == pytest.approx([0.64, 0.53, 0.505, -1.42, -1.8], abs=1e-6)
    # Stopped above the passages, it reached all that is below what it kept.
    assert golden(mode="traverse", per_layer=1, num_layers=1).retrieve([Query("q")])[0].ids == ranking.ids


def test_summaries_are_hits_of_the_graph_channel_only():
    retriever = golden(summary_in_context=True)
    text, graph = retriever.retrieve([Query("q"), Query("q", channel="graph")])
    assert set(text.ids) == set(NAMES[:5]) and not text.texts
    first, second = graph.hits
    assert (first.kind, first.text, first.sources, first.rank) == ("community", "of L0, L1, L2", ("L0", "L1", "L2"), 1)
    assert (second.text, second.score) == ("of L3, L4", pytest.approx(0.45))
    plain = golden().retrieve([Query("q", channel="graph")])[0]
    assert plain.ids == graph.ids and plain.sources == graph.sources and plain.texts == ("", "")
    assert len(golden().retrieve([Query("q", channel="graph", top_k=1)])[0]) == 1
    assert len(golden(nodes=2, tokens=100).retrieve([Query("q", channel="graph")])[0]) == 0


def test_ties_go_by_position():
    even = np.full(7, 0.5)
    assert golden(even).select(even).nodes.tolist() == list(range(7))
    assert golden(even).retrieve([Query("q")])[0].ids == NAMES[:5]


class TestOnAnIndex:
    @pytest.fixture(scope="class")
    def index(self, tmp_path_factory) -> Index:
        passages = [type(p)(f"{p.id}-{n}", p.title, f"{p.text} Copy {n}.") for p in CORPUS for n in range(6)]
        return small_index(tmp_path_factory.mktemp("raptor"), passages)

    @each("mode", ["collapsed", "traverse"])
    def test_every_passage_is_ranked(self, index, mode):
        retriever = ready(RaptorRetriever(mode=mode), index=index)
        for ranking in retriever.retrieve([Query("director born in Kalmar"), Query("zzz")]):
            assert sorted(ranking.ids) == sorted(index.ids)
        assert len(retriever.retrieve([Query("a film", channel="graph")])[0]) > 0

    def test_gamma_0_is_dense(self, index):
        query = Query("Where was Vera Lindqvist born?")
        raptor = ready(RaptorRetriever(gamma=0.0), index=index).retrieve([query])[0]
        dense = ready(DenseRetriever(), index=index).retrieve([query])[0]
        assert raptor.ids[:10] == dense.ids[:10]
        assert raptor.scores == pytest.approx(dense.scores, abs=1e-6)

    def test_a_corpus_too_small_for_summaries(self, tmp_path):
        index = small_index(tmp_path, CORPUS[:3])
        for mode in ("collapsed", "traverse"):
            text, graph = ready(RaptorRetriever(mode=mode), index=index).retrieve(
                [Query("film"), Query("film", channel="graph")]
            )
            assert len(text) == 3 and len(graph) == 0
