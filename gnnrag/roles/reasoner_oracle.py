"""The oracle's steps: the gold hops that the pool lacks, one after the other. A ceiling; never a result."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.reasoning import ReasonTask, Step
from gnnrag.roles.thoughts_oracle import OracleThoughts
from gnnrag.session import Session


class OracleReasoner:
    """The first gold hop that is not shown; the last step when all are.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.thoughts = OracleThoughts(index)

    async def __call__(self, task: ReasonTask, session: Session) -> Step:
        """See `Role`."""
        asked = ThoughtsTask(task.question, task.passages, earlier=task.steps, round=len(task.steps) + 1)
        found = await self.thoughts(asked, session)
        query = found.slow if found.fast in task.steps else found.fast
        return Step(query or "", query) if query else Step(done=True)
