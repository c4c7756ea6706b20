"""Steps of the iterative baselines: what is asked, how replies are read."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.base import ReasonTask, Step
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.reasoner import (
    PromptedReasoner,
    PromptedReasonerConfig,
    parse_generation,
    parse_links,
    parse_thought,
)
from gnnrag.session import Session
from gnnrag.types import Passage, Question
from tests.helpers.each import each


def ask(style, *replies, config=None):
    backend, session = ScriptedBackend.of((".", list(replies))), Session("q")
    task = ReasonTask(Question("q", "Who made it?"), (Passage("p", "T", "text"),), ("earlier",), style)
    return asyncio.run(PromptedReasoner(backend, config)(task, session)), backend, session


@each(
    "text, step",
    [
        ("Ada was born in London.", Step("Ada was born in London.", "Ada was born in London.")),
        ("So the answer is: London.", Step("So the answer is: London.", None, True, "London")),
        ("so the answer is 4-4", Step("so the answer is 4-4", None, True, "4-4")),
        (
            "He died. So the answer is: Rome",
            Step("He died. So the answer is: Rome", None, True, "Rome", ("late_marker",)),
        ),
        ("So the answer is:", Step("So the answer is:", None, True, None)),
    ],
)
def test_thoughts(text, step):
    assert parse_thought(text) == step


def test_one_sentence_keeps_the_first():
    assert parse_thought("It is old. It was made in Rome.", one_sentence=True).text == "It is old."


@each(
    "text, answer",
    [
        ("1. Reasoning: x.\n2. Final answer: London.", "London"),
        ("final answer: A\nFinal Answer: B", "B"),
        ("Because of this.\nParis", "Paris"),
    ],
)
def test_generations(text, answer):
    assert parse_generation(text).answer == answer and not parse_generation(text).done


LINK = '{"head": "Ada", "relation": "child of", "tail": "Byron", "score": %s}'


@each(
    "text, query, done",
    [
        (
            '{"links": [%s], "sufficient": false, "next": "Byron place of death"}' % (LINK % 0.9),
            "Byron place of death",
            0,
        ),
        ('{{"links": [{}, {}], "sufficient": "no"}}'.format(LINK % 0.1, LINK % '"0.8"'), "Ada child of Byron", 0),
        ('```json\n{"links": [%s], "sufficient": true, "next": "x"}\n```' % (LINK % '"much"'), None, 1),
    ],
)
def test_links(text, query, done):
    step = parse_links(text)
    assert (step.query, step.done) == (query, bool(done))


def test_replies_of_another_kind_are_malformed():
    with pytest.raises(MalformedError):
        parse_links("Ada knew Byron.")


@each(
    "style, reply, reason",
    [
        ("ircot", "Who made it?", "no_fact"),
        ("ircot", "So the answer is:", "no_answer"),
        ("gcot", "Nothing is missing.", "no_fact"),
        ("gcot", "So the answer is: The answer is", "no_answer"),
        ("irgs", "There is not enough information to answer.", "no_fact"),
        ("tog", '{"links": [], "sufficient": false, "next": ""}', "no_fact"),
    ],
)
def test_a_step_that_says_nothing_ends_the_loop(style, reply, reason):
    step, _, session = ask(style, reply)
    assert step == Step(flags=("loop_error",))
    assert session.by_role["reasoner"][reason] == session.by_role["reasoner"]["parse_failure"] == 2


def test_each_style_has_its_prompt_and_shows_earlier_steps():
    prompts = {}
    for style, reply in (("ircot", "a b"), ("gcot", "a b"), ("irgs", "a b"), ("tog", '{"next": "a b"}')):
        step, backend, session = ask(style, reply)
        assert "a b" in (step.text, step.query)
        assert "- earlier" in backend.requests[0].text and session.by_role["reasoner"]["calls"] == 1
        prompts[style] = backend.requests[0].messages[0].content
    assert len(set(prompts.values())) == 4


@each("style", ["ircot", "tog"])
def test_an_empty_reply_ends_the_loop_and_is_flagged(style):
    step, backend, _ = ask(style, "", config=PromptedReasonerConfig(one_sentence=True))
    assert step == Step(flags=("loop_error",)) and len(backend.requests) == 2
