"""The oracle's new direction: the gold sub-questions, in words that were not used yet."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.dots import Redirect, RedirectTask
from gnnrag.roles.gold import gold_hops, ways_to_ask
from gnnrag.session import Session, folded


class OracleRedirect:
    """Asks the next gold sub-question; without any, where the annotated answers are.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        """Return a query that was not sent before, or none."""
        hops = gold_hops(task.question, self.index) if task.question.decomposition else []
        ideas = [query for _, query in ways_to_ask(hops, task.history, self.index)]
        asked = {folded(text) for text in task.history}
        ideas += [" ".join(task.question.answers[:5])]
        return Redirect(next((idea for idea in ideas if idea and folded(idea) not in asked), None))
