"""The facts and entities of a query without a language model: its own words, and the names in it."""

from __future__ import annotations

import re

from gnnrag.index.index import Index
from gnnrag.roles.asking import HyperQuery, HyperQueryTask
from gnnrag.roles.keywords_offline import OfflineKeywords
from gnnrag.session import Session

_CLAUSE = re.compile(r"[,;:?!]\s+|\s+(?=(?:that|which|who|whose|whom|where|when)\s)", re.IGNORECASE)
_MIN_WORDS = 4  # a shorter piece says nothing by itself


class OfflineHyperQuery:
    """The query itself and its clauses stand for facts, what it names for entities.

    Args:
        index: an opened index.
    """

    stages = OfflineKeywords.stages

    def __init__(self, index: Index, config: None = None) -> None:
        self._keywords = OfflineKeywords(index)

    async def __call__(self, task: HyperQueryTask, session: Session) -> HyperQuery:
        """Return sentences and names in the query's order."""
        return HyperQuery(clauses(task.query), self._keywords.find(task.query).low)


def clauses(query: str) -> tuple[str, ...]:
    """Return the query, then its clauses of four words or more where it has several."""
    query = " ".join(query.split())
    parts = [part.strip(" ?.!,;:") for part in _CLAUSE.split(query)]
    parts = [part for part in parts if len(part.split()) >= _MIN_WORDS]
    return (query, *parts) if len(parts) > 1 else (query,)
