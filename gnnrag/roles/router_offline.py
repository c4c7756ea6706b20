"""The router without a language model: a linear model over a question's names, clauses and telling words."""

from __future__ import annotations

from gnnrag.graphs.linking import link_question
from gnnrag.index.index import Index
from gnnrag.roles.base import RouterTask, Routing
from gnnrag.roles.router_cues import probabilities, read_cues
from gnnrag.session import Session


class OfflineRouter:
    """Class probabilities from the cues of `router_cues`; the names that a question links to come from the index.

    Args:
        index: an opened index.
    """

    stages = ("hierarchy",)

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: RouterTask, session: Session) -> Routing:
        """Route one question."""
        linked = link_question(task.question.text, self.index.hierarchy, self.index.titles)
        cues = read_cues(task.question.text, sum(name.title is not None for name in linked.names))
        return Routing(probabilities(cues), {k: round(v, 4) for k, v in cues.items() if v and k != "constant"})
