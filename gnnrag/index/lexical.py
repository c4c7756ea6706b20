"""BM25 over passages, by the inverted index of their Lance table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from lance.query import MatchQuery

from gnnrag.index.tables import CONTENT, PassageTable
from gnnrag.text.normalise import with_blanks

_TIES = 64  # further passages that are looked at, so that ties at the end are broken by position
_ALL_UP_TO, _BEST = 10_000, 2_000  # passages of a corpus all of which are scored; of more, so many of the best


class Lexical:
    """Okapi BM25 in Lucene's form (k1 = 1.2, b = 0.75) over titles and texts, stemmed, without stop-words."""

    def __init__(self, table: PassageTable) -> None:
        self.table = table
        self.num_passages = len(table.row_ids)

    def search(self, query: str, count: int, condition: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and scores (float64) of the best passages that share a term with the query, best first.

        Only those that fulfil the SQL `condition` are searched. Ties are in corpus order.
        """
        if not query.strip() or not count:
            return np.zeros(0, np.int64), np.zeros(0)
        rows = self.table.dataset.scanner(
            columns=["_score"], with_row_id=True, limit=min(count + _TIES, self.num_passages),
            full_text_query=MatchQuery(with_blanks(query), CONTENT), filter=condition, prefilter=True,
        ).to_table()  # fmt: skip
        positions = np.searchsorted(self.table.row_ids, rows["_rowid"].to_numpy())
        scores = rows["_score"].to_numpy().astype(np.float64)
        order = np.lexsort((positions, -scores))[:count]
        return positions[order], scores[order]

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """Return (len(queries), num_passages) float64; zero without a shared term, or far behind in a large corpus."""
        out = np.zeros((len(queries), self.num_passages))
        count = self.num_passages if self.num_passages <= _ALL_UP_TO else _BEST
        for row, query in zip(out, queries, strict=True):
            positions, scores = self.search(query, count)
            row[positions] = scores
        return out
