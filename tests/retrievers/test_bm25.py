"""BM25 against its formula by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gnnrag.index.index import Index
from gnnrag.index.lexical import tokenise
from gnnrag.parts import set_up
from gnnrag.retrievers.bm25 import BM25Retriever
from gnnrag.types import Query
from tests.helpers.parts import CORPUS


@pytest.fixture(scope="module")
def retriever(index: Index) -> BM25Retriever:
    return set_up(BM25Retriever(), index=index)


def lucene(term: str, k1: float = 1.5, b: float = 0.75) -> np.ndarray:
    """BM25 of one unstemmed term that is no stop-word, by hand; lengths are counted by the index's own tokens."""
    texts = tokenise([p.content for p in CORPUS])
    counts = np.array([row.count(term) for row in texts])
    lengths = np.array([len(row) for row in texts])
    df = (counts > 0).sum()
    idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
    return idf * counts / (counts + k1 * (1 - b + b * lengths / lengths.mean()))


@pytest.mark.parametrize("term", ["film", "oven", "harbour"])
def test_scores_by_hand(retriever: BM25Retriever, term: str) -> None:
    (ranking,) = retriever.retrieve([Query(term)])
    expected = lucene(term)
    order = sorted(range(len(CORPUS)), key=lambda i: (-expected[i], i))
    assert list(ranking.ids) == [CORPUS[i].id for i in order]
    assert ranking.scores == pytest.approx(expected[order], rel=1e-5)
    assert ranking.branch == "bm25"
    assert (ranking.low, ranking.high) == (0.0, pytest.approx(expected.max(), rel=1e-5))


def test_the_obvious(retriever: BM25Retriever) -> None:
    asked = ["a Swedish director", "castles and cathedrals", "ovens"]
    assert [r.ids[0] for r in retriever.retrieve([Query(t) for t in asked])] == ["p1", "p2", "p7"]
    (ranking,) = retriever.retrieve([Query("Night Harbour", top_k=2)])
    assert set(ranking.ids) == {"p0", "p6"}


@pytest.mark.parametrize("text", ["zzz", "the of and", "", "?!"])
def test_a_query_without_known_terms_scores_nothing(retriever: BM25Retriever, text: str) -> None:
    (ranking,) = retriever.retrieve([Query(text, top_k=3)])
    assert ranking.ids == ("p0", "p1", "p2") and not ranking.scores.any() and (ranking.low, ranking.high) == (0, 0)
