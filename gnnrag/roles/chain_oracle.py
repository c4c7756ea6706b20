"""The oracle's chain: the gold hops, written out."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.base import Chain, ChainTask
from gnnrag.roles.gold import gold_hops
from gnnrag.session import Session


class OracleChain:
    """One line a gold hop: the sub-question, its answer, and the passage number or MISSING.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: ChainTask, session: Session) -> Chain:
        """Write the gold chain."""
        numbers = {p.id: i for i, p in enumerate(task.passages, start=1)}
        hops = gold_hops(task.question, self.index)
        lines = [f"{h.query} - {h.answer or 'unknown'} [{numbers.get(h.gold, 'MISSING')}]" for h in hops]
        return Chain("\n".join(lines), tuple(h.answer for h in hops[:-1] if h.answer))
