"""The noun-phrase rules: the measured rows of specs/mgranrag.md 2.3, with tags set by hand."""

from __future__ import annotations

import re

from gnnrag.text.phrases import Token, noun_phrases
from tests.helpers.each import each


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
        "Bob/PROPN and/CCONJ Lucy/PROPN went/VERB to/ADP New/PROPN York/PROPN City/PROPN",
        {"Bob and Lucy", "Bob", "Lucy", "New York City"},
        {"Bob and Lucy", "Bob", "Lucy", "New York City"},
    ),
    (
        "published/VERB in/ADP Philadelphia/PROPN in/ADP the/DET 19th/ADJ century/NOUN",
        {"Philadelphia in", "Philadelphia in the", "century"},
        {"Philadelphia", "century"},
    ),
    (
        "a/DET well/ADV -/PUNCT known/VERB literary/ADJ periodical/NOUN",
        {"well-", "periodical"},
        {"periodical"},
    ),
    ("Paris/PROPN in/ADP the/DET spring/NOUN", {"Paris in the spring"}, {"Paris in the spring"}),
    ("It/PRON of/ADP ./PUNCT", {"It of"}, {"It"}),
    (
        "When/SCONJ Neville/PROPN Stanton/PROPN 's/PART employer/NOUN was/AUX founded/VERB",
        {"When Neville Stanton's employer"},
        {"When Neville Stanton's employer"},
    ),
    ("released/VERB on/ADP May/PROPN 30/NUM ,/PUNCT 2003/NUM", {"May 30", "2003"}, {"May 30", "2003"}),
    ("-/PUNCT based/VERB in/ADP Rome/PROPN", {"Rome"}, {"Rome"}),
]


@each("tagged, official, clean", ROWS)
def test_measured_rows(tagged, official, clean):
    found = noun_phrases(tokens_of(tagged), "official")
    assert set(found) == official
    assert len(found) == len(official)
    assert set(noun_phrases(tokens_of(tagged), "clean")) == clean


def test_clean_keeps_the_start_of_a_recognised_name():
    tokens = tokens_of("The/DET Hague/PROPN is/AUX old/ADJ")
    assert noun_phrases(tokens, "clean") == ["Hague"]
    assert noun_phrases(tokens, "clean", names={"The Hague"}) == ["The Hague"]


def test_empty_sentence():
    assert noun_phrases([], "official") == []
