"""The verifier without a language model: a passage counts if the question names it or the chain does."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.base import Verdict, VerifierTask
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.session import Session


class OfflineVerifier:
    """Selects, among the passages shown, those that the chain rests on; without a chain, the anchors of the question.

    Args:
        index: an opened index.
    """

    stages = ("hierarchy", "embeddings")

    def __init__(self, index: Index, config: None = None) -> None:
        self.index, self.finder = index, BridgeFinder(index)

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        """Return the selected ids in the order shown."""
        anchors = self.finder.read(task.question.text).anchors
        wanted = {*task.chain.support, *(self.index.ids[a.passage] for a in anchors)}
        return Verdict(tuple(p.id for p in task.passages if p.id in wanted))
