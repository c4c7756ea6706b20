"""A query in a new direction from a language model (DotRAG's fallback query; the wording is ours)."""

from __future__ import annotations

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.dots import Redirect, RedirectTask
from gnnrag.roles.parsing import clean_line, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session


class PromptedRedirect:
    """Asks for one query. No usable reply gives none (`redirect_failed`), and the search ends.

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedConfig

    def __init__(self, backend: Backend, config: PromptedConfig | None = None) -> None:
        self._prompter = Prompter("redirect", backend, config or PromptedConfig(max_tokens=96))
        self.prompters = (self._prompter,)

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        """Ask once."""
        values = {
            "question": inline(task.question.text),
            "constraints": inline(task.rules.constraints) or "(none)",
            "concept": inline(task.concept),
            "left": str(task.tries_left),
            "history": "\n".join(f"- {inline(query)}" for query in task.history),
            "accepted": notes_element("\n".join(task.accepted) or "(none)"),
        }
        outcome = await self._prompter.ask(session, values, parse_query)
        return Redirect(outcome.value) if outcome.value else Redirect(flags=("redirect_failed",))


def parse_query(text: str) -> str:
    """Return the one line of a reply.

    Raises:
        MalformedError: nothing, or several lines.
    """
    lines = [line for line in strip_markup(strip_thinking(text)).splitlines() if line.strip()]
    query = clean_line(lines[0]) if len(lines) == 1 else None
    if query is None:
        raise MalformedError("not one line")
    return query
