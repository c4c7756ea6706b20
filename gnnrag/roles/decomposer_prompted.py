"""Sub-questions from a language model (MGranRAG and GraphSearch decompose first; the wording is ours)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline
from gnnrag.roles.parsing import clean_line, json_objects, json_value, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.roles.reading import DecomposeTask, Decomposition
from gnnrag.roles.searching_parse import parse_linked, parse_triple_parts, released_parts
from gnnrag.session import Session

_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.):])\s*(.+)$")
_NONE = re.compile(r"^\W*(?:none|n/?a)\W*$", re.IGNORECASE)


@dataclass
class PromptedDecomposerConfig(PromptedConfig):
    """Settings of `PromptedDecomposer`."""

    max_tokens: int = 1024


class PromptedDecomposer:
    """Asks for sub-questions, by default for one to four. A reply that does not parse gives none (`decomposer_failed`).

    A prompt of the user's own replaces that of plain sub-questions; the other forms have other formats.

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedDecomposerConfig

    def __init__(self, backend: Backend, config: PromptedDecomposerConfig | None = None) -> None:
        config = config or PromptedDecomposerConfig()
        self._plain = Prompter("decomposer", backend, config)
        own = replace(config, prompt="")
        self._linked = Prompter("decomposer", backend, own, "decomposer_linked")
        self._triples = Prompter("decomposer", backend, own, "decomposer_triples")
        self.prompters = (self._plain, self._linked, self._triples)

    async def __call__(self, task: DecomposeTask, session: Session) -> Decomposition:
        """See `Role`."""
        values = {"question": inline(task.question.text)}
        flags: tuple[str, ...] = ()
        parts: tuple[str, ...] | None = None
        if task.form != "plain" and task.parsing == "released":
            prompter = self._triples if task.form == "triples" else self._linked
            outcome = await prompter.ask(session, values, lambda text: released_parts(text, task.form))
            parts, reply = outcome.value, outcome.reply
        elif task.form == "triples":
            found = await self._triples.ask(session, values, parse_triple_parts)
            parts, dropped = found.value or (None, 0)
            flags, reply = ("malformed_triple",) * dropped, found.reply
        else:
            is_plain = task.form == "plain"
            prompter, parse = (self._plain, parse_parts) if is_plain else (self._linked, parse_linked)
            count = {"count": str(task.max_parts)} if is_plain else {}
            outcome = await prompter.ask(session, values | count, parse)
            parts, reply = outcome.value, outcome.reply
        if parts is None:
            return Decomposition(flags=("decomposer_failed",))
        if task.max_parts and len(parts) > task.max_parts:
            flags = (*flags, "too_many_parts")
        return Decomposition(parts[: task.max_parts or None], reply, flags)


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
