"""Query expansion by a language model (GraphSearch, arXiv 2509.22009; the wording is ours)."""

from __future__ import annotations

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.prompting import PromptedConfig, Prompter
from gnnrag.roles.searching import ExpandTask, Expansion
from gnnrag.roles.searching_parse import parse_expansion
from gnnrag.session import Session


class PromptedExpander:
    """Asks for queries that fill the gaps; a reply that does not parse gives none (`expander_failed`).

    With the fallback `raw` such a reply is one query, as in the released code, and is not asked for again.

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedConfig

    def __init__(self, backend: Backend, config: PromptedConfig | None = None) -> None:
        self._prompter = Prompter("expander", backend, config or PromptedConfig())
        self.prompters = (self._prompter,)

    async def __call__(self, task: ExpandTask, session: Session) -> Expansion:
        """See `Role`."""

        def parse(text: str) -> Expansion:
            queries, is_raw = parse_expansion(text, task.parsing, task.fallback)
            return Expansion(queries, ("expansion_raw",) if is_raw else ())

        values = {
            "context": notes_element(task.context),
            "question": inline(task.question.text),
            "response": notes_element(task.draft),
            "analysis": notes_element(task.analysis),
        }
        outcome = await self._prompter.ask(session, values, parse)
        return outcome.value or Expansion(flags=("expander_failed",))
