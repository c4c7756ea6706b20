"""Asking a model: what makes a reply none, what is counted, booked and asked again, and what a cancellation leaves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm.base import ContentFilterError, ContextLengthError, NoReplyError, RejectedError, Reply
from gnnrag.llm.cache import CachedBackend
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.parsing import is_no_answer, is_refusal
from gnnrag.roles.prompting import MalformedError, Outcome, Prompter
from gnnrag.session import Session, concurrently

QUESTION = "In which country was the author born?"
SPENT = ("calls", "prompt_tokens", "completion_tokens")


def read(text: str) -> str:
    if "x" not in text:
        raise MalformedError("no x")
    return text.upper()


def ask(llm: Any, session: Session, **settings: Any) -> Outcome[str]:
    """Ask for a reply with an `x` in it."""
    prompter = Prompter("r", llm, "reader_closed", **settings)
    values = dict.fromkeys(prompter.prompt.placeholders, "{hi}")
    return asyncio.run(prompter.ask(session, values, read))


def counted(session: Session) -> dict[str, int]:
    return {name: n for name, n in session.by_role["r"].items() if name not in SPENT}


# ------------------------------------------------------------------------------------------ replies that say nothing
@pytest.mark.parametrize(
    "text, is_none",
    [
        *((text, True) for text in
          ("", " .", "The answer to this question is:", "So the final answer is", "**Answer:**", "Thought:",
           "in which country was the author born",
           "The answer to the question 'In which country was the author born?' is:")),
        *((text, False) for text in
          ("Rome", "yes", "A", "The Answer", "The Who", "Question", "To Be", "The answer is: Rome", "0")),
    ],
)  # fmt: skip
def test_what_leads_up_to_an_answer_is_none(text: str, is_none: bool) -> None:
    assert is_no_answer(text, QUESTION) is is_none


@pytest.mark.parametrize(
    "text, refuses",
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I am really sorry. Unfortunately, I cannot assist with this request.", True),
        ("As an AI language model, I cannot comply with that.", True),
        ("**I cannot do that**", True),
        ("I cannot find the answer.", False),
        ("I can't help but notice Rome.", False),
        ("Sorry, Wrong Number", False),
    ],
)
def test_refusals(text: str, refuses: bool) -> None:
    assert is_refusal(text) is refuses


@pytest.mark.parametrize(
    "reply, keeps_cut, value, flags",
    [
        (Reply("x", "stop"), False, "X", {}),
        (Reply('{"x": 1}', "length"), False, None, {"parse_failure": 2, "cut_off": 2}),
        (Reply("x y", "length"), True, "X Y", {"cut_off": 1, "cut_but_read": 1}),
        (Reply("y", "length"), True, None, {"parse_failure": 2, "cut_off": 2}),
        (Reply("", "length"), False, None, {"parse_failure": 2, "cut_off": 2}),  # it thought until its limit
        (Reply(" ", "stop"), False, None, {"parse_failure": 2, "empty": 2}),
        (Reply("x", "content_filter"), False, None, {"parse_failure": 1, "filtered": 1}),
        (Reply("I'm sorry, I can't assist with that.", "stop"), False, None, {"parse_failure": 2, "refused": 2}),
    ],
)
def test_a_reply_fails_for_one_reason(reply: Reply, keeps_cut: bool, value: str | None, flags: dict[str, int]) -> None:
    """Cut off means failed, whatever came."""
    session = Session("q")
    assert ask(ScriptedBackend.of((".", reply)), session, keeps_cut=keeps_cut).value == value
    assert counted(session) == flags


# ------------------------------------------------------------------------------------------------ asking and booking
@pytest.mark.parametrize(
    "settings, calls, repeated",
    [
        ({}, 2, 1),
        ({"temperature": 0.0}, 2, 1),
        ({"temperature": 0.7}, 4, 0),
        ({"raw": True}, 1, 1),  # the reminder is another prompt; a raw prompt has none
        ({"raw": True, "temperature": 0.7}, 4, 0),
    ],
)
def test_a_prompt_that_failed_is_not_sent_again(settings: dict[str, Any], calls: int, repeated: int) -> None:
    llm, session = ScriptedBackend.of((".", "no")), Session("q")
    for _ in range(2):
        assert ask(llm, session, **settings).value is None
    assert len(llm.requests) == calls and session.by_role["r"]["repeated_prompt"] == repeated
    ask(llm, Session("another"), **settings)
    assert len(llm.requests) > calls, "of another question it is news"


def test_another_limit_is_asked_and_parts_of_a_question_know_what_failed() -> None:
    llm, session = ScriptedBackend.of((".", "no")), Session("q")
    ask(llm, session)
    ask(llm, session, max_tokens=99)
    assert len(llm.requests) == 4

    async def part(inner: Session) -> None:
        await Prompter("r", llm, "reader_closed").ask(inner, {"question": "{hi}"}, str)

    asyncio.run(concurrently(session, [part, part]))
    assert len(llm.requests) == 4 and session.by_role["r"]["repeated_prompt"] == 2


def test_sampling_settings_and_a_prompt_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("user: 'Say {word}!'\nstop: [END]\nschema: {type: object}")
    llm = ScriptedBackend.of((".", "x"))
    outcome = ask(llm, Session("q"), prompt=str(own), temperature=0.3, max_tokens=7, seed=4)
    assert (outcome.value, outcome.failure, outcome.reply) == ("X", "", "x")
    (request,) = llm.requests
    assert [m.content for m in request.messages] == ["Say {hi}!"]
    assert (request.temperature, request.max_tokens, request.seed, request.stop) == (0.3, 7, 4, ("END",))
    assert request.schema == {"type": "object"}


def test_estimates_cost_and_cached_calls_are_booked(tmp_path: Path) -> None:
    inner = ScriptedBackend.of((".", Reply("x", "stop", 10, 5, cost=0.25, is_estimated=True)))
    llm, session = CachedBackend(inner, tmp_path / "c.sqlite"), Session("q")
    for _ in range(2):
        ask(llm, session)
    assert dict(session.by_role["r"]) == {
        "calls": 2, "prompt_tokens": 20, "completion_tokens": 10, "cost": 0.5, "usage_estimated": 2,
    }  # fmt: skip
    assert session.cached_calls == 1 and session.cost == 0.5 and len(inner.requests) == 1
    assert session.events[0] == session.events[1], "a trace does not depend on what the cache held"


def test_a_cancelled_question_stops_spending() -> None:
    replies: list[str] = []
    llm = ScriptedBackend.of((".", lambda request: replies.append("x") or "x"), latency_s=0.05)  # type: ignore[func-returns-value]

    async def go() -> None:
        batch = [{"question": str(i)} for i in range(5)]
        asking = asyncio.create_task(Prompter("r", llm, "reader_closed").ask_many(Session("q"), batch, str))
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.sleep(0.1)
        assert asking.cancelled() and len(llm.requests) == 5 and not replies

    asyncio.run(go())


def test_half_a_character_becomes_a_whole_one(tmp_path: Path) -> None:
    """It could neither be written to a journal nor sent, and would stay in the cache."""
    session = Session("q")
    llm = CachedBackend(ScriptedBackend.of((".", Reply("\ud800 x\udfff"))), tmp_path / "c.sqlite")
    assert ask(llm, session).value == "? X?"
    json.dumps(session.events, ensure_ascii=False).encode()
    ask(ScriptedBackend.of((".", LLMError("the server says \ud800"))), session := Session("q"))
    assert session.failed_calls().endswith("says ?")


@pytest.mark.parametrize(
    "error, flags",
    [
        (RejectedError("no"), {"rejected": 1}),
        (ContextLengthError("no"), {"rejected": 1, "too_long": 1}),
        (ContentFilterError("no"), {"rejected": 1, "filtered": 1}),
        (NoReplyError("no"), {"llm_error": 1, "timeout": 1}),
        (LLMError("no"), {"llm_error": 1}),
    ],
)
def test_a_rejected_request_is_no_failure_of_the_server_and_is_not_sent_again(
    error: LLMError, flags: dict[str, int]
) -> None:
    session, llm = Session("q"), ScriptedBackend.of((".", error))
    assert ask(llm, session).value is None and counted(session) == flags and len(llm.requests) == 1
    assert (session.failed_calls() is None) == ("rejected" in flags)
