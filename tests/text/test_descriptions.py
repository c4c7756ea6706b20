"""Descriptions in a question: where they begin and end, and what asks what they are."""

from __future__ import annotations

import pytest

from gnnrag.text.descriptions import descriptions


@pytest.mark.parametrize(
    ("question", "places"),
    [
        (
            "Where was the founder of Lind & Sons born?",
            [
                [
                    ("the founder of Lind & Sons", "Who is the founder of Lind & Sons?"),
                    ("the founder of Lind & Sons born", "Who is the founder of Lind & Sons born?"),
                ]
            ],
        ),
        (
            "In what year did the firm that built the Old Mill move to Bergen?",
            [[("the firm that built the Old Mill", "Which firm built the Old Mill?")]],
        ),
        (
            "Who is the tutor of the pupil whose kite was lost?",
            [[("the pupil whose kite was lost", "Which pupil's kite was lost?")]],
        ),
        (
            "Who died first, the author of Red Tide or the author of The Long Wait?",
            [
                [("the author of The Long Wait", "Who is the author of The Long Wait?")],
                [("the author of Red Tide", "Who is the author of Red Tide?")],
            ],
        ),
        (
            "In which room does the person who keeps the keys sleep at night?",
            [[("the person who keeps the keys", "Who keeps the keys?")]],
        ),
        (
            "Who is the mayor of the city where Ada was born?",
            [[("the city where Ada was born", "In which city Ada was born?")]],
        ),
        (
            "When was the boat built that sank at Bergen?",
            [[("the boat built that sank at Bergen", "Which boat sank at Bergen?")]],
        ),
        ("What is the name of the author of Red Tide?", []),
        ("When was the bridge opened?", []),
        ("Where did the head of  mill go", [[("the head of  mill", "Who is the head of  mill?")]]),
    ],
)
def test_a_description_and_what_asks_for_it(question: str, places: list[list[tuple[str, str]]]) -> None:
    rows = [[(question[one.start : one.end], one.question) for one in row] for row in descriptions(question)]
    assert rows == places


def test_the_end_of_a_description_may_be_unclear() -> None:
    (row,) = descriptions("When did the person who found the leak in the cellar store start at the mill?")
    ends = [one.question for one in row]
    assert "Who found the leak in the cellar store?" in ends and len(ends) > 1


def test_a_long_question_is_not_taken_apart() -> None:
    assert not descriptions("Where does " + "the head of the section that leads " * 60 + "live?")
