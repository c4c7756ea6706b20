"""The verifier without a language model: a passage counts if the question names it or the chain does."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.base import Verdict, VerifierTask
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.session import Session


class OfflineVerifier:
    """Selects, among the passages shown, the anchors of the question and the bridges of the chain.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index, self.finder = index, BridgeFinder(index)

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        """Return the selected ids in the order shown."""
        anchors = {self.index.ids[a.passage] for a in self.finder.anchors(task.question.text)}
        bridges = set(task.chain.bridges)
        return Verdict(tuple(p.id for p in task.passages if p.id in anchors or p.title in bridges))
