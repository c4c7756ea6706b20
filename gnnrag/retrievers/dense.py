"""Dense retrieval: cosine between question and passage vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from gnnrag.index.nearest import FLAT_UP_TO
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, rank_passages, vectors_of
from gnnrag.types import Query, Ranking


@part("retriever", "dense")
class DenseRetriever(Retriever):
    """Nearest passages by inner product of unit vectors."""

    # flat: all are compared; auto: of more than 200,000 passages those that the index of vectors finds
    search: Literal["auto", "flat"] = "auto"

    reads = ("embeddings",)
    accepts_vectors = True

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        vectors = vectors_of(queries, self.index.embedder) if queries else ()
        return [self._ranking(query, vector) for query, vector in zip(queries, vectors, strict=True)]

    def _ranking(self, query: Query, vector: np.ndarray) -> Ranking:
        if query.filter or self.search == "flat" or len(self.index.ids) <= FLAT_UP_TO:
            # One product a query: the rounding of a matrix-matrix product depends on the batch.
            cosines = self.index.passage_vectors @ vector
            return rank_passages(cosines, self.index.ids, query.top_k, "cosine", mask=self.mask(query))
        rows, scores, low = self.index.nearest.search(vector, query.top_k)
        high = float(scores[0]) if len(scores) else None
        return Ranking(tuple(self.index.ids[i] for i in rows.tolist()), scores, branch="cosine", low=low, high=high)
