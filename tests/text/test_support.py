"""How far a text says what a statement says."""

import math

import pytest

from gnnrag.text.support import (
    content_stems,
    coverage,
    inverse_frequencies,
    said,
    support,
    windows,
    without_citations,
)


def same(stem: str) -> float:
    return 1.0


def test_content_tokens_are_stems_without_function_words() -> None:
    assert content_stems("The tumours are treated by treating a Tumour.") == {"tumour", "treat"}


def test_weights_fall_with_the_number_of_texts() -> None:
    weight = inverse_frequencies(["cancer of the skin", "cancer of the lung", "cancer"])
    assert weight("cancer") == pytest.approx(math.log(1 + 3 / 4))
    assert weight("lung") == pytest.approx(math.log(1 + 3 / 2)) and weight("unseen") == pytest.approx(math.log(4))
    assert inverse_frequencies([])("any") == 1


def test_coverage_is_a_weighted_share() -> None:
    weights = {"a": 3.0, "b": 1.0}
    assert coverage({"a", "b"}, {"b", "c"}, weights.__getitem__) == 0.25
    assert math.isnan(coverage((), {"b"}, weights.__getitem__)), "nothing is wanted"


@pytest.mark.parametrize(
    ("statement", "text", "expected"),
    [
        ("Surgery removes the tumour.", "The tumour is removed by surgery.", 1.0),
        ("Surgery removes the tumour.", "Surgery is common. It is used here. Tumours are removed.", 1.0),
        ("Surgery removes the tumour.", "Surgery. One thing. Two things. Three things. Remove tumours.", 2 / 3),
        ("Surgery removes the tumour.", "", 0.0),
        ("Half of all patients take 20 mg.", "Half of all patients take 30 mg.", 0.0),
        ("Patients take Nivolumab first.", "Patients take pembrolizumab first.", 0.0),
        ("HPV causes the tumour.", "A virus causes the tumour.", 0.0),
        ("Surgery is recommended.", "Surgery is not recommended.", 0.0),
        ("Surgery isn't recommended.", "Surgery is not recommended.", 1.0),
    ],
)
def test_support(statement, text, expected):
    assert support(said(statement), windows(text), same) == pytest.approx(expected)


def test_citations_are_no_part_of_an_answer() -> None:
    assert without_citations("It spreads [2]. It grows [1, 3] fast.") == "It spreads. It grows fast."
