"""Noun phrases: the measured rows of specs/mgranrag.md 2.3, with tags set by hand, and those of rules without tags."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.text.phrases import Token, noun_phrases, rule_phrases


def tokens_of(tagged: str) -> list[Token]:
    """Read `word/POS word/POS`, with shapes as spaCy writes them; NL is the two-newline token."""
    tokens = []
    for item in tagged.split():
        word, _, pos = item.rpartition("/")
        if item == "NL":
            word, pos = "\n\n", "SPACE"
        shape = re.sub(r"[A-Z]", "X", re.sub(r"\d", "d", re.sub(r"[a-z]", "x", word)))
        tokens.append(Token(word, re.sub(r"(.)\1{4,}", r"\1\1\1\1", shape), pos))
    return tokens


ROWS = [
    (
        "Yin/PROPN Phyu/PROPN NL Yin/PROPN Phyu/PROPN Htwe/PROPN was/AUX queen/NOUN consort/NOUN to/ADP four/NUM "
        "consecutive/ADJ kings/NOUN of/ADP Ava/PROPN",
        {"Yin Phyu", "Yin Phyu Htwe", "queen consort", "four", "kings", "Ava"},
        {"Yin Phyu", "Yin Phyu Htwe", "queen consort", "four", "kings", "Ava"},
    ),
    (
        "She/PRON was/AUX the/DET chief/ADJ queen/NOUN of/ADP King/PROPN Thado/PROPN (/PUNCT r./NOUN 1426/NUM -/PUNCT "
        "1440/NUM )/PUNCT",
        {"queen", "King Thado", "r. 1426-1440"},
        {"queen", "King Thado", "r. 1426-1440"},
    ),
    (
        "The/DET University/PROPN of/ADP Southampton/PROPN was/AUX founded/VERB in/ADP 1862/NUM",
        {"The University of Southampton", "1862"},
        {"University of Southampton", "1862"},
    ),
    (
        "published/VERB in/ADP Philadelphia/PROPN in/ADP the/DET 19th/ADJ century/NOUN",
        {"Philadelphia in", "Philadelphia in the", "century"},
        {"Philadelphia", "century"},
    ),
    ("a/DET well/ADV -/PUNCT known/VERB literary/ADJ periodical/NOUN", {"well-", "periodical"}, {"periodical"}),
    ("Paris/PROPN in/ADP the/DET spring/NOUN", {"Paris in the spring"}, {"Paris in the spring"}),
    ("It/PRON of/ADP ./PUNCT", {"It of"}, {"It"}),
    (
        "When/SCONJ Neville/PROPN Stanton/PROPN 's/PART employer/NOUN was/AUX founded/VERB",
        {"When Neville Stanton's employer"},
        {"When Neville Stanton's employer"},
    ),
    ("-/PUNCT based/VERB in/ADP Rome/PROPN", {"Rome"}, {"Rome"}),
]


@pytest.mark.parametrize(("tagged", "official", "clean"), ROWS)
def test_measured_rows(tagged, official, clean):
    found = noun_phrases(tokens_of(tagged), "official")
    assert set(found) == official
    assert len(found) == len(official)
    assert set(noun_phrases(tokens_of(tagged), "clean")) == clean


def test_clean_keeps_the_start_of_a_recognised_name():
    tokens = tokens_of("The/DET Hague/PROPN is/AUX old/ADJ")
    assert noun_phrases(tokens, "clean") == ["Hague"]
    assert noun_phrases(tokens, "clean", names={"The Hague"}) == ["The Hague"]
    assert noun_phrases([], "official") == []


# ------------------------------------------------------------------------------------------------ without tags
@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("She was the chief queen of King Thado (r. 1426-1440).", ["King Thado", "1426", "1440"]),
        ("The University of Southampton was founded in 1862", ["University of Southampton", "Southampton", "1862"]),
        ("Bob and Lucy went to New York City", ["Bob and Lucy", "Bob", "Lucy", "New York City"]),
        ("He died 11 November 875 in Metz.", ["11 November 875", "875", "Metz"]),
        ("When Neville Stanton's employer was founded", ["Neville Stanton"]),
        ("sister of the abbot of St. Maurice's Abbey", ["St. Maurice's Abbey", "St. Maurice", "Abbey"]),
        ("born to Abd al-Aziz ibn al-Walid", ["Abd al-Aziz ibn al-Walid"]),
        ("by Vincent van Gogh and Leonardo da Vinci.", None),
        ('his book "What is God?" sold', ["God", "What is God?"]),
        ("the 9th Duke of Devonshire", ["9th Duke of Devonshire", "Duke of Devonshire", "Devonshire"]),
        ("the 1996 Summer Olympics", ["1996 Summer Olympics", "1996", "Summer Olympics"]),
        ("flew a Boeing 747 over Paris, Texas", ["Boeing 747", "Paris", "Texas"]),
        ("Łukasz Żal filmed", ["Łukasz Żal"]),
        ("it was nothing", []),
        ('He said "Go and left Rome', ["Go", "Rome"]),  # unbalanced
        ("Yin Phyu\n\nYin Phyu Htwe was queen", ["Yin Phyu", "Yin Phyu Htwe"]),  # no name runs over the title break
    ],
)
def test_rules(sentence, expected):
    found = rule_phrases(sentence)
    if expected is None:
        assert {"Vincent van Gogh", "Leonardo da Vinci"} <= set(found)
    else:
        assert found == expected


@settings(derandomize=True, deadline=None)
@given(st.text(alphabet="aB 19.,'\"-\n()", max_size=80))
def test_phrases_come_from_the_text_without_repeats(sentence):
    found = rule_phrases(sentence)
    assert len(found) == len(set(found))
    assert all(phrase and phrase in sentence for phrase in found)
