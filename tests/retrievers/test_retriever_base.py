"""What every retriever is made of: ranking passages and graph hits, vectors of queries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.index.index import Index
from gnnrag.retrievers.base import query_vectors, rank_hits, rank_passages
from gnnrag.types import Hit

IDS = ["a", "b", "c", "d", "e"]


def rank(scores: list[float], top_k: int = 200) -> list[str]:
    return list(rank_passages(np.array(scores, dtype=np.float32), IDS[: len(scores)], top_k, "toy").ids)


def test_best_first_with_the_range_of_the_whole_corpus() -> None:
    ranking = rank_passages(np.array([0.5, -1.0, 3.0, 2.0, 0.0]), IDS, 2, "toy")
    assert ranking.ids == ("c", "d") and ranking.scores.tolist() == [3, 2] and ranking.scores.dtype == np.float64
    assert (ranking.low, ranking.high, ranking.branch, ranking.kind) == (-1.0, 3.0, "toy", "passage")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_never_ranks(bad: float) -> None:
    ranking = rank_passages(np.array([1.0, bad, 3.0]), IDS, 3, "toy")
    assert ranking.ids == ("c", "a") and (ranking.low, ranking.high) == (1.0, 3.0)
    assert rank([bad, bad]) == []


@given(st.lists(st.integers(-3, 3).map(float) | st.just(math.nan), min_size=1, max_size=40), st.integers(1, 45))
def test_against_a_plain_sort(scores: list[float], top_k: int) -> None:
    ids = [f"p{i:02}" for i in range(len(scores))]
    expected = sorted((i for i, s in enumerate(scores) if s == s), key=lambda i: (-scores[i], i))[:top_k]
    ranking = rank_passages(np.array(scores), ids, top_k, "toy")
    assert list(ranking.ids) == [ids[i] for i in expected]
    assert ranking.scores.tolist() == [scores[i] for i in expected]


def test_a_graph_ranking_keeps_the_first_of_equal_ids_with_its_text_and_sources():
    hits = [
        Hit("a", 1.0, 1, "entity", "A", ("p1",)),
        Hit("a | r | b", 0.5, 2, "relation", "A r B", ("p1", "p2")),
        Hit("a", 0.2, 3, "entity", "again", ()),
        Hit("c", 0.1, 4, "path", "", ()),
    ]
    found = rank_hits(hits, 2, "local")
    assert [(h.id, h.kind, h.text, h.sources, h.rank) for h in found.hits] == [
        ("a", "entity", "A", ("p1",), 1),
        ("a | r | b", "relation", "A r B", ("p1", "p2"), 2),
    ]
    assert rank_hits(hits, 9, "local").ids == ("a", "a | r | b", "c") and not len(rank_hits([], 5, "local"))


def test_an_empty_query_has_a_vector_and_an_empty_search_has_none(index: Index) -> None:
    a, b, empty = index.embedder.encode(["a", "b", ""], True)
    assert [
        [None if v is None else v.tolist() for v in row]
        for row in query_vectors(index.embedder, [("b", "", "a"), ("", "", "b"), ("",)])
    ] == [[b.tolist(), None, a.tolist()], [empty.tolist(), None, b.tolist()], [empty.tolist()]]
    assert query_vectors(index.embedder, []) == []
