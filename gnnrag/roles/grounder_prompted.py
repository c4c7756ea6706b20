"""Query grounding by a language model (GraphSearch, arXiv 2509.22009; the wording is ours)."""

from __future__ import annotations

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.prompting import PromptedConfig, Prompter
from gnnrag.roles.searching import Grounded, GroundTask
from gnnrag.roles.searching_parse import parse_free, parse_triples
from gnnrag.session import Session
from gnnrag.text.subqueries import render_history, render_triples

MAX_GROWTH, MIN_ROOM = 4, 400  # a reply longer than so many times its input, and than so many characters, is no query


class PromptedGrounder:
    """Fills the references of a sub-query in; a reply that is no sub-query leaves it as it is (`grounding_kept`).

    Args:
        backend: the language model.
        config: settings; a prompt of the user's own replaces that of the semantic side.
    """

    config_class = PromptedConfig

    def __init__(self, backend: Backend, config: PromptedConfig | None = None) -> None:
        config = config or PromptedConfig()
        self._text = Prompter("grounder", backend, config, "grounder")
        own = PromptedConfig("", config.temperature, config.max_tokens, config.seed)
        self._triples = Prompter("grounder", backend, own, "grounder_triples")
        self.prompters = (self._text, self._triples)

    async def __call__(self, task: GroundTask, session: Session) -> Grounded:
        """See `Role`."""
        history = notes_element(f"{task.plan}\n\n{render_history(task.history, labels=task.labels)}")
        values = {"query": inline(task.query), "history": history}
        if task.side == "relational":
            outcome = await self._triples.ask(session, values, parse_triples)
            query, failure = render_triples(outcome.value or ()), outcome.failure
        else:
            reply = await self._text.ask(session, values, parse_free)
            query, failure = " ".join((reply.value or "").split()), reply.failure
        if failure:
            return Grounded(task.query, ("grounder_failed",))
        if not query or len(query) > max(MIN_ROOM, MAX_GROWTH * len(task.query)):
            return Grounded(task.query, ("grounding_kept",))
        return Grounded(query)
