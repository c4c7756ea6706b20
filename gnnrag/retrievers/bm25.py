"""BM25: the lexical baseline of every paper."""

from __future__ import annotations

from collections.abc import Sequence

from gnnrag.index.index import Index
from gnnrag.retrievers.base import Retriever, rank_passages
from gnnrag.types import Query, Ranking


class BM25Retriever(Retriever):
    """Okapi BM25 over title and text (bm25s, Lucene's form, stemmed)."""

    channels, accepts_vectors = frozenset({"text"}), True  # by the words that go with a vector
    stages = ("lexical",)

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`."""
        rows = self.index.lexical.rows([query.text for query in queries])
        return [rank_passages(row, self.index.ids, q.top_k, "bm25") for q, row in zip(queries, rows, strict=True)]
