"""Steps of the iterative baselines: what is asked, how replies are read, what the oracle asks for."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.index.index import Index
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import ready
from gnnrag.roles.base import ReasonTask, Step
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.reasoner import (
    OracleReasoner,
    PromptedReasoner,
    parse_generation,
    parse_links,
    parse_thought,
)
from gnnrag.session import Session
from gnnrag.types import Passage, Question
from tests.helpers.each import each
from tests.helpers.parts import MUSIQUE


def ask(style, *replies, config=None):
    backend, session = ScriptedBackend.of((".", list(replies))), Session("q")
    task = ReasonTask(Question("q", "Who made it?"), (Passage("p", "T", "text"),), ("earlier",), style)
    return asyncio.run(ready(config or PromptedReasoner(), backend=backend)(task, session)), backend, session


def test_thoughts():
    late = "He died. So the answer is: Rome"
    expected = {
        "Ada was born in London.": Step("Ada was born in London.", "Ada was born in London."),
        "So the answer is: London.": Step("So the answer is: London.", None, True, "London"),
        "so the answer is 4-4": Step("so the answer is 4-4", None, True, "4-4"),
        late: Step(late, None, True, "Rome", ("late_marker",)),
        "So the answer is:": Step("So the answer is:", None, True, None),
    }
    assert {text: parse_thought(text) for text in expected} == expected
    assert parse_thought("It is old. It was made in Rome.", one_sentence=True).text == "It is old."


def test_generations():
    expected = {
        "1. Reasoning: x.\n2. Final answer: London.": "London",
        "final answer: A\nFinal Answer: B": "B",
        "Because of this.\nParis": "Paris",
    }
    assert {text: parse_generation(text).answer for text in expected} == expected
    assert not any(parse_generation(text).done for text in expected)


LINK = '{"head": "Ada", "relation": "child of", "tail": "Byron", "score": %s}'


@each(
    "text, query, done",
    [
        ('{"links": [%s], "sufficient": false, "next": "Byron grave"}' % (LINK % 0.9), "Byron grave", False),
        ('{{"links": [{}, {}], "sufficient": "no"}}'.format(LINK % 0.1, LINK % '"0.8"'), "Ada child of Byron", False),
        ('```json\n{"links": [%s], "sufficient": true, "next": "x"}\n```' % (LINK % 0.9), None, True),
    ],
)
def test_links(text, query, done):
    step = parse_links(text)
    assert (step.query, step.done) == (query, done)


def test_a_reply_without_links_is_malformed():
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
        ("ircot", "", "empty"),
        ("tog", "", "empty"),
    ],
)
def test_a_step_that_says_nothing_ends_the_loop(style, reply, reason):
    step, backend, session = ask(style, reply, config=PromptedReasoner(one_sentence=True))
    assert step == Step(flags=("loop_error",)) and len(backend.requests) == 2
    assert session.by_role["reasoner"][reason] == session.by_role["reasoner"]["parse_failure"] == 2


def test_each_style_has_its_prompt_and_shows_earlier_steps():
    prompts = {}
    for style, reply in (("ircot", "a b"), ("gcot", "a b"), ("irgs", "a b"), ("tog", '{"next": "a b"}')):
        step, backend, session = ask(style, reply)
        assert "a b" in (step.text, step.query)
        assert "- earlier" in backend.requests[0].text and session.by_role["reasoner"]["calls"] == 1
        prompts[style] = backend.requests[0].messages[0].content
    assert len(set(prompts.values())) == 4


def test_the_oracle_asks_for_what_the_reader_would_not_see(index: Index) -> None:
    def reason(*shown: str, steps: tuple[str, ...] = (), read: int = 5) -> Step:
        task = ReasonTask(MUSIQUE, index.lookup(shown), steps, "ircot")
        return asyncio.run(ready(OracleReasoner(read), index=index)(task, Session("q")))

    assert reason("p0", "p7", "p1", read=3).done
    assert reason("p0", "p7", "p1", read=2).query == "Where was Vera Lindqvist born?"
    again = reason("p0", "p7", "p1", read=2, steps=("Where was Vera Lindqvist born?",))
    assert again.query == again.text == "Where was Vera Lindqvist born? Kalmar"
    given_up = reason("p0", steps=("Where was Vera Lindqvist born?", "Where was Vera Lindqvist born? Kalmar"))
    assert given_up == Step(done=True, flags=("asked_in_vain",))
