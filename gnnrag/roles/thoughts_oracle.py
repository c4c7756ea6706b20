"""The oracle's thoughts: ask for the gold hops that the pool still lacks."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.gold import gold_hops, ways_to_ask
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
        if not missing:
            return Thoughts(sufficient=True, flags=("nothing_missing",))
        # What was asked already and did not come up is asked again in other words.
        ways = ways_to_ask(missing, task.earlier, self.index)
        if not ways:
            return Thoughts(flags=("asked_in_vain",))
        hop, fast = ways[0]
        others = [query for other, query in ways[1:] if other is not hop] + [query for _, query in ways[1:]]
        return Thoughts(fast, others[0] if others else None)
