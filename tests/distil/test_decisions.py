"""Filters on decisions made by hand: why each is kept or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnrag.io import write_jsonl
from gnnrag.training.decisions import Decision, became_right, decisions_of, verdict_on
from gnnrag.training.rows import Gain, KeepConfig
from gnnrag.types import Question

QUESTION = Question("q", "Q?", ("Paris",), gold=("a", "b"))
THOUGHTS = {
    **{"event": "decision", "role": "thoughts", "sufficient": False, "flags": [], "pool": ["x", "a"]},
    **{"fast": "Who was he?", "slow": "Why?", "candidates": [{"text": "c", "kind": "k", "ranks": {"b": 2}}]},
}
VERIFIER = {"event": "decision", "role": "verifier", "passages": ["x", "a", "b"], "selected": ["a"], "flags": []}


def query(text: str, *ids: str) -> dict[str, Any]:
    return {"event": "query", "text": text, "ranking": {"ids": list(ids)}}


def verdict(event: dict[str, Any], question: Question = QUESTION, right: set[str] | None = None, **keep: Any) -> str:
    return verdict_on(Decision(event["role"], question, 0, event), KeepConfig(**keep), right or set())


def test_queries_belong_to_the_thoughts_that_they_follow() -> None:
    again = THOUGHTS | {"fast": "Who was he?", "slow": None, "pool": ["b", "a"]}
    events = [
        query("Q?", "x"), query("who was he?", "b"), THOUGHTS, query("who was  HE?", "b", "a"), query("Other", "b"),
        {"event": "merge"}, again, query("Who was he?", "b", "a"), VERIFIER,
    ]  # fmt: skip
    first, second, last = decisions_of(QUESTION, events)
    assert (first.number, second.number, last.number) == (0, 1, 0) and last.role == "verifier"
    assert first.gain("fast") == Gain(1.0, ("b",)) and first.gain("slow") is None, "slow was not sent"
    assert second.gain("fast") == Gain(), "nothing is new to the pool by then"
    assert first.candidates == [("c", "k", Gain(0.5, ("b",)))] and second.candidates == [("c", "k", Gain())]


def test_thoughts_are_kept_if_a_query_gained() -> None:
    found = decisions_of(QUESTION, [THOUGHTS, query("Why?", "x", "b"), query("who was he?", "x")])[0]
    assert verdict_on(found, KeepConfig(), set()) == ""
    poor = decisions_of(QUESTION, [THOUGHTS, query("Why?", "x", "a"), query("who was he?", "x")])[0]
    assert verdict_on(poor, KeepConfig(), set()) == "useless"
    assert verdict_on(poor, KeepConfig(helped=False), set()) == ""
    assert verdict_on(poor, KeepConfig(), {"q"}) == "", "the answer became right"


@pytest.mark.parametrize(
    "change, keep, expected",
    [
        ({"fast": None, "slow": None}, {}, "stop"),
        ({"fast": None, "slow": None, "sufficient": True}, {}, "stop"),
        ({"fast": None, "slow": None, "sufficient": True}, {"stops": True}, ""),
        ({"fast": None, "slow": None}, {"stops": True}, "stop"),
        ({"flags": ["answer_leak"]}, {}, "failed"),
        ({"flags": ["answer_leak"]}, {"clean": False, "helped": False}, ""),
        ({"slow": "When was PARIS, the capital, founded?"}, {}, "leaked"),
        ({"slow": "When was Paris founded?"}, {"clean": False, "helped": False}, ""),
        ({"slow": "What is a comparison?"}, {"helped": False}, ""),  # a part of a word
    ],
)
def test_thoughts_that_ask_nothing_or_failed(change: dict[str, Any], keep: dict[str, Any], expected: str) -> None:
    assert verdict(THOUGHTS | change, **keep) == expected


def test_what_the_question_itself_says_gives_nothing_away() -> None:
    either = Question("q", "Which is older, Paris or Rome?", ("Paris", "yes"), gold=("a", "b"))
    assert verdict(THOUGHTS | {"fast": "How old is Paris?", "slow": "Yes or no?"}, either, helped=False) == ""


@pytest.mark.parametrize(
    "selected, passages, precision, expected",
    [
        (["a"], "xab", 0.5, ""),
        (["a", "x"], "xab", 0.5, ""),
        (["a", "x", "y"], "xyab", 0.5, "useless"),  # a third of the choice is gold
        (["a", "x", "y"], "xyab", 0.3, ""),
        (["x"], "xab", 0.0, "useless"),
        ([], "xab", 0.5, "useless"),  # there was something to select
        ([], "xy", 0.5, ""),  # there was not
    ],
)
def test_a_choice_helped_if_enough_of_it_is_gold(
    selected: list[str], passages: str, precision: float, expected: str
) -> None:
    event = VERIFIER | {"selected": selected, "passages": list(passages)}
    assert verdict(event, precision=precision) == expected
    assert verdict(event, helped=False) == ""
    assert verdict(event, Question("q", "Q?")) == "unknown"
    assert verdict(event | {"flags": ["verifier_failed"]}) == "failed"


def test_answers_that_became_right(tmp_path: Path) -> None:
    questions = {i: Question(i, "Q?", ("Paris",)) for i in ("up", "same", "down", "new", "broken")}
    answers = {
        "with": {"up": "paris", "same": "Paris", "down": "Rome", "new": "Paris", "broken": "Paris"},
        "without": {"up": "Rome", "same": "Paris", "down": "Paris", "other": "Rome", "broken": "Rome"},
    }
    for name, found in answers.items():
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name / "predictions.jsonl", [
            {"question_id": i, "answer": a, "ranking": [], "context": [], "rounds": 0, "usage": {},
             "error": "down" if i == "broken" else None} for i, a in found.items()
        ])  # fmt: skip
    right = became_right(tmp_path / "with", tmp_path / "without", questions)
    assert right == {"up"}, "only one that was wrong before; a failed one is not right"
    assert became_right(tmp_path / "with", None, questions) == set()
