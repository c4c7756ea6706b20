"""The oracle's verifier: the gold passages among those shown."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.base import Verdict, VerifierTask
from gnnrag.session import Session


class OracleVerifier:
    """Selects exactly the gold passages that it is shown.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        """Return the gold ids, in the order shown."""
        gold = set(task.question.gold)
        return Verdict(tuple(p.id for p in task.passages if p.id in gold))
