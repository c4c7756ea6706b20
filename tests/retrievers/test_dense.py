"""Dense search: exact against numpy, approximate by its recall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gnnrag.parts import set_up
from gnnrag.retrievers.base import best_positions
from gnnrag.retrievers.dense import DenseRetriever
from gnnrag.types import Query

DIM, CLUSTERS = 32, 40


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


class Vectors:
    """An index of given vectors; a query's text is the number of the vector that it means."""

    def __init__(self, vectors: np.ndarray, queries: np.ndarray) -> None:
        self.passage_vectors, self.queries = vectors, queries
        self.ids = [f"p{i:04}" for i in range(len(vectors))]
        self.embedder = self

    def cosines(self, vector: np.ndarray, near: int) -> np.ndarray:
        self.near = near
        return self.passage_vectors @ vector

    def encode(self, texts: list[str], is_query: bool = False) -> np.ndarray:
        assert is_query
        return self.queries[[int(t) for t in texts]]


@pytest.fixture(scope="module")
def clustered() -> Any:
    """Passages in tight clusters, as topics are, and a query near each centre."""
    rng = np.random.default_rng(7)
    centres = rng.normal(size=(CLUSTERS, DIM))
    vectors = unit(np.repeat(centres, 50, axis=0) + 0.15 * rng.normal(size=(CLUSTERS * 50, DIM)))
    return Vectors(vectors, unit(centres + 0.05 * rng.normal(size=(CLUSTERS, DIM))))


@pytest.mark.parametrize(("top_k", "search", "near"), [(1, "auto", 10), (10, "flat", 0), (5000, "auto", 50_000)])
def test_against_numpy(clustered: Any, top_k: int, search: Any, near: int) -> None:
    queries = [Query(str(i), top_k=top_k) for i in range(CLUSTERS)]
    for i, ranking in enumerate(set_up(DenseRetriever(search=search), index=clustered).retrieve(queries)):
        scores = clustered.passage_vectors.astype(np.float64) @ clustered.queries[i].astype(np.float64)
        best = np.argsort(-scores, kind="stable")[:top_k]
        assert ranking.scores == pytest.approx(scores[best], abs=1e-5)
        assert list(ranking.ids[:10]) == [clustered.ids[j] for j in best[:10]]
        assert len(ranking) == min(top_k, len(scores)) and ranking.scores.dtype == np.float64
        assert [ranking.low, ranking.high] == pytest.approx([scores.min(), scores.max()], abs=1e-5)
        assert ranking.branch == "cosine" and clustered.near == near


@pytest.mark.parametrize("count", [1, 5, 400, 3000])
def test_the_best_of_many_equal_scores_come_first_in_order(count: int) -> None:
    scores = np.zeros(2000)
    scores[[3, 700, 1999, 701]] = [1, 2, 3, 2]
    best = [1999, 700, 701, 3, *(i for i in range(2000) if not scores[i])]
    assert best_positions(scores, count).tolist() == best[:count]
