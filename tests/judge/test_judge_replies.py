"""What counts as a score or a verdict, and what is malformed rather than guessed at."""

from __future__ import annotations

import json

import pytest

from gnnrag.judge import DIMENSIONS, parse_score, parse_verdict
from gnnrag.roles.prompting import MalformedError
from tests.helpers.judged import verdict


@pytest.mark.parametrize(
    "reply, score",
    [
        ("7", 7),
        (" 0\n", 0),
        ("10", 10),
        ("**8**", 8),
        ("Score: 8/10", 8),
        ("8 out of 10", 8),
        ("Rating = 6.", 6),
        ('"5"', 5),
        ("<think>Perhaps 3, or 4?</think>\n6", 6),
        ("6\n\nIt names 2 of 3 facts, and the year 1999.", 6),
        ("```\n4\n```", 4),
        ("**Logical coherence:** 9\nFinal score: 9", 9),
        ("Comprehensiveness: 2 aspects are missing.\n8/10", 8),
        ("Relevance: 8 points.", 8),
    ],
)
def test_scores(reply: str, score: int) -> None:
    assert parse_score(reply) == score


@pytest.mark.parametrize(
    "reply",
    [
        "", "good", "11", "-3", "7.5", "6-8", "between 6 and 8", "80%", "4/5", "8/100", "<think>It is a 7", "B2",
        'It says "10".', "1999", "~7", "Two of its 3 claims hold, so 6.", "8\n\n1.\nThe date", "Score: 7\n9",
        "Correctness: 8.\nFactuality: 6", "Score: 12", "3 of 10 facts are right",
    ],
)  # fmt: skip
def test_what_is_no_score(reply: str) -> None:
    with pytest.raises(MalformedError):
        parse_score(reply)


@pytest.mark.parametrize(
    "reply, winners",
    [
        (verdict("A", overall="B"), {"overall": "B"}),
        ("```json\n" + verdict("b") + "\n```", dict.fromkeys(DIMENSIONS, "B")),
        (json.dumps(dict.fromkeys(DIMENSIONS, "A")), {}),
        (verdict("A") + "\nAs I said: " + verdict("A"), {}),
    ],
)
def test_verdicts(reply: str, winners: dict[str, str]) -> None:
    assert parse_verdict(reply) == dict.fromkeys(DIMENSIONS, "A") | winners


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "A wins",
        verdict("C"),
        verdict("tie"),
        verdict("A", overall=""),
        json.dumps(dict.fromkeys(DIMENSIONS[:-1], "A")),
        json.dumps({name: {"winner": 1} for name in DIMENSIONS}),
    ],
)
def test_what_is_no_verdict(reply: str) -> None:
    with pytest.raises(MalformedError):
        parse_verdict(reply)
