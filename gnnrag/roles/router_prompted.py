"""The router as a language model: names the class of a question and how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline
from gnnrag.roles.base import QUERY_CLASSES, RouterTask, Routing
from gnnrag.roles.parsing import json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session


@dataclass
class PromptedRouterConfig(PromptedConfig):
    """Settings of `PromptedRouter`; its reply is short."""

    max_tokens: int = 64


class PromptedRouter:
    """One call a question. No reply, or none that parses, means passage_local, flagged `router_failed`.

    The class that the model names gets the confidence that it states, the other two share the rest evenly.

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedRouterConfig

    def __init__(self, backend: Backend, config: PromptedRouterConfig | None = None) -> None:
        self._prompter = Prompter("router", backend, config or PromptedRouterConfig())
        self.prompters = (self._prompter,)

    async def __call__(self, task: RouterTask, session: Session) -> Routing:
        """Route one question."""
        outcome = await self._prompter.ask(session, {"question": inline(task.question.text)}, parse_routing)
        if outcome.value is None:
            return Routing({"passage_local": 1.0}, flags=("router_failed",))
        chosen, confidence = outcome.value
        rest = (1.0 - confidence) / (len(QUERY_CLASSES) - 1)
        return Routing({name: confidence if name == chosen else rest for name in QUERY_CLASSES})


def parse_routing(text: str) -> tuple[str, float]:
    """Return class and confidence of a reply: a JSON object with both.

    `multi-hop` and `Multi Hop` are read as `multi_hop`, and "80%" or 80 as 0.8; nothing is read out of prose.

    Raises:
        MalformedError: there is no such object, or its class or confidence is none.
    """
    for data in json_objects(strip_markup(strip_thinking(text))):
        lowered = {str(k).strip().lower(): v for k, v in data.items()}
        name = str(lowered.get("class", "")).strip().lower().replace("-", "_").replace(" ", "_")
        for known in QUERY_CLASSES:
            if name == known:
                return known, _probability(lowered.get("confidence"))
    raise MalformedError(f"no JSON object whose 'class' is one of {', '.join(QUERY_CLASSES)}")


def _probability(value: Any) -> float:
    is_percent = isinstance(value, str) and value.strip().endswith("%")
    try:
        number = math.nan if isinstance(value, bool) or value is None else float(str(value).strip().rstrip("%"))
    except ValueError:
        number = math.nan
    number = number / 100.0 if is_percent or number >= 2.0 else number
    if not 0.0 <= number <= 1.0:
        raise MalformedError("'confidence' is no number between 0 and 1")
    return number
