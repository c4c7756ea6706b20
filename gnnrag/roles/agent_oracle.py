"""The oracle's moves: search for each gold hop that was not found, then give the gold answer. A ceiling only."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.acting import MoveTask, NextMove
from gnnrag.roles.gold import gold_hops
from gnnrag.session import Session


class OracleAgent:
    """Searches for the first gold hop that no search has found yet and that was not asked for.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: MoveTask, session: Session) -> NextMove:
        """See `Role`."""
        shown = {p.id for turn in task.turns for p in turn.passages}
        asked = {turn.argument for turn in task.turns}
        for hop in gold_hops(task.question, self.index) if task.may_search else ():
            for query in (hop.query, f"{hop.query} {hop.answer}".strip()):
                if hop.gold not in shown and query not in asked:
                    return NextMove("search", query)
        return NextMove("finish", task.question.answers[0] if task.question.answers else "")
