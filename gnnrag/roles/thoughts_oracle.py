"""The oracle's thoughts: ask for the gold hops that the pool still lacks."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.gold import gold_hops
from gnnrag.session import Session


class OracleThoughts:
    """Fast: the first gold hop that is not among the passages shown. Slow: the next one, or the first with its answer.

    Gives a method's ceiling; never a result.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        """Return the next two gold sub-questions, `sufficient` when none is missing."""
        shown = {p.id for p in task.passages}
        hops = gold_hops(task.question, self.index)
        missing = [hop for hop in hops if hop.gold not in shown]
        # What was asked already and did not come up is asked again in other words: with the answer in it.
        fresh = [hop for hop in missing if hop.query not in task.earlier]
        if not missing:
            return Thoughts(sufficient=True, flags=("nothing_missing",))
        first, *others = fresh or missing
        slow = others[0].query if others else f"{first.query} {first.answer}".strip()
        return Thoughts(first.query, slow if slow != first.query else None)
