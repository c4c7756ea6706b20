"""Rankings by BM25; its scores by hand are in tests/index/test_lexical.py."""

from __future__ import annotations

import pytest

from gnnrag.index.index import Index
from gnnrag.parts import set_up
from gnnrag.retrievers.bm25 import BM25Retriever
from gnnrag.types import Query
from tests.helpers.parts import CORPUS


@pytest.fixture(scope="module")
def retriever(index: Index) -> BM25Retriever:
    return set_up(BM25Retriever(), index=index)


@pytest.mark.parametrize("term", ["film", "oven", "harbour"])
def test_rankings_are_those_of_the_scores(retriever: BM25Retriever, term: str) -> None:
    (ranking,) = retriever.retrieve([Query(term)])
    expected = retriever.index.bm25_scores([term])[0]
    order = sorted(range(len(CORPUS)), key=lambda i: (-expected[i], i))
    assert expected.any() and list(ranking.ids) == [CORPUS[i].id for i in order]
    assert ranking.scores == pytest.approx(expected[order], rel=1e-5)
    assert ranking.branch == "bm25"
    assert (ranking.low, ranking.high) == (0.0, pytest.approx(expected.max(), rel=1e-5))


@pytest.mark.parametrize("text", ["zzz", "the of and", "", "?!", "城市", "где"])
def test_a_query_without_known_terms_scores_nothing_and_is_named(retriever: BM25Retriever, text: str, caplog) -> None:
    (ranking,) = retriever.retrieve([Query(text, top_k=3)])
    assert ranking.branch == "unknown_terms" and "index.lexical.language=English" in caplog.text
    assert ranking.ids == ("p0", "p1", "p2") and not ranking.scores.any() and (ranking.low, ranking.high) == (0, 0)
