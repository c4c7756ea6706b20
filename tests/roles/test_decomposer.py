"""Parts of a question: of a model's reply, of what the question names, of the annotation."""

from __future__ import annotations

from typing import Any

import pytest

from gnnrag.index.index import Index
from gnnrag.roles.base import DecomposeTask
from gnnrag.roles.decomposer import OfflineDecomposer, PromptedDecomposer, parse_parts
from gnnrag.roles.oracle import OracleDecomposer
from gnnrag.roles.prompting import MalformedError
from gnnrag.types import GoldHop, Question
from tests.helpers.roles import ask


@pytest.mark.parametrize(
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


def test_prompted_keeps_at_most_as_many_as_asked_for() -> None:
    asked = ask(PromptedDecomposer(), DecomposeTask(Question("q", "x?"), 2), '{"questions": ["a?", "b?", "c?"]}')
    assert asked.result.parts == ("a?", "b?") and asked.result.flags == ("too_many_parts",)


HOPS = (GoldHop("Who directed it?", "Vera Lindqvist", "p0"), GoldHop("Where was #1 born?", "Kalmar", "p1"))
TITLES = Question("q", "Are Night Harbour and Copper Road films?")


@pytest.mark.parametrize(
    "role, question, ends",
    [
        (OfflineDecomposer, TITLES, ("night harbour", "copper road")),
        (OfflineDecomposer, Question("q", "why?"), ()),
        (OracleDecomposer, Question("q", "?", gold=("p0", "p1"), decomposition=HOPS),
         ("Who directed it?", "Where was Vera Lindqvist born?")),
    ],
)  # fmt: skip
def test_without_a_model(index: Index, role: Any, question: Question, ends: tuple[str, ...]) -> None:
    parts = ask(role(), DecomposeTask(question), index=index).result.parts
    assert len(parts) == len(ends) and all(part.endswith(end) for part, end in zip(parts, ends, strict=True))
