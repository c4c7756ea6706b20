"""Dual thoughts from a language model (BDTR, arXiv 2509.25530, section 3.1; our choices in specs/bdtr.md 5)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from gnnrag.errors import ConfigError
from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, passage_elements
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.parsing import clean_line, json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session

_LABEL = re.compile(r"^\W*(?:\d+[.)]\s*)?(fast|slow)[\s_-]*thought\W*[:\-]\s*(.*)$", re.IGNORECASE)
_ANSWER = re.compile(
    r"^\W*(?:(?:so|thus|hence|therefore)\W+)?(?:the\s+)?(?:final\s+)?answer\s*(?:is\b|:)", re.IGNORECASE
)


@dataclass
class PromptedThoughtsConfig(PromptedConfig):
    """`joint` asks for both thoughts in one call; `separate` asks twice and shows the fast thought to the second."""

    max_tokens: int = 128
    mode: Literal["joint", "separate"] = "joint"


class PromptedThoughts:
    """Asks for a fast and a slow thought. No reply at all, or none that parses, gives neither (`thought_failed`).

    Args:
        backend: the language model.
        config: settings; `prompt` is used in joint mode.
    """

    Config = PromptedThoughtsConfig

    def __init__(self, backend: Backend, config: PromptedThoughtsConfig | None = None) -> None:
        self.config = config or PromptedThoughtsConfig()
        if self.config.mode == "joint":
            self._joint = Prompter("thoughts", backend, self.config)
        elif self.config.prompt:
            raise ConfigError(f"thoughts.prompt={self.config.prompt!r} works with mode=joint only")
        else:
            self._fast = Prompter("thoughts", backend, self.config, "thoughts_fast")
            self._slow = Prompter("thoughts", backend, self.config, "thoughts_slow")

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        """Ask for the two next queries."""
        values = {
            "passages": passage_elements(task.passages),
            "earlier": "\n".join(f"- {inline(q)}" for q in task.earlier) or "(none)",
            "question": inline(task.question.text),
        }
        if self.config.mode == "joint":
            outcome = await self._joint.ask(session, values, parse_thoughts)
            thoughts = outcome.value or Thoughts(flags=("thought_failed",))
        else:
            thoughts = await self._separate(values, session)
        session.flag("thoughts", *thoughts.flags)
        return thoughts

    async def _separate(self, values: dict[str, str], session: Session) -> Thoughts:
        """Ask for the fast thought, then for the slow one; either may be missing."""
        fast = (await self._fast.ask(session, values, lambda text: parse_thought(text, "fast"))).value
        values = {**values, "fast": inline(fast or "(none)")}
        slow = (await self._slow.ask(session, values, lambda text: parse_thought(text, "slow"))).value
        return Thoughts(fast, slow, flags=_flags(fast, slow) or (("thought_failed",) if not (fast or slow) else ()))


def parse_thoughts(text: str) -> Thoughts:
    """Parse a reply to the joint prompt: labelled lines, a JSON object, two lines, or one line (specs/bdtr.md 5).

    Raises:
        MalformedError: neither thought is there.
    """
    text = strip_markup(strip_thinking(text))
    lines = [line for line in text.splitlines() if line.strip()]
    pair = _json_pair(text)
    # A reply that is JSON holds the labels as keys, which would pass for labelled lines.
    found = (pair if text.startswith("{") else {}) or _labelled(text) or pair
    if not found and 1 <= len(lines) <= 2 and text[0] not in "{[":
        found = dict(zip(("fast", "slow"), lines, strict=False))
    fast, slow = clean_line(found.get("fast", "")), clean_line(found.get("slow", ""))
    if fast is None and slow is None:
        raise MalformedError("neither a fast nor a slow thought")
    return Thoughts(fast, slow, flags=_flags(fast, slow))


def parse_thought(text: str, kind: Literal["fast", "slow"]) -> str:
    """Parse a reply to one of the separate prompts: its label, a JSON object, or one line.

    Raises:
        MalformedError: no thought, or several lines without a label.
    """
    text = strip_markup(strip_thinking(text))
    found = (_labelled(text) or _json_pair(text)).get(kind)
    if found is None and len(text.splitlines()) == 1:
        found = text
    thought = clean_line(found or "")
    if thought is None:
        raise MalformedError(f"no {kind} thought")
    return thought


def _labelled(text: str) -> dict[str, str]:
    """Return the labelled values; one runs on until the next label or a blank line, the first of a kind counts."""
    found: dict[str, str] = {}
    current: str | None = None
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label:
            kind = label[1].lower()
            current = kind if kind not in found else None
            if current:
                found[current] = label[2]
        elif not line.strip():
            # A blank line between a label and its value does not end a value that has not begun.
            current = current if current and not found[current].strip() else None
        elif current:
            found[current] += f" {line}"
    return found


def _json_pair(text: str) -> dict[str, str]:
    """Return fast and slow from the first JSON object that has either."""
    for data in json_objects(text):
        keys = {re.sub(r"[\s_-]*thought$", "", str(k).strip().lower()): v for k, v in data.items()}
        pair = {k: keys[k] for k in ("fast", "slow") if isinstance(keys.get(k), str)}
        if pair:
            return pair
    return {}


def _flags(*thoughts: str | None) -> tuple[str, ...]:
    """Flag thoughts that state an answer instead of asking."""
    return ("answer_leak",) if any(t and _ANSWER.match(t) for t in thoughts) else ()
