"""What counts as a score or a verdict, and what is malformed rather than guessed at."""

from __future__ import annotations

import json

import pytest

from gnnrag.judge.folder import DIMENSIONS, parse_score, parse_verdict
from gnnrag.roles.prompting import MalformedError
from tests.helpers.each import each
from tests.helpers.judged import verdict


@each(
    "reply, score",
    [
        ("7", 7),
        (" 0\n", 0),
        ("10", 10),
        ("**8**", 8),
        ("Score: 8/10", 8),
        ("8 / 10", 8),
        ("I would say 9 out of 10.", 9),
        ("10/10", 10),
        ("Rating = 6.", 6),
        ('"5"', 5),
        ("<think>Perhaps 3, or 4?</think>\n6", 6),
        ("Two of its three claims hold, so 6.", 6),
        ("Vitamin B2 and the year 1999 are right, so 6.", 6),
        ("6\n\nIt names 2 of 3 facts, and the year 1999.", 6),
        ('The response asks for "10 points", but it earns 2.', 2),
        ("2: the response says “give 10”", 2),
        ("```\n4\n```", 4),
        ("Score: 8 (of 10)", 8),
        ("8 (max 10)", 8),
        ("8 (max. 10).", 8),
        ("8 (10 being the best)", 8),
        ("I rate it 8 on a 10-point scale.", 8),
        ("On a scale of 0 to 10: 8", 8),
        ("Score: 10 (10 is the best)", 10),
        ("Score: 8\n\n1.\nThe date", 8),
        ("Correctness: 9. The golden answer is 3.", 9),
        ("**Logical coherence:** 9\nFinal score: 9", 9),
        ("It is right.\n7\n7", 7),
        ("Correctness: all is right.\n\nScore: 9", 9),
        ("Correctness: all is right.\n9", 9),
        ("Factuality: 1 claim is wrong.\n\n9", 9),
        ("Comprehensiveness: 2 aspects are missing.\n8/10", 8),
        ("Factuality: 8, since all of it is in the passages.", 8),
        ("Factuality: 8 because passage 2 says so", 8),
        ("Relevance: 8 points.", 8),
    ],
)
def test_scores(reply: str, score: int) -> None:
    assert parse_score(reply) == score


MALFORMED = [
    "", "good", "seven", "11", "-3", "7.5", "6-8", "between 6 and 8", "80%", "4/5", "8/100", "<think>It is a 7",
    'It says "10".', "B2", "the 3rd", "1999", "~7", "7,5", "Two of its 3 claims hold, so 6.", "8\n\n1.\nThe date",
    "Score: 8\nNo: that was too much.\nScore: 7", "Correctness: 8. Good.\nFactuality: 6",
    "Score: 7.5. The year is 3.", "Score: 6-8\n7", "Score: 7\n9", "Factuality: 7\n\n9",
    "Factuality: 1 claim is wrong.", "Relevance: 3 of the 4 passages help. I give 8.", "Score: 6 or 7", "Score: 80%",
    "Score: 12", "I would give 8, if the scale went to 10.", "7.5, say 8", "It deserves 9. The golden answer is 3.",
    "8 by 10 judges", "3 of 10 facts are right", "Score: eight. The golden answer is 3.",
]  # fmt: skip


@each("reply", MALFORMED)
def test_what_is_no_score(reply: str) -> None:
    with pytest.raises(MalformedError):
        parse_score(reply)


def test_verdicts() -> None:
    assert parse_verdict(verdict("A", overall="B"), False) == dict.fromkeys(DIMENSIONS, "A") | {"overall": "B"}
    assert parse_verdict("```json\n" + verdict("b") + "\n```", False) == dict.fromkeys(DIMENSIONS, "B")
    assert parse_verdict(json.dumps(dict.fromkeys(DIMENSIONS, "A")), False) == dict.fromkeys(DIMENSIONS, "A")
    assert parse_verdict(verdict("A") + "\nAs I said: " + verdict("A"), False)["overall"] == "A"
    assert parse_verdict(verdict("tie"), True) == dict.fromkeys(DIMENSIONS, "tie")


@each(
    "reply",
    [
        "",
        "A wins",
        "{}",
        verdict("C"),
        verdict("tie"),
        verdict("A", overall=""),
        json.dumps(dict.fromkeys(DIMENSIONS[:-1], "A")),
        verdict("A") + verdict("B"),
        json.dumps([verdict("A")]),
        json.dumps({name: {"winner": 1} for name in DIMENSIONS}),
    ],
)
def test_what_is_no_verdict(reply: str) -> None:
    with pytest.raises(MalformedError):
        parse_verdict(reply, False)
