from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnrag.graphs.entities import build_entity_graph
from tests.helpers.golden import G1_TRIPLES, golden_graph


def weight(graph, matrix, one, other):
    """Return the weight between two nodes: an entity's name, or a passage's number."""
    i, j = (n + graph.num_entities if isinstance(n, int) else graph.position[n] for n in (one, other))
    assert matrix[i, j] == matrix[j, i]
    return matrix[i, j]


def test_golden_weights():
    graph = golden_graph()
    matrix = graph.adjacency()
    expected = {
        ("alice", "acme corp"): 4, ("alice", "springfield"): 2, ("acme corp", "shelbyville"): 2,
        ("springfield town", "shelbyville"): 2, ("springfield", "springfield town"): 1.74,
        (0, "alice"): 1, (0, "springfield"): 1, (0, "acme corp"): 1, (1, "acme corp"): 1, (1, "shelbyville"): 1,
        (1, "alice"): 1, (2, "springfield town"): 1, (2, "shelbyville"): 1,
    }  # fmt: skip
    for (one, other), value in expected.items():
        assert weight(graph, matrix, one, other) == pytest.approx(value)
    assert matrix.nnz == 2 * len(expected)
    strengths = dict(zip(graph.entities, matrix.sum(axis=1), strict=False))
    assert strengths == pytest.approx(
        {"alice": 8, "acme corp": 8, "springfield": 4.74, "shelbyville": 6, "springfield town": 4.74}
    )
    assert matrix.sum(axis=1)[-4:].tolist() == [3, 3, 2, 0]
    assert graph.passages_with.tolist() == [2, 2, 2, 1, 1]  # acme corp, alice, shelbyville, springfield, ... town


def test_a_synonym_replaces_the_count_of_its_pair():
    graph = build_entity_graph([[("a", "r", "b"), ("b", "s", "a")], [("a", "r", "b")]])
    both = replace(graph, synonyms=np.array([[0, 1], [1, 0]]), similarities=np.array([0.9, 0.9]))
    assert graph.entity_adjacency()[0, 1] == 6
    assert both.entity_adjacency()[0, 1] == pytest.approx(1.8)
    assert both.entity_adjacency(syn_overwrites=False)[0, 1] == pytest.approx(7.8)
    one_sided = replace(graph, synonyms=np.array([[0, 1]]), similarities=np.array([0.9]))
    # The released code overwrites the one direction that it found.
    assert one_sided.entity_adjacency()[0, 1] == one_sided.entity_adjacency()[1, 0] == pytest.approx(3.9)


def test_facts_are_sorted_and_know_their_passages():
    graph = build_entity_graph([[("B!", "of", "a"), ("b", "of", "A")], [], [("a", "is", "a"), ("b", "of", "a")]])
    assert graph.facts == (("a", "is", "a"), ("b", "of", "a"))
    assert [graph.fact_passages[i].tolist() for i in (0, 1)] == [[2], [0, 2]]
    assert graph.entity_adjacency()[0, 0] == 0  # no self-loop
    assert graph.slots.toarray().tolist() == [[1, 1], [0, 0], [2, 1]]  # a fact of a with itself fills one slot


def test_names_without_letters():
    triples = [[("北京", "in", "中国"), ("...", "in", "Rome")]]
    released, ours = build_entity_graph(triples), build_entity_graph(triples, "unicode")
    assert released.entities == ("", "rome")
    assert ours.entities == ("中国", "北京") and len(ours.facts) == 1
    for triples in ([], [[], []]):
        graph = build_entity_graph(triples)
        assert graph.adjacency().shape == (len(triples),) * 2 and graph.slots.shape == (len(triples), 0)


def test_the_order_of_passages_decides_nothing_but_their_numbers():
    a, b = build_entity_graph(G1_TRIPLES), build_entity_graph(G1_TRIPLES[::-1])
    assert a.facts == b.facts and a.entities == b.entities
    assert (a.slots.toarray() == b.slots.toarray()[::-1]).all()
