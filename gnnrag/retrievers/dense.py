"""Dense retrieval: cosine between question and passage vectors, exact search with faiss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from gnnrag.index.nearest import FLAT_UP_TO
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, best_positions, vectors_of
from gnnrag.types import Query, Ranking

SORTED_UP_TO = 20_000  # passages of a corpus all of which are sorted for each query
BLOCK = 16  # below 20 queries faiss scores each query by itself, so a result cannot depend on its batch


@part("retriever", "dense")
class DenseRetriever(Retriever):
    """Nearest passages by inner product of unit vectors."""

    # flat: exact; lists: approximate, of what an index of more than 200,000 passages has; auto: lists where there are
    # any, else flat
    search: Literal["auto", "flat", "lists"] = "auto"

    reads = ("embeddings",)
    accepts_vectors = True

    def setup(self) -> None:
        """Open what is searched: all vectors, or the lists of the index."""
        is_large = len(self.index.ids) > FLAT_UP_TO
        self.has_lists = self.search == "lists" or (self.search == "auto" and is_large)
        if not self.has_lists:
            import faiss

            vectors = np.ascontiguousarray(self.index.passage_vectors, dtype=np.float32)
            self.searcher: Any = faiss.IndexFlatIP(vectors.shape[1])
            self.searcher.add(vectors)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        if not queries:
            return []
        vectors = vectors_of(queries, self.index.embedder)
        if any(query.filter for query in queries):
            pairs = zip(queries, vectors, strict=True)
            return [self._filtered(q, v) if q.filter else self._search([q], v[None])[0] for q, v in pairs]
        return self._search(queries, vectors)

    def _filtered(self, query: Query, vector: np.ndarray) -> Ranking:
        """Compare with all that passes, whatever the lists hold."""
        rows = np.flatnonzero(self.index.matching(query.filter))
        scores = self.index.passage_vectors[rows] @ vector
        best = best_positions(scores, query.top_k)
        return self._ranking(query, scores[best], rows[best], float(scores.min()) if len(rows) else None)

    def _search(self, queries: Sequence[Query], vectors: np.ndarray) -> list[Ranking]:
        out = []
        if self.has_lists:
            for query, vector in zip(queries, vectors, strict=True):
                rows, scores, low = self.index.nearest.search(vector, query.top_k)
                out.append(self._ranking(query, scores, rows, low))
            return out
        count = len(self.index.ids)
        for start in range(0, len(queries), BLOCK):
            block, near = queries[start : start + BLOCK], vectors[start : start + BLOCK]
            depth = count if count <= SORTED_UP_TO else min(count, max(q.top_k for q in block))
            scores, rows = self.searcher.search(near, depth)
            # The least score of a query is minus the best one of the opposite query.
            lows = scores[:, -1:] if depth == count else -self.searcher.search(-near, 1)[0]
            out += [
                self._ranking(query, s, r, float(low[0]) if count else None)
                for query, s, r, low in zip(block, scores, rows, lows, strict=True)
            ]
        return out

    def _ranking(self, query: Query, scores: np.ndarray, rows: np.ndarray, low: float | None) -> Ranking:
        is_hit = rows >= 0  # lists may hold fewer than were asked for
        scores, rows = scores[is_hit].astype(np.float64), rows[is_hit]
        order = np.lexsort((rows, -scores))  # ties by corpus order
        scores, rows = scores[order], rows[order]
        ids, high = tuple(self.index.ids[i] for i in rows[: query.top_k]), float(scores[0]) if len(scores) else None
        return Ranking(ids, scores[: query.top_k], branch="cosine", low=low, high=high)
