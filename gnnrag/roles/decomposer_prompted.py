"""Sub-questions from a language model (MGranRAG and GraphSearch decompose first; the wording is ours)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline
from gnnrag.roles.parsing import clean_line, json_objects, json_value, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.roles.reading import DecomposeTask, Decomposition
from gnnrag.session import Session

_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.):])\s*(.+)$")
_NONE = re.compile(r"^\W*(?:none|n/?a)\W*$", re.IGNORECASE)


@dataclass
class PromptedDecomposerConfig(PromptedConfig):
    """Settings of `PromptedDecomposer`."""

    max_tokens: int = 1024


class PromptedDecomposer:
    """Asks for one to four sub-questions. A reply that does not parse gives none (`decomposer_failed`).

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedDecomposerConfig

    def __init__(self, backend: Backend, config: PromptedDecomposerConfig | None = None) -> None:
        self._prompter = Prompter("decomposer", backend, config or PromptedDecomposerConfig())
        self.prompters = (self._prompter,)

    async def __call__(self, task: DecomposeTask, session: Session) -> Decomposition:
        """See `Role`."""
        values = {"question": inline(task.question.text), "count": str(task.max_parts)}
        outcome = await self._prompter.ask(session, values, parse_parts)
        if outcome.value is None:
            return Decomposition(flags=("decomposer_failed",))
        return Decomposition(outcome.value[: task.max_parts])


def parse_parts(text: str) -> tuple[str, ...]:
    """Return the sub-questions of a reply: a JSON list, an object with `questions`, or a list of lines.

    Raises:
        MalformedError: there is none of these.
    """
    text = strip_markup(strip_thinking(text))
    found = json_value(text)
    if not isinstance(found, list):
        found = next((d["questions"] for d in json_objects(text) if isinstance(d.get("questions"), list)), None)
    if found is None:
        found = [match[1] for line in text.splitlines() if (match := _ITEM.match(line))]
        if not found and not _NONE.match(text):
            raise MalformedError("no list of sub-questions")
    lines = [clean_line(str(item)) for item in found if isinstance(item, str)]
    return tuple(dict.fromkeys(line for line in lines if line))
