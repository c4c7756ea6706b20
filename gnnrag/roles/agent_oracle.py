"""The oracle's moves: search for each gold hop that was not found, then give the gold answer. A ceiling only."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.acting import MoveTask, NextMove
from gnnrag.roles.gold import gold_hops, ways_to_ask
from gnnrag.session import Session


class OracleAgent:
    """Searches for gold hops: first those that no search has shown, then those that no search has put first.

    What came second in its best search can lose its place in the union of all searches to what came first in another.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: MoveTask, session: Session) -> NextMove:
        """See `Role`."""
        shown = {p.id for turn in task.turns for p in turn.passages}
        first = {p.id for turn in task.turns for p in turn.passages[:1]}
        hops = gold_hops(task.question, self.index) if task.may_search else []
        asked = [turn.argument for turn in task.turns]
        for found in (shown, first):
            missing = [hop for hop in hops if hop.gold not in found]
            if ways := ways_to_ask(missing, asked, self.index):
                return NextMove("search", ways[0][1])
        return NextMove("finish", task.question.answers[0] if task.question.answers else "")
