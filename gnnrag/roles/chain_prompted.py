"""The reasoning chain from a language model (BDTR; its prompt is unpublished, the wording is ours)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, passage_elements
from gnnrag.roles.base import Chain, ChainTask
from gnnrag.roles.hollow import NO_FACT, has_fact
from gnnrag.roles.parsing import LINE_START, clean_line, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session

_BRIDGES = re.compile(rf"{LINE_START}\W*+bridg(?:e|ing)\s+entit(?:y|ies)\W*:\s*(.*)$", re.IGNORECASE | re.MULTILINE)


@dataclass
class PromptedChainConfig(PromptedConfig):
    """Settings of the chain role."""

    max_tokens: int = 256


class PromptedChain:
    """Asks for the hops that lead to the answer.

    Without a reply the thoughts stand in (`chain_failed`), so that the verifier always has a text to check against.

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedChainConfig

    def __init__(self, backend: Backend, config: PromptedChainConfig | None = None) -> None:
        config = config or PromptedChainConfig()
        self._prompter = Prompter("chain", backend, config)
        self.prompters, self.config = (self._prompter,), config

    async def __call__(self, task: ChainTask, session: Session) -> Chain:
        """Write the chain that the passages support."""
        values = {
            "passages": passage_elements(task.passages),
            "thoughts": "\n".join(f"- {inline(t)}" for t in task.thoughts) or "(none)",
            "question": inline(task.question.text),
        }
        outcome = await self._prompter.ask(session, values, lambda text: parse_chain(text, task.question.text))
        if outcome.value is not None:
            return outcome.value
        return Chain("\n".join(task.thoughts) or task.question.text, flags=("chain_failed",))


def parse_chain(text: str, question: str = "") -> Chain:
    """Take the reply as it is, and the bridge entities from their line if there is one.

    Raises:
        MalformedError: the reply is empty, or states no fact (`has_fact`).
    """
    text = strip_markup(strip_thinking(text))
    if not has_fact(text, question):
        raise MalformedError("no fact in the chain", NO_FACT)
    line = _BRIDGES.search(text)
    # Semicolons are asked for; commas separate only where there are none, as names may hold commas.
    names = re.split(r";" if line and ";" in line[1] else r",", line[1]) if line else []
    bridges = dict.fromkeys(name for name in map(clean_line, names) if name)
    return Chain(text, tuple(bridges))
