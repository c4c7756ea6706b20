"""BM25: the lexical baseline of every paper."""

from __future__ import annotations

from collections.abc import Sequence

from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, rank_passages
from gnnrag.types import Query, Ranking


@part("retriever", "bm25")
class BM25Retriever(Retriever):
    """Okapi BM25 over title and text (bm25s, Lucene's form, stemmed)."""

    reads = ("lexical",)
    accepts_vectors = True  # it searches by the words that go with a vector

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        rows = self.index.lexical.rows([query.text for query in queries])
        pairs = zip(queries, rows, strict=True)
        return [rank_passages(row, self.index.ids, q.top_k, "bm25", mask=self.mask(q)) for q, row in pairs]
