"""What makes a reply none, and what does not."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.llm.base import Reply
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.parsing import has_fact, is_loop, is_no_answer, is_refusal
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session, concurrently

QUESTION = "In which country was the author born?"


LOOPS = (
    "Paris, Paris, Paris, Paris.",
    "The answer is Rome. " * 4,
    "Thought: I look at passage 1.\n" + "A - capital of - B [1]\n" * 12,
    "and so on " * 5000,
    "\nNo\nno\nNO\nno",
    "on" * 40,
)
NO_LOOPS = (  # names and lists repeat themselves
    "New York, New York",
    "Duran Duran",
    "Boutros Boutros-Ghali",
    "Tora! Tora! Tora!",
    "Walla Walla, Washington, Washington",
    "1000000000",
    "1. a\n2. b\n3. c\n4. d\n5. e",
    '{"labels": ["no", "no", "no", "no", "no", "no"]}',
    "[[1, 1], [1, 1], [1, 1]]",
    "Thought: the band is Girls Girls Girls Girls [1].\nAnswer: Girls Girls Girls Girls",
    "yes yes yes yes yes, and then something else",
    "A - r - B\nB - r - C\nC - r - D\nD - r - E",
    "!!!!!!!!",
    "",
)


def test_what_says_the_same_until_its_end_is_a_loop() -> None:
    expected = {**dict.fromkeys(LOOPS, True), **dict.fromkeys(NO_LOOPS, False)}
    assert {reply: is_loop(reply) for reply in expected} == expected


def test_a_name_that_the_prompt_has_is_no_loop_and_a_cut_may_fall_inside_a_word() -> None:
    assert is_loop("Mmm Mmm Mmm Mmm") and not is_loop("Mmm Mmm Mmm Mmm", "by the band of 'Mmm Mmm Mmm Mmm'")
    assert not is_loop("it is so " * 6 + "i") and is_loop("it is so " * 6 + "i", is_cut=True)


def test_what_leads_up_to_an_answer_is_none() -> None:
    leads = (
        "",
        " .",
        "The answer to this question is:",
        "So the final answer is",
        "**Answer:**",
        "Thought:",
        "in which country was the author born",
        "The answer to the question 'In which country was the author born?' is:",
    )
    short = ("Rome", "yes", "A", "The Answer", "The Who", "Question", "To Be", "The answer is: Rome", "0")
    expected = {**dict.fromkeys(leads, True), **dict.fromkeys(short, False)}
    assert {text: is_no_answer(text, QUESTION) for text in expected} == expected


def test_refusals() -> None:
    refusals = (
        "I'm sorry, but I can't help with that.",
        "I am really sorry. Unfortunately, I cannot assist with this request.",
        "As an AI language model, I cannot comply with that.",
        "As an AI. I can't help.",
        "Sorry, as an AI model, unfortunately I am unable to assist.",
        "**I cannot do that**",
    )
    none = (
        "I cannot find the answer.",
        "I can't help but notice Rome.",
        "Sorry, Wrong Number",
        "as an ai, " * 30 + "x",
    )
    expected = {**dict.fromkeys(refusals, True), **dict.fromkeys(none, False)}
    assert {text: is_refusal(text) for text in expected} == expected


@pytest.mark.parametrize(
    "line, states",
    [
        ("X - born in - Rome [2]", True),
        ("2. X was born in Rome", True),
        ("I Can't Dance - performed by - Genesis [1]", True),
        ("No Country for Old Men was directed by the Coens.", True),
        ("Still missing: the place of birth of X", True),
        ("X - born in - ? [MISSING]", True),
        ("? - ? - ? [MISSING]", False),
        ("The chain of facts:", False),
        (QUESTION, False),
        (f"Question: {QUESTION}", False),
        ("Bridge entities: X; Y", False),
        ("There is no information about X in the passages.", False),
        ("I don't know. Sorry.", False),
        ("The passages do not state the director, so we cannot tell.", False),
        ("The passages do not state the director, so we need to find who directed Y.", True),
        ("There is no information about the film. Its director X was born in Rome.", True),
        ("The passages do not state it.", False),
        ("It cannot be determined", False),
        ("none", False),
    ],
)
def test_what_a_line_of_a_chain_states(line: str, states: bool) -> None:
    assert has_fact(line, QUESTION) is states
    assert has_fact(f"Reasoning chain:\n{line}\n", QUESTION) is states


def ask(llm: ScriptedBackend, session: Session, reply: str = "", **settings: object) -> tuple[object, dict[str, int]]:
    """Ask for a reply with an `x` in it; returns the value and what is counted of it."""

    def parse(text: str) -> str:
        if "x" not in text:
            raise MalformedError("no x")
        return text

    keeps = bool(settings.pop("keeps_cut", False))
    raw = bool(settings.pop("raw", False))
    prompter = Prompter("r", llm, PromptedConfig(**settings), "reader_closed", raw=raw, keeps_cut=keeps)  # type: ignore[arg-type]
    outcome = asyncio.run(prompter.ask(session, {"question": "Q?"}, parse))
    spent = ("calls", "prompt_tokens", "completion_tokens")
    return outcome.value, {name: n for name, n in session.by_role["r"].items() if name not in spent}


@pytest.mark.parametrize(
    "reply, keeps_cut, value, flags",
    [
        (Reply("x", "stop"), False, "x", {}),
        (Reply('{"x": 1}', "length"), False, None, {"parse_failure": 2, "cut_off": 2}),
        (Reply("x y", "length"), True, "x y", {"cut_off": 1, "cut_but_read": 1}),
        (Reply("y", "length"), True, None, {"parse_failure": 2, "cut_off": 2}),
        (Reply("", "length"), False, None, {"parse_failure": 2, "cut_off": 2}),  # it thought until its limit
        (Reply("x is x is x is x is", "length"), False, None, {"parse_failure": 2, "loop": 2}),
        (Reply("x is x is x is x is", "stop"), True, None, {"parse_failure": 2, "loop": 2}),
        (Reply(" ", "stop"), False, None, {"parse_failure": 2, "empty": 2}),
        (Reply("I'm sorry, I can't assist with that.", "stop"), False, None, {"parse_failure": 2, "refused": 2}),
    ],
)
def test_a_reply_fails_for_one_reason(reply: Reply, keeps_cut: bool, value: str | None, flags: dict) -> None:
    """Cut off means failed, whatever came; a loop is told as one, as a higher limit would not help."""
    assert ask(ScriptedBackend.of((".", reply)), Session("q"), keeps_cut=keeps_cut) == (value, flags)


@pytest.mark.parametrize(
    "settings, calls, repeated",
    [
        ({}, 2, 1),
        ({"temperature": 0.0}, 2, 1),
        ({"temperature": 0.7}, 4, 0),
        ({"raw": True}, 1, 1),
        ({"raw": True, "temperature": 0.7}, 4, 0),
    ],
)
def test_a_prompt_that_failed_is_not_sent_again(settings: dict, calls: int, repeated: int) -> None:
    """The reminder is another prompt; a raw prompt has none."""
    llm, session = ScriptedBackend.of((".", "no")), Session("q")
    for _ in range(2):
        assert ask(llm, session, **settings)[0] is None
    assert len(llm.requests) == calls and session.by_role["r"]["repeated_prompt"] == repeated
    assert ask(llm, Session("another"), **settings) and len(llm.requests) > calls, "of another question it is news"


def test_another_prompt_or_limit_is_asked_and_parts_of_a_question_know_what_failed() -> None:
    llm, session = ScriptedBackend.of((".", "no")), Session("q")
    ask(llm, session)
    ask(llm, session, max_tokens=99)
    assert len(llm.requests) == 4

    async def part(own: Session) -> None:
        prompter = Prompter("r", llm, PromptedConfig(), "reader_closed")
        await prompter.ask(own, {"question": "Q?"}, lambda text: text)

    asyncio.run(concurrently(session, [part, part]))
    assert len(llm.requests) == 4 and session.by_role["r"]["repeated_prompt"] == 2
