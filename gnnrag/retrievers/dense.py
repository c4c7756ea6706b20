"""Dense retrieval: cosine between question and passage vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, rank_passages, vectors_of
from gnnrag.types import Query, Ranking

_CANDIDATES = 10  # times as many are compared as are ranked, where not all are


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
        is_flat = query.filter or self.search == "flat"
        cosines = self.index.cosines(vector, 0 if is_flat else _CANDIDATES * query.top_k)
        return rank_passages(cosines, self.index.ids, query.top_k, "cosine", mask=self.mask(query))
