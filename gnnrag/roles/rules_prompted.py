"""Rules of a DOT from a language model (DotRAG, section 3 of its paper; the wording is ours)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline
from gnnrag.roles.dots import GENERIC, DotRules, RulesTask, schema_text
from gnnrag.roles.parsing import json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session

_TEXTS = ("query_constraints", "intermediate_rules", "terminal_rules")
_MAX_TEXT = 600


class PromptedRules:
    """Asks for the rules of one search. No usable reply gives generic ones without a filter (`rules_failed`).

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedConfig

    def __init__(self, backend: Backend, config: PromptedConfig | None = None) -> None:
        self._prompter = Prompter("rules", backend, config or PromptedConfig())
        self.prompters = (self._prompter,)

    async def __call__(self, task: RulesTask, session: Session) -> DotRules:
        """Ask once; types that the schema does not have are dropped (`unknown_type`)."""
        values = {
            "schema": schema_text(task.schema),
            "question": inline(task.question.text),
            "concept": inline(task.concept),
            "anchors": "; ".join(inline(name) for name in task.anchors),
        }
        outcome = await self._prompter.ask(session, values, lambda text: parse_rules(text, task.schema.names))
        return outcome.value or replace(GENERIC, flags=("rules_failed",))


def parse_rules(text: str, types: Sequence[str]) -> DotRules:
    """Read a reply. Terminal types are allowed ones; unknown types are dropped.

    Raises:
        MalformedError: no JSON object with the rules for intermediate and terminal links.
    """
    for data in json_objects(strip_markup(strip_thinking(text))):
        if not any(isinstance(data.get(name), str) and data[name].strip() for name in _TEXTS[1:]):
            continue
        constraints, intermediate, terminal = (_text(data.get(name)) for name in _TEXTS)
        asked = {name: _list(data.get(f"{name}_types")) for name in ("allowed", "terminal", "through")}
        allowed, final, through = (tuple(t for t in types if t in asked[name]) for name in asked)
        if allowed:
            allowed = tuple(t for t in types if t in {*allowed, *final, *through})
        flags = ("unknown_type",) if any(set(names) - set(types) for names in asked.values()) else ()
        return DotRules(
            constraints,
            intermediate or GENERIC.intermediate,
            terminal or GENERIC.terminal,
            allowed,
            final,
            through or None,
            flags,
        )
    raise MalformedError("no JSON object with intermediate_rules and terminal_rules")


def _text(value: Any) -> str:
    return " ".join(value.split())[:_MAX_TEXT] if isinstance(value, str) else ""


def _list(value: Any) -> list[str]:
    return [name.strip() for name in value if isinstance(name, str)] if isinstance(value, list) else []
