"""An agent without a language model: searches for the question, then for what is missing; the reader answers."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.acting import MoveTask, NextMove
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.thoughts_offline import OfflineThoughts
from gnnrag.session import Session


class OfflineAgent:
    """Searches for the question first, then for the offline thoughts; the shared reader answers.

    Args:
        index: an opened index.
    """

    stages = OfflineThoughts.stages

    def __init__(self, index: Index, config: None = None) -> None:
        self.thoughts = OfflineThoughts(index)

    async def __call__(self, task: MoveTask, session: Session) -> NextMove:
        """See `Role`."""
        if not task.may_search:
            return NextMove("finish")
        if not task.turns:
            return NextMove("search", task.question.text)
        shown = tuple({p.id: p for turn in task.turns for p in turn.passages}.values())
        asked = ThoughtsTask(task.question, shown, earlier=tuple(t.argument for t in task.turns))
        found = self.thoughts.think(asked)
        query = found.fast or found.slow
        return NextMove("search", query) if query else NextMove("finish")
