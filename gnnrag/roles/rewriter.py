"""Rewriter: a question that follows up on others, as one that stands alone; prompted, and by rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedRole, at_most
from gnnrag.session import Session
from gnnrag.text.followup import standalone
from gnnrag.text.sentences import beginning

TURNS, LENGTH = 6, 300  # of the history: how many are shown, the newest; characters of each answer
LONGEST = 400  # characters of a question


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A question as a person typed it, and earlier questions with their answers, oldest first; an empty one: none."""

    question: str
    history: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Standalone:
    """The question that needs no history; `flags` are counted."""

    text: str
    flags: tuple[str, ...] = ()


class OfflineRewriter(Role[FollowUp, Standalone]):
    """Puts a name in the place of the first pronoun (`gnnrag.text.followup`); other questions stay as they are."""

    def __init__(self, index: Any = None, config: None = None) -> None:
        pass

    async def __call__(self, task: FollowUp, session: Session) -> Standalone:
        """Rewrite one question."""
        return Standalone(standalone(task.question, task.history))


class PromptedRewriter(PromptedRole[FollowUp, Standalone]):
    """One call a follow-up; no reply, or none that parses, means what the rules say, flagged `rewriter_failed`."""

    role = "rewriter"
    config_class = at_most(128)

    async def __call__(self, task: FollowUp, session: Session) -> Standalone:
        """Rewrite one question."""
        values = {"history": notes_element(_told(task.history)), "question": inline(task.question)}
        outcome = await self.ask(session, values, parse_question)
        if outcome.value is None:
            return Standalone(standalone(task.question, task.history), flags=("rewriter_failed",))
        return Standalone(outcome.value)


def parse_question(text: str) -> str:
    """Return the question of a reply: its one line, without a label. Raises MalformedError for anything longer."""
    lines = strip_markup(strip_thinking(text)).strip().splitlines()
    found = lines[0].removeprefix("Question:").strip().strip('"') if len(lines) == 1 else ""
    if not found or len(found) > LONGEST:
        raise MalformedError(f"not one line of at most {LONGEST} characters")
    return found


def _told(history: Sequence[tuple[str, str]]) -> str:
    turns = [f"Question: {q}\nAnswer: {beginning(a, LENGTH) or '(none)'}" for q, a in history[-TURNS:]]
    return "\n".join(turns)
