from __future__ import annotations

import numpy as np
import pytest

from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.graphs import synonyms
from gnnrag.graphs.folding import fold
from gnnrag.graphs.synonyms import candidate_clusters, renaming

NAMES = ("DEVELOPMENT PLAN", "DEVELOPMENT PLANS", "PLANNING OFFICE", "GRID", "GRID LINES")
DEGREES = {"DEVELOPMENT PLAN": 9, "DEVELOPMENT PLANS": 4, "PLANNING OFFICE": 6, "GRID": 3, "GRID LINES": 5}
COSINES = {(0, 1): 0.93, (0, 2): 0.64, (1, 2): 0.58, (3, 4): 0.71}


def with_cosines(count, cosines, rest=0.3):
    """Return unit rows whose products are the given cosines."""
    gram = np.full((count, count), rest)
    np.fill_diagonal(gram, 1.0)
    for (i, j), cosine in cosines.items():
        gram[i, j] = gram[j, i] = cosine
    return np.linalg.cholesky(gram).astype(np.float32)


def graph_of(degrees, types=None):
    """Return a graph in which each name has its number of neighbours, of which none is named."""
    triples = tuple((name, "has", f"zz {name} {i}") for name, n in degrees.items() for i in range(n))
    details = tuple(EntityRecord(name, kind) for name, kind in (types or {}).items())
    return fold([Extraction(tuple(degrees), triples, details=details)])


def clusters(graph, vectors, names, threshold=0.6):
    rows = np.zeros((graph.num_entities, vectors.shape[1] + graph.num_entities), dtype=np.float32)
    rows[np.arange(graph.num_entities), vectors.shape[1] + np.arange(graph.num_entities)] = 1
    for name, vector in zip(names, vectors, strict=True):
        rows[graph.position[name]] = 0
        rows[graph.position[name], : len(vector)] = vector
    return [[graph.names[i] for i in c] for c in candidate_clusters(graph, rows, threshold)]


def test_golden_clusters():
    found = clusters(graph_of(DEGREES), with_cosines(5, COSINES), NAMES)
    # PLANS joins although it is below the threshold to OFFICE: only the cosine to the seed counts.
    assert found == [["DEVELOPMENT PLAN", "PLANNING OFFICE", "DEVELOPMENT PLANS"], ["GRID LINES", "GRID"]]


def test_the_curator_splits_off_what_is_another_thing():
    graph = graph_of(DEGREES)
    groups = [["DEVELOPMENT PLAN", "DEVELOPMENT PLANS"], ["PLANNING OFFICE"], ["GRID LINES"], ["GRID"]]
    assert renaming(graph, groups) == {"DEVELOPMENT PLANS": "DEVELOPMENT PLAN"}


def test_stars_are_not_chains():
    vectors = with_cosines(3, {(0, 1): 0.7, (1, 2): 0.7}, 0.1)
    assert clusters(graph_of({"a": 3, "b": 2, "c": 1}), vectors, "abc") == [["a", "b"]]
    assert clusters(graph_of({"a": 2, "b": 3, "c": 1}), vectors, "abc") == [["b", "a", "c"]]


@pytest.mark.parametrize(
    "one, other, together",
    [("person", "person", True), ("person", "event", False), ("event", "work", True), ("", "location", False)],
)
def test_people_places_and_years_join_their_own_kind_only(one, other, together):
    types = {k: v for k, v in (("a", one), ("b", other)) if v}
    found = clusters(graph_of({"a": 2, "b": 1}, types), with_cosines(2, {(0, 1): 0.9}), "ab")
    assert found == ([["a", "b"]] if together else [])


def test_a_bare_year_is_one_whatever_its_type():
    vectors = with_cosines(2, {(0, 1): 0.9})
    assert clusters(graph_of({"1824": 2, "1824 war": 1}), vectors, ("1824", "1824 war")) == []
    assert clusters(graph_of({"1824": 2, "1825": 1}), vectors, ("1824", "1825")) == [["1824", "1825"]]


def test_a_cluster_holds_the_nearest_nineteen():
    names = [f"n{i:02}" for i in range(25)]
    cosines = {(0, i): 0.65 + 0.01 * i for i in range(1, 25)}
    vectors = np.zeros((25, 25), dtype=np.float32)
    vectors[:, 0] = [1.0, *(cosines[0, i] for i in range(1, 25))]
    for i in range(1, 25):
        vectors[i, i] = np.sqrt(1 - vectors[i, 0] ** 2)
    degrees = {"n00": 60} | {name: 30 - i for i, name in enumerate(names[1:])}
    found = clusters(graph_of(degrees), vectors, names)
    assert found[0] == ["n00", *names[6:]] and len(found[0]) == 20
    assert all(set(c) <= set(names[1:6]) for c in found[1:])


def test_many_entities_are_blocked_by_their_nearest(monkeypatch):
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(6, 16))
    rows = np.repeat(centres, 10, axis=0) + 0.1 * rng.normal(size=(60, 16))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    names = [f"e{i:02}" for i in range(60)]
    graph = fold([Extraction(tuple(names))])
    whole = candidate_clusters(graph, rows, 0.8)
    monkeypatch.setattr(synonyms, "RESOLVED_EXACTLY_UP_TO", 10)
    assert candidate_clusters(graph, rows, 0.8) == whole == [list(range(k, k + 10)) for k in range(0, 60, 10)]
    monkeypatch.setattr(synonyms, "NEIGHBOURS", 4)
    assert [len(c) for c in candidate_clusters(graph, rows, 0.8)][:1] == [5]


def test_nothing_to_resolve():
    assert candidate_clusters(fold([Extraction()]), np.zeros((0, 4), np.float32)) == []


def test_merging_unites_passages_aliases_and_relations():
    more = (("Plan", "of", "Rome"), ("Plan", "is one of", "Plans"))
    rows = [
        Extraction((), (("Plan", "of", "Office"), ("Plans", "of", "Office"), *more)),
        Extraction((), (("PLANS", "for", "Grid"), ("Plan", "names", "Plan"), ("Plan", "for", "Road"))),
    ]
    renamed = renaming(fold(rows), [["Plan", "PLANS"]])
    assert renamed == {"PLANS": "Plan", "Plans": "Plan"}
    graph = fold(rows, renamed)
    assert list(graph.names) == ["Grid", "Office", "Plan", "Road", "Rome"] and graph.aliases[2] == ("PLANS", "Plans")
    assert graph.entity_passages[2].tolist() == [0, 1] and graph.edges.degrees.tolist() == [1, 1, 4, 1, 1]
    stated = zip(graph.ends[:, 1].tolist(), graph.labels, graph.weights.tolist(), strict=True)
    # Two passages' worth of `of Office` add up.
    rows = {(graph.names[tail], label): weight for tail, label, weight in stated}
    assert rows == {
        ("Grid", "for"): 1.0,
        ("Office", "of"): 2.0,
        ("Plan", "is one of"): 1.0,  # a loop, which joins nothing
        ("Plan", "names"): 1.0,
        ("Road", "for"): 1.0,
        ("Rome", "of"): 1.0,
    }
