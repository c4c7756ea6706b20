"""A query in a new direction without a language model: the start with words of the question."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.dots import Redirect, RedirectTask
from gnnrag.session import Session, folded
from gnnrag.text.normalise import FUNCTION_WORDS, words


class OfflineRedirect:
    """Tries the concept with what the terminal rule says, then with the question's content words.

    Args:
        index: not used; roles share one constructor.
    """

    def __init__(self, index: Index | None = None, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        """Return the first of these that was not sent before, or none."""
        asked = {folded(text) for text in task.history}
        concept = set(words(task.concept))
        content = [w for w in words(task.question.text) if w not in FUNCTION_WORDS and w not in concept]
        target = " ".join(task.rules.terminal_types)
        ideas = [
            f"{task.concept} {task.rules.terminal}",
            f"{task.concept} {target}",
            f"{task.concept} {' '.join(content)}",
        ]
        return Redirect(next((idea for idea in ideas if folded(idea) not in asked), None))
