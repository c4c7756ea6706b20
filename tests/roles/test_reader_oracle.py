"""The oracle reader answers only when the gold evidence was found."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.errors import ConfigError
from gnnrag.roles.base import ReaderTask
from gnnrag.roles.reader import OracleReader, OracleReaderConfig
from gnnrag.session import Session
from gnnrag.types import GoldHop, Passage, Question
from tests.helpers.each import each

QUESTION = Question(
    "q",
    "Who?",
    ("Ada", "Ada Bloom"),
    gold=("b", "a"),
    decomposition=(GoldHop("first?", "X", "b"), GoldHop("then?", "Ada", "a")),
)


def task(question: Question, *ids: str) -> ReaderTask:
    return ReaderTask(question, tuple(Passage(i, i, "text") for i in ids))


@each(
    "require, ids, text",
    [
        ("all", ("x", "a", "b"), "Ada"),
        ("all", ("a",), ""),
        ("last", ("a", "x"), "Ada"),
        ("last", ("b", "x"), ""),
        ("none", (), "Ada"),
    ],
)
def test_requires_the_gold_passages(require: str, ids: tuple[str, ...], text: str) -> None:
    answer = OracleReader(None, OracleReaderConfig(require)).read(task(QUESTION, *ids))  # type: ignore[arg-type]
    assert answer.text == text
    assert answer.confidence == (1.0 if text else 0.0)


def test_support_lists_the_gold_passages_that_were_seen() -> None:
    assert OracleReader().read(task(QUESTION, "x", "a", "b")).support == ("b", "a")


def test_the_last_gold_passage_counts_where_there_is_no_decomposition() -> None:
    reader = OracleReader(None, OracleReaderConfig("last"))
    question = Question("q", "Who?", ("Ada",), gold=("b", "a"))
    assert reader.read(task(question, "a")).text == "Ada"
    assert reader.read(task(question, "b")).text == ""


def test_abstains_without_gold_or_answers() -> None:
    assert OracleReader().read(task(Question("q", "Who?", ("Ada",)), "a")).text == ""
    assert OracleReader().read(task(Question("q", "Who?", (), gold=("a",)), "a")).text == ""


def test_call_answers_like_read_and_says_what_is_missing() -> None:
    answer = asyncio.run(OracleReader()(task(QUESTION, "a"), Session("q")))
    assert answer == OracleReader().read(task(QUESTION, "a"))
    assert answer.thought == "missing: b"


def test_unknown_requirement_is_refused() -> None:
    with pytest.raises(ConfigError, match="all, last, none"):
        OracleReader(None, OracleReaderConfig("some"))  # type: ignore[arg-type]
