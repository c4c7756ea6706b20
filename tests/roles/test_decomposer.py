"""Parts of a question: of a model's reply, of what the question names, of the annotation."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import ready
from gnnrag.roles.base import DecomposeTask, Decomposition
from gnnrag.roles.decomposer import OfflineDecomposer, OracleDecomposer, PromptedDecomposer, parse_parts
from gnnrag.roles.prompting import MalformedError
from gnnrag.session import Session
from gnnrag.types import GoldHop, Question
from tests.helpers.each import each


def run(role, question, **more):
    return asyncio.run(role(DecomposeTask(question, **more), Session("q")))


@each(
    "text",
    [
        '{"questions": ["Who made it?", "Where was she born?"]}',
        '["Who made it?", "Where was she born?", "Who made it?"]',
        "1. Who made it?\n2) Where was she born?",
        "- Who made it?\n- Where was she born?",  # no newline at the end, and none is lost
        '<think>two</think>\n```json\n{"questions": ["Who made it?", "Where was she born?"]}\n```',
    ],
)
def test_replies_that_say_the_same(text):
    assert parse_parts(text) == ("Who made it?", "Where was she born?")


def test_nothing_to_split_and_nothing_to_read():
    assert parse_parts("N/A") == () == parse_parts('{"questions": []}')
    with pytest.raises(MalformedError):
        parse_parts("I would rather not.")


def test_prompted_keeps_at_most_as_many_as_asked_for_and_fails_softly():
    backend = ScriptedBackend.of((".", '{"questions": ["a?", "b?", "c?"]}'))
    assert run(ready(PromptedDecomposer(), backend=backend), Question("q", "x?"), max_parts=2).parts == ("a?", "b?")
    failing = ScriptedBackend.of((".", "no"))
    assert run(ready(PromptedDecomposer(), backend=failing), Question("q", "x?")) == Decomposition(
        flags=("decomposer_failed",)
    )


def test_offline_asks_the_open_part_of_each_thing_named(index):
    question = Question("q", "Are Night Harbour and Copper Road films?")
    parts = run(ready(OfflineDecomposer(), index=index), question).parts
    assert len(parts) == 2 and parts[0].endswith("night harbour") and parts[1].endswith("copper road")
    assert run(ready(OfflineDecomposer(), index=index), Question("q", "why?")).parts == ()


def test_oracle_fills_in_the_answers_of_earlier_hops(index):
    hops = (GoldHop("Who directed it?", "Vera Lindqvist", "p0"), GoldHop("Where was #1 born?", "Kalmar", "p1"))
    question = Question("q", "?", gold=("p0", "p1"), decomposition=hops)
    parts = ("Who directed it?", "Where was Vera Lindqvist born?")
    assert run(ready(OracleDecomposer(), index=index), question).parts == parts
