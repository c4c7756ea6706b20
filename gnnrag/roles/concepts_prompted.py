"""Concepts of a question from a language model (DotRAG, section 3 of its paper; the wording is ours)."""

from __future__ import annotations

from typing import Any

from gnnrag.graphs.dotanchors import fold_name
from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline
from gnnrag.roles.dots import Concept, Concepts, ConceptsTask, schema_text
from gnnrag.roles.parsing import clean_line, json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session

MAX_CONCEPTS = 3


class PromptedConcepts:
    """Asks where a search may start. No usable reply gives no concepts (`concepts_failed`).

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedConfig

    def __init__(self, backend: Backend, config: PromptedConfig | None = None) -> None:
        self._prompter = Prompter("concepts", backend, config or PromptedConfig())
        self.prompters = (self._prompter,)

    async def __call__(self, task: ConceptsTask, session: Session) -> Concepts:
        """Ask once; spans that the question does not hold are dropped (`span_dropped`)."""
        values = {"schema": schema_text(task.schema), "question": inline(task.question.text)}
        outcome = await self._prompter.ask(session, values, lambda text: parse_concepts(text, task.question.text))
        return outcome.value or Concepts(use_anchors=False, flags=("concepts_failed",))


def parse_concepts(text: str, question: str) -> Concepts:
    """Read a reply; without a named thing that the question holds, the question counts as broad.

    Raises:
        MalformedError: no JSON object with a list of anchors.
    """
    for data in json_objects(strip_markup(strip_thinking(text))):
        if not isinstance(data.get("anchors"), list):
            continue
        rows = [row for row in data["anchors"] if isinstance(row, dict) and _word(row.get("span"))]
        held = fold_name(question)
        named = [
            Concept(_word(row["span"]), _word(row.get("type")), _word(row.get("description")))
            for row in rows
            if fold_name(_word(row["span"])) in held
        ]
        topics = data.get("topics")
        words = [_word(topic) for topic in topics] if isinstance(topics, list) else []
        flags = ("span_dropped",) if len(named) < len(data["anchors"]) else ()
        broad = data.get("use_anchors") in (False, 0, "0", "false", "False")
        return Concepts(
            tuple(named[:MAX_CONCEPTS]),
            tuple([word for word in words if word][:MAX_CONCEPTS]),
            bool(named) and not broad,
            flags,
        )
    raise MalformedError("no JSON object with a list 'anchors'")


def _word(value: Any) -> str:
    return (clean_line(value) or "") if isinstance(value, str) else ""
