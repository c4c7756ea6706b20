"""The passage-sentence-phrase graph."""

from __future__ import annotations

import numpy as np
import pytest

from gnnrag.graphs.hierarchy import HierarchyGraph, build_hierarchy
from gnnrag.text.analyse import PassageText

TEXTS = [
    PassageText(("s0", "s1", "s0"), (("Acme", "Bonn"), ("acme",), ("Acme", "Bonn"))),
    PassageText((), ()),
    PassageText(("s1", "s2"), (("other",), ("Acmé", "Bonn"))),
]


@pytest.fixture
def graph() -> HierarchyGraph:
    return build_hierarchy(TEXTS)


def test_nodes_by_first_appearance_and_merged_by_exact_text(graph):
    assert list(graph.sentences) == ["s0", "s1", "s2"]
    assert list(graph.phrases) == ["Acme", "Bonn", "acme", "Acmé"]
    assert (graph.num_nodes, graph.first_sentence, graph.first_phrase) == (10, 3, 6)
    assert graph.passage_sentences[0].tolist() == [0, 1, 0]
    assert graph.passage_sentences[1].tolist() == []
    assert graph.sentence_phrases[1].tolist() == [2]  # the first occurrence's phrases


def test_edges_are_a_set_and_degrees_count_them(graph):
    expected = [(0, 3), (0, 4), (2, 4), (2, 5), (3, 6), (3, 7), (4, 8), (5, 7), (5, 9)]
    assert [(a, b) for a, b in zip(*graph.adjacency.nonzero(), strict=True) if a < b] == expected
    assert graph.degrees.tolist() == [2, 0, 2, 3, 3, 3, 1, 2, 1, 1]
    dense = graph.adjacency.toarray()
    assert np.array_equal(dense, dense.T)
    assert set(dense.ravel()) == {0.0, 1.0}
    assert np.array_equal(dense.sum(axis=1), graph.degrees)


def test_phrases_are_found_whatever_their_case_and_accents(graph):
    assert list(graph.phrase_keys) == ["acme", "bonn", "acme", "acme"]
    assert [graph.phrase_nodes(key) for key in ("acme", "bonn", "b", "z", "")] == [(6, 8, 9), (7,), (), (), ()]
    assert [graph.word_count(word) for word in ("acme", "bonn", "a", "z")] == [3, 2, 0, 0]


def test_blank_phrases_and_an_empty_corpus():
    assert list(build_hierarchy([PassageText(("s",), (("", " ", "x"),))]).phrases) == ["x"]
    graph = build_hierarchy([])
    assert graph.num_nodes == 0
    assert graph.adjacency.shape == (0, 0)
    assert graph.word_count("acme") == 0 and graph.phrase_nodes("acme") == ()
