"""Rewriter: a question that follows up on others, as one that stands alone; prompted, and by rules."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import plain
from gnnrag.roles.prompting import MalformedError, PromptedPart
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
    text: str  # of the question that needs no history
    flags: tuple[str, ...] = ()


@part("role", "rewriter.offline")
class OfflineRewriter(Role[FollowUp, Standalone]):
    """Puts a name in the place of the first pronoun (`gnnrag.text.followup`); other questions stay as they are."""

    async def __call__(self, task: FollowUp, session: Session) -> Standalone:
        return Standalone(standalone(task.question, task.history))


@part("role", "rewriter.prompted")
class PromptedRewriter(PromptedPart[FollowUp, Standalone]):
    """One call a follow-up; no reply, or none that parses, means what the rules say, flagged `rewriter_failed`."""

    max_tokens: int = 128

    async def __call__(self, task: FollowUp, session: Session) -> Standalone:
        turns = [f"Question: {q}\nAnswer: {beginning(a, LENGTH) or '(none)'}" for q, a in task.history[-TURNS:]]
        values = {"history": notes_element("\n".join(turns)), "question": inline(task.question)}
        outcome = await self.ask(session, values, parse_question)
        if outcome.value is None:
            return Standalone(standalone(task.question, task.history), ("rewriter_failed",))
        return Standalone(outcome.value)


def parse_question(text: str) -> str:
    """Return the question of a reply: its one line, without a label. Raises MalformedError for anything longer."""
    lines = plain(text).strip().splitlines()
    question = lines[0].removeprefix("Question:").strip().strip('"') if len(lines) == 1 else ""
    if not question or len(question) > LONGEST:
        raise MalformedError(f"not one line of at most {LONGEST} characters")
    return question
