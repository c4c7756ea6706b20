"""What a question asks for, from its words."""

from __future__ import annotations

import pytest

from gnnrag.text.questions import expected_type, head_noun, is_yes_no


@pytest.mark.parametrize(
    "question, expected",
    {
        "Are A and B both rivers?": "yes_no",
        "When was the bridge in the city where Ada Bloom was born built?": "date",
        "In the country where A lies, what percentage of people fish?": "number",
        "What county shares a border with the county of A?": "place",
        "Who wrote the book?": "person",
        "The league includes a team that was formed in what year?": "year",
        "What language is spoken in A?": "language",
        "Which country is A from?": "country",
        "What genre is the author of A associated with?": "phrase",
    }.items(),
)
def test_expected_type(question: str, expected: str) -> None:
    assert expected_type(question) == expected


def test_head_noun() -> None:
    assert head_noun("What county shares a border with A?") == "county"
    assert head_noun("How many grocery stores are in A?") == "stores"


def test_a_choice_is_not_answered_with_yes_or_no() -> None:
    assert is_yes_no("Is A in B?") and not is_yes_no("Is A older or B?") and not is_yes_no("Who is A?")
