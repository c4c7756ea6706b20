"""BM25: the lexical baseline of every paper."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever
from gnnrag.types import Query, Ranking

logger = logging.getLogger(__name__)


@part("retriever", "bm25")
class BM25Retriever(Retriever):
    """Okapi BM25 over title and text (Lance's inverted index, Lucene's form, stemmed)."""

    reads = ("lexical",)
    accepts_vectors = True  # it searches by the words that go with a vector

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        return [self._ranking(query) for query in queries]

    def _ranking(self, query: Query) -> Ranking:
        index, mask = self.index, self.mask(query)
        total = len(index.ids) if mask is None else int(mask.sum())
        count = min(query.top_k, total)
        condition = index.condition(query.filter) if query.filter else None
        positions, scores = index.lexical.search(query.text, count, condition)
        # Passages without a term of the query follow in corpus order.
        first = np.arange(total) if mask is None else np.flatnonzero(mask)
        others = np.setdiff1d(first[: count + len(positions)], positions)[: count - len(positions)]
        ids = tuple(index.ids[i] for i in [*positions.tolist(), *others.tolist()])
        low = float(scores.min(initial=0.0)) if len(positions) < max(total, 1) else float(scores.min())
        high = float(scores.max(initial=0.0))
        branch = "bm25"
        if total and not len(positions):
            branch = "unknown_terms"
            logger.warning(
                "bm25: no passage has a word of %r; is index.lexical.language=%s the corpus's?",
                query.text[:80],
                index.config.lexical.language,
            )
        return Ranking(ids, np.concatenate([scores, np.zeros(len(others))]), branch=branch, low=low, high=high)
