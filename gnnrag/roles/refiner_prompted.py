"""Context refinement by a language model (GraphSearch, arXiv 2509.22009; the wording is ours)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline
from gnnrag.roles.prompting import PromptedConfig, Prompter
from gnnrag.roles.searching import Refined, RefineTask
from gnnrag.roles.searching_parse import cited_numbers, parse_free
from gnnrag.roles.searching_views import render_view
from gnnrag.session import Session


@dataclass
class PromptedRefinerConfig(PromptedConfig):
    """Settings of `PromptedRefiner`."""

    max_tokens: int = 1024


class PromptedRefiner:
    """Asks for what helps in a view: a paragraph that cites passages by number, or a list of triples.

    No reply gives an empty refined context (`refiner_failed`).

    Args:
        backend: the language model.
        config: settings; a prompt of the user's own replaces that of the semantic side.
    """

    config_class = PromptedRefinerConfig

    def __init__(self, backend: Backend, config: PromptedRefinerConfig | None = None) -> None:
        config = config or PromptedRefinerConfig()
        self._text = Prompter("refiner", backend, config, "refiner")
        self._triples = Prompter("refiner", backend, replace(config, prompt=""), "refiner_triples")
        self.prompters = (self._text, self._triples)

    async def __call__(self, task: RefineTask, session: Session) -> Refined:
        """See `Role`."""
        prompter = self._text if task.side == "semantic" else self._triples
        values = {"query": inline(task.query), "context": render_view(task.view)}
        outcome = await prompter.ask(session, values, parse_free)
        if outcome.value is None:
            return Refined(flags=("refiner_failed",))
        passages = task.view.passages if task.side == "semantic" else ()
        cited = (n for n in cited_numbers(outcome.value) if 1 <= n <= len(passages))
        return Refined(outcome.value, tuple(passages[n - 1].id for n in cited))
