"""BM25: the lexical baseline of every paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever
from gnnrag.types import Query, Ranking


@part("retriever", "bm25")
class BM25Retriever(Retriever):
    """Okapi BM25 over title and text (Lance's inverted index, Lucene's form, stemmed)."""

    reads = ("lexical",)
    accepts_vectors = True  # it searches by the words that go with a vector

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        return [self._ranking(query) for query in queries]

    def _ranking(self, query: Query) -> Ranking:
        index, count = self.index, min(query.top_k, len(self.index.ids))
        positions, scores = index.lexical.search(query.text, count)
        # Passages without a term of the query follow in corpus order.
        others = np.setdiff1d(np.arange(min(len(index.ids), count + len(positions))), positions)[
            : count - len(positions)
        ]
        ids = tuple(index.ids[i] for i in [*positions.tolist(), *others.tolist()])
        low = float(scores.min(initial=0.0)) if len(positions) < len(index.ids) else float(scores.min())
        high = float(scores.max(initial=0.0))
        return Ranking(ids, np.concatenate([scores, np.zeros(len(others))]), branch="bm25", low=low, high=high)
