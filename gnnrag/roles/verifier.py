"""Verifiers choose the passages that support a chain (BDTR, equation 5): by a model or rules."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from gnnrag.llm.base import Message
from gnnrag.parts import part
from gnnrag.prompts import cached_prompt
from gnnrag.prompts.untrusted import inline, notes_element, passage_elements
from gnnrag.roles.base import Verdict, VerifierTask
from gnnrag.roles.bridges import BridgingRole
from gnnrag.roles.parsing import OUT_OF_RANGE, ReplyModel, Rows, number, read_as
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.session import Session
from gnnrag.types import Passage

_NUMBER = re.compile(r"\W*(?:(?:doc(?:ument)?|passage|id|no)\W*)?(\d{1,6})\W*", re.IGNORECASE)


@part("role", "verifier.prompted")
class PromptedVerifier(PromptedPart[VerifierTask, Verdict]):
    """Selects the passages that state or complete a link of the chain; it gives no scores.

    A failed call selects nothing: `verifier_failed` if all calls failed, `verifier_partial` if some did. Numbers of
    passages that were not shown are left out (`out_of_range`); a reply with only such numbers counts as failed.
    """

    max_tokens: int = 256
    window: Annotated[int, Field(ge=1)] | None = 50  # passages per call; null shows all at once

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        if not task.passages:
            return Verdict()
        size = self.window or len(task.passages)
        windows = [task.passages[i : i + size] for i in range(0, len(task.passages), size)]
        sizes = [len(window) for window in windows]
        parsers = [partial(parse_selection, count=size) for size in sizes]
        outcomes = await self.ask_many(session, [_values(task, window) for window in windows], parsers, shown=sizes)
        selected, beyond = list[str](), 0
        for window, outcome in zip(windows, outcomes, strict=True):
            shown = [n for n in sorted(outcome.value or ()) if 1 <= n <= len(window)]
            selected += [window[n - 1].id for n in shown]
            beyond += len(shown) < len(outcome.value or ())
        failed = sum(bool(outcome.failure) for outcome in outcomes)
        flags = () if not failed else ("verifier_failed" if failed == len(outcomes) else "verifier_partial",)
        return Verdict(tuple(selected), (*flags, *[OUT_OF_RANGE] * beyond))


def verifier_chat(task: VerifierTask, selected: Collection[str], prompt: str = "") -> tuple[Message, ...]:
    """Return the chat of the prompt (or of the one named) for a task, with a reply that selects these ids."""
    numbers = [n for n, passage in enumerate(task.passages, start=1) if passage.id in selected]
    asked = cached_prompt(prompt or "verifier").render(**_values(task, task.passages))
    return (*asked, Message("assistant", json.dumps({"selected": numbers})))


def _values(task: VerifierTask, shown: Sequence[Passage]) -> dict[str, str]:
    """Return the values of the prompt. The chain comes from passages, so it is marked as untrusted as they are."""
    chain = notes_element(task.chain.text)
    return {"question": inline(task.question.text), "chain": chain, "passages": passage_elements(shown)}


def _numbered(value: Any) -> Any:
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    return int(match[1]) if match else number(value)


class Selection(ReplyModel):
    """Passage numbers in a reply; 3, 3.0, "3", "[3]" and "Doc 3" mean the same."""

    selected: Annotated[list[Annotated[int, BeforeValidator(_numbered)]], Rows] = Field(
        validation_alias=AliasChoices("selected", "documents", "passages", "ids")
    )


def parse_selection(text: str, count: int | None = None) -> frozenset[int]:
    """Return the passage numbers of a reply; the caller drops those that it did not show.

    Raises MalformedError if there is no `Selection`, or all its numbers are outside 1 to `count`.
    """
    selected = frozenset(read_as(Selection, text).selected)
    if selected and count is not None and not any(1 <= n <= count for n in selected):
        raise MalformedError(f"no number from 1 to {count}", OUT_OF_RANGE)
    return selected


@part("role", "verifier.offline")
class OfflineVerifier(BridgingRole[VerifierTask, Verdict]):
    """Selects the passages that support the chain and those whose titles the question names (its anchors)."""

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        anchors = self.finder.read(task.question.text).anchors
        wanted = {*task.chain.support, *(self.index.ids[a.passage] for a in anchors)}
        return Verdict(tuple(p.id for p in task.passages if p.id in wanted))
