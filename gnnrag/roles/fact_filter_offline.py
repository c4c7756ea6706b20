"""The fact filter without a language model: every candidate is kept."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.asking import FactFilterTask, FactsKept
from gnnrag.session import Session


class OfflineFactFilter:
    """Keeps all candidates in their order, as HippoRAG 2 without its recognition memory.

    Attributes:
        keeps_all: tells a retriever that it need not ask.

    Args:
        index: not used.
    """

    keeps_all = True

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: FactFilterTask, session: Session) -> FactsKept:
        """Keep all."""
        return FactsKept(tuple(range(len(task.facts))))
