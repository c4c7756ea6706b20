"""Query grounding without a language model: the interim answers, put in the place of what refers to them."""

from __future__ import annotations

from typing import Any

from gnnrag.roles.searching import Grounded, GroundTask
from gnnrag.session import Session
from gnnrag.text.subqueries import answers_by_reference, answers_by_variable, fill


class OfflineGrounder:
    """Fills references with the answers of the sub-queries that they name; one without an answer stays.

    Args:
        index: not used; roles share one constructor.
    """

    def __init__(self, index: Any = None, config: None = None) -> None:
        pass

    async def __call__(self, task: GroundTask, session: Session) -> Grounded:
        """See `Role`."""
        is_graph = task.side == "relational"
        answers = answers_by_variable(task.history) if is_graph else answers_by_reference(task.history)
        if is_graph:  # inside the quotes of a triple
            answers = {k: answer.replace("\\", "\\\\").replace('"', '\\"') for k, answer in answers.items()}
        return Grounded(fill(task.query, answers, of_variables=is_graph))
