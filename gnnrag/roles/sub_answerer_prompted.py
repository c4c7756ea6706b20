"""Interim answers by a language model (GraphSearch, arXiv 2509.22009; the wording is ours)."""

from __future__ import annotations

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.hollow import need_answer
from gnnrag.roles.prompting import PromptedConfig, Prompter
from gnnrag.roles.searching import SubAnswer, SubAnswerTask
from gnnrag.roles.searching_parse import parse_free
from gnnrag.session import Session
from gnnrag.text.subqueries import render_history


class PromptedSubAnswerer:
    """Asks for the answer of one sub-query from the history and its context; no reply gives an empty one.

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedConfig

    def __init__(self, backend: Backend, config: PromptedConfig | None = None) -> None:
        config = config or PromptedConfig()
        self._plain = Prompter("sub_answerer", backend, config)
        self._short = Prompter("sub_answerer", backend, config, options=("short",))
        self.prompters = (self._plain, self._short)

    async def __call__(self, task: SubAnswerTask, session: Session) -> SubAnswer:
        """See `Role`."""
        history = render_history(task.history, labels=task.labels)
        context = "\n\n".join(part for part in (history, task.context) if part)
        values = {"context": notes_element(context), "query": inline(task.query)}
        outcome = await (self._short if task.short else self._plain).ask(
            session, values, lambda text: need_answer(parse_free(text), task.query)
        )
        if outcome.value is None:
            return SubAnswer(flags=("sub_answerer_failed",))
        return SubAnswer(outcome.value)
