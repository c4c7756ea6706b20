"""How much a report helps with a query, without a language model: the cosine of both."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gnnrag.index.index import Index
from gnnrag.roles.asking import RateReportTask, ReportRating
from gnnrag.session import Session


class OfflineRating:
    """Five times the cosine of query and report; a report without a vector in the index is embedded.

    Args:
        index: an opened index with reports.
        config: there are no settings.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index
        self._vector = lru_cache(maxsize=64)(self._embed)

    async def __call__(self, task: RateReportTask, session: Session) -> ReportRating:
        """Rate the report."""
        id_, text = task.report
        vector, reports = self._vector(task.query), self.index.read("reports")
        at = self.index.read("communities").position.get(id_, -1)
        is_known = at >= 0 and len(reports.sentences[at]) > 0
        own = reports.vectors[at] if is_known else self.index.embedder.encode([text])[0]
        return ReportRating(round(5 * max(0.0, min(1.0, float(own @ vector))), 4))

    def _embed(self, query: str) -> np.ndarray:
        return self.index.embedder.encode([query], is_query=True)[0]
