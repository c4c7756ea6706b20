"""Dense retrieval: cosine between question and passage vectors, exact search with faiss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from gnnrag.index.nearest import FLAT_UP_TO
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, vectors_of
from gnnrag.types import Query, Ranking

BLOCK = 16  # below 20 queries faiss scores each query by itself, so a result cannot depend on its batch


@part("retriever", "dense")
class DenseRetriever(Retriever):
    """Nearest passages by inner product of unit vectors."""

    # flat: exact; lists: approximate, of what an index of more than 200,000 passages has; auto: lists where there are
    # any, else flat; hnsw: approximate, made anew whenever it is opened
    search: Literal["auto", "flat", "lists", "hnsw"] = "auto"
    ef_search: int = 64  # hnsw: how widely it looks

    reads = ("embeddings",)
    accepts_vectors = True

    def setup(self) -> None:
        """Open what is searched."""
        is_large = len(self.index.ids) > FLAT_UP_TO
        self.mode = self.search if self.search != "auto" else "lists" if is_large else "flat"
        self.searcher: Any = None if self.mode == "lists" else self._build_searcher()
        self.whole = len(self.index.ids) <= 20_000 and self.mode == "flat"

    def _build_searcher(self) -> Any:
        import faiss

        vectors = np.ascontiguousarray(self.index.passage_vectors, dtype=np.float32)
        searcher: Any = faiss.IndexFlatIP(vectors.shape[1])
        if self.mode == "hnsw":
            searcher = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
            searcher.hnsw.efSearch = self.ef_search
        searcher.add(vectors)
        return searcher

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`."""
        if not queries:
            return []
        vectors = vectors_of(queries, self.index.embedder)
        count = len(self.index.ids)
        out = []
        if self.mode == "lists":
            for query, vector in zip(queries, vectors, strict=True):
                rows, scores, low = self.index.nearest.search(vector, query.top_k)
                out.append(self._ranking(query, scores, rows, low))
            return out
        size = BLOCK if self.mode == "flat" else 1  # how far hnsw looks depends on how much is asked for
        for start in range(0, len(queries), size):
            block = queries[start : start + size]
            depth = count if self.whole else min(count, max(q.top_k for q in block))
            scores, rows = self.searcher.search(vectors[start : start + size], depth)
            lows = self._lows(vectors[start : start + size], scores, depth == count)
            out += [self._ranking(q, s, r, low) for q, s, r, low in zip(block, scores, rows, lows, strict=True)]
        return out

    def _lows(self, vectors: np.ndarray, scores: np.ndarray, whole: bool) -> list[float | None]:
        """Return each query's least score: minus the opposite query's best; None for hnsw (normalised by own range)."""
        if self.mode != "flat":
            return [None] * len(vectors)
        if whole:
            return scores[:, -1].astype(np.float64).tolist() if scores.shape[1] else [None] * len(vectors)
        return (-self.searcher.search(-vectors, 1)[0][:, 0].astype(np.float64)).tolist()

    def _ranking(self, query: Query, scores: np.ndarray, rows: np.ndarray, low: float | None) -> Ranking:
        is_hit = rows >= 0  # hnsw may return fewer than were asked for
        scores, rows = scores[is_hit].astype(np.float64), rows[is_hit]
        order = np.lexsort((rows, -scores))  # ties by corpus order
        scores, rows = scores[order], rows[order]
        ids, high = tuple(self.index.ids[i] for i in rows[: query.top_k]), float(scores[0]) if len(scores) else None
        return Ranking(ids, scores[: query.top_k], branch="cosine", low=low, high=high)
