"""Phrases by rules."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.text.phrases import rule_phrases
from tests.helpers.each import each


@each(
    "sentence, expected",
    [
        ("She was the chief queen of King Thado (r. 1426-1440).", ["King Thado", "1426", "1440"]),
        (
            "The University of Southampton was founded in 1862",
            ["University of Southampton", "Southampton", "1862"],
        ),
        ("Bob and Lucy went to New York City", ["Bob and Lucy", "Bob", "Lucy", "New York City"]),
        ("released on May 30, 2003", ["May 30, 2003", "2003"]),
        ("He died 11 November 875 in Metz.", ["11 November 875", "875", "Metz"]),
        ("In May 1960 it closed.", ["May 1960", "1960"]),
        ("When Neville Stanton's employer was founded", ["Neville Stanton"]),
        ("sister of the abbot of St. Maurice's Abbey", ["St. Maurice's Abbey", "St. Maurice", "Abbey"]),
        ("born to Abd al-Aziz ibn al-Walid", ["Abd al-Aziz ibn al-Walid"]),
        ("by Vincent van Gogh and Leonardo da Vinci.", None),
        ('his book "What is God?" sold', ["God", "What is God?"]),
        ("sung by 2 Chainz", ["2 Chainz", "Chainz"]),
        ("the 9th Duke of Devonshire", ["9th Duke of Devonshire", "Duke of Devonshire", "Devonshire"]),
        ("the 1996 Summer Olympics", ["1996 Summer Olympics", "1996", "Summer Olympics"]),
        ("flew a Boeing 747 over Paris, Texas", ["Boeing 747", "Paris", "Texas"]),
        ("J. K. Rowling lives", ["J. K. Rowling"]),
        ("in the 19th century", ["19th century"]),
        ("Łukasz Żal filmed", ["Łukasz Żal"]),
        ("it was nothing", []),
        ("", []),
    ],
)
def test_rules(sentence, expected):
    found = rule_phrases(sentence)
    if expected is None:
        assert {"Vincent van Gogh", "Leonardo da Vinci"} <= set(found)
    else:
        assert found == expected


def test_no_name_runs_over_the_title_break():
    found = rule_phrases("Yin Phyu\n\nYin Phyu Htwe was queen")
    assert found == ["Yin Phyu", "Yin Phyu Htwe"]


def test_unbalanced_quotation_marks_are_left_alone():
    assert rule_phrases('He said "Go and left Rome') == ["Go", "Rome"]


@settings(derandomize=True, deadline=None)
@given(st.text(alphabet="aB 19.,'\"-\n()", max_size=80))
def test_phrases_come_from_the_text_without_repeats(sentence):
    found = rule_phrases(sentence)
    assert len(found) == len(set(found))
    assert all(phrase and phrase in sentence for phrase in found)
