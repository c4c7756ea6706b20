"""Steps of the iterative baselines: how replies are read, what the oracle asks for."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from gnnrag.index.index import Index
from gnnrag.roles.base import ReasonTask, Step, Style
from gnnrag.roles.oracle import OracleReasoner
from gnnrag.roles.reasoner import OfflineReasoner, PromptedReasoner, parse_generation, parse_links, parse_thought
from gnnrag.types import Passage, Question
from tests.helpers.parts import MUSIQUE
from tests.helpers.roles import Asked, ask

LATE = "He died. So the answer is: Rome"


def reason(style: Any, reply: str, **settings: Any) -> Asked:
    task = ReasonTask(Question("q", "Who made it?"), (Passage("p", "T", "text"),), ("earlier",), style)
    return ask(PromptedReasoner(**settings), task, reply)


@pytest.mark.parametrize(
    "text, step",
    [
        ("Ada was born in London.", Step("Ada was born in London.", "Ada was born in London.")),
        ("So the answer is: London.", Step("So the answer is: London.", None, True, "London")),
        ("so the answer is 4-4", Step("so the answer is 4-4", None, True, "4-4")),
        (LATE, Step(LATE, None, True, "Rome", ("late_marker",))),
        ("So the answer is:", Step("So the answer is:", None, True, None)),
    ],
)
def test_thoughts(text: str, step: Step) -> None:
    assert parse_thought(text) == step


@pytest.mark.parametrize(
    "text, answer",
    [
        ("1. Reasoning: x.\n2. Final answer: London.", "London"),
        ("final answer: A\nFinal Answer: B", "B"),
        ("Because of this.\nParis", "Paris"),
    ],
)
def test_generations(text: str, answer: str) -> None:
    assert (parse_generation(text).answer, parse_generation(text).done) == (answer, False)


LINK = '{"head": "Ada", "relation": "child of", "tail": "Byron", "score": %s}'


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "style, reply, reason_",
    [
        ("ircot", "So the answer is:", "no_answer"),
        ("gcot", "So the answer is: The answer is", "no_answer"),
        ("iter_retgen", "The answer is:", "no_answer"),
        ("tog", '{"links": [], "sufficient": false, "next": ""}', "no_answer"),
    ],
)
def test_a_step_that_says_nothing_ends_the_loop(style: str, reply: str, reason_: str) -> None:
    asked = reason(style, reply)
    assert asked.result == Step(flags=("loop_error",)) and len(asked.requests) == 2
    assert asked.counts[reason_] == asked.counts["parse_failure"] == 2


def test_each_style_has_its_prompt_and_shows_earlier_steps() -> None:
    asked = [reason(style, '{"next": "a b"}' if style == "tog" else "a b") for style in get_args(Style)]
    assert all("a b" in (one.result.text, one.result.query) and "- earlier" in one.requests[0].text for one in asked)
    assert len({one.requests[0].messages[0].content for one in asked}) == 4


VERA = "Where was Vera Lindqvist born?"


@pytest.mark.parametrize(
    "shown, steps, read, step",
    [
        (("p0", "p7", "p1"), (), 3, Step(done=True)),
        (("p0", "p7", "p1"), (), 2, Step(VERA, VERA)),
        (("p0", "p7", "p1"), (VERA,), 2, Step(f"{VERA} Kalmar", f"{VERA} Kalmar")),
        (("p0",), (VERA, f"{VERA} Kalmar"), 5, Step(done=True, flags=("asked_in_vain",))),
    ],
)
def test_the_oracle_asks_for_what_the_reader_would_not_see(
    index: Index, shown: tuple[str, ...], steps: tuple[str, ...], read: int, step: Step
) -> None:
    task = ReasonTask(MUSIQUE, index.lookup(shown), steps, "ircot")
    assert ask(OracleReasoner(read), task, index=index).result == step


def test_offline_asks_for_what_the_offline_thoughts_miss(index: Index) -> None:
    def step(*shown: str) -> Step:
        return ask(OfflineReasoner(), ReasonTask(MUSIQUE, index.lookup(shown), (), "ircot"), index=index).result

    assert "vera lindqvist" in (step("p0").query or "").casefold()
    assert step(*index.ids) == Step(done=True, flags=("nothing_missing",))
