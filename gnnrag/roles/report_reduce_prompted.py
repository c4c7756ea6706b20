"""GraphRAG's reduce step by a language model (Edge et al., arXiv 2404.16130, section 3.1.6; the wording is ours)."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.asking import Reduced, ReduceTask
from gnnrag.roles.hollow import need_answer
from gnnrag.roles.parsing import strip_thinking
from gnnrag.roles.prompting import PromptedConfig, Prompter
from gnnrag.roles.report_reduce_offline import OfflineReduce
from gnnrag.session import Session


@dataclass
class PromptedReduceConfig(PromptedConfig):
    """Settings of `PromptedReduce`."""

    max_tokens: int = 4096


class PromptedReduce:
    """Asks for one answer from all points; without a usable reply the points themselves are it (`reduce_fallback`).

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedReduceConfig

    def __init__(self, backend: Backend, config: PromptedReduceConfig | None = None) -> None:
        self._prompter = Prompter("report_reduce", backend, config or PromptedReduceConfig())
        self.prompters, self._offline = (self._prompter,), OfflineReduce()

    async def __call__(self, task: ReduceTask, session: Session) -> Reduced:
        """Return the answer."""
        lines = [
            f"{n}. (score {point.score:g}) {inline(point.text)} [{', '.join(point.reports) or 'no report'}]"
            for n, point in enumerate(task.points, start=1)
        ]
        values = {
            "points": notes_element("\n".join(lines)),
            "max_words": str(task.max_words),
            "question": inline(task.query),
        }
        outcome = await self._prompter.ask(session, values, lambda text: need_answer(strip_thinking(text), task.query))
        if outcome.value is None:
            return Reduced((await self._offline(task, session)).text, ("reduce_fallback",))
        return Reduced(outcome.value)
