"""Summaries by first sentences: which are taken, within which budget."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.text.sentences import count_words, first_sentences, lead_summary

TEXTS = (
    "Night Harbour\nNight Harbour is a film directed by Vera Lindqvist. It was shot in Tromso.",
    "Vera Lindqvist\nVera Lindqvist was a Swedish director. She was born in the town of Kalmar.",
    "Tromso\nTromso is a city in northern Norway. The film Night Harbour by Vera Lindqvist was shot there.",
)


def summary(texts, words=75):
    return lead_summary(texts, words)


def test_first_sentences_of_all_texts_come_first_without_headings():
    assert summary(TEXTS, 500) == (
        "Night Harbour is a film directed by Vera Lindqvist. Vera Lindqvist was a Swedish director. "
        "Tromso is a city in northern Norway. It was shot in Tromso. She was born in the town of Kalmar. "
        "The film Night Harbour by Vera Lindqvist was shot there."
    )
    assert summary(TEXTS, 20) == (
        "Night Harbour is a film directed by Vera Lindqvist. Vera Lindqvist was a Swedish director. "
        "It was shot in Tromso."
    ), "what does not fit is passed over"
    assert summary(["Only a heading", "Title\nNo full stop"]) == "Only a heading No full stop"
    assert summary([TEXTS[0], TEXTS[0]]).count("directed") == 1


@pytest.mark.parametrize("words", [1, 3, 5])
def test_a_sentence_is_cut_only_where_none_fits(words):
    found = summary(TEXTS, words)
    assert found.endswith("…") is (words < 5) and count_words(found) <= words


def test_scripts_without_spaces_are_counted_by_character():
    assert count_words("希腊的城市") == 5 and count_words("Μεσολόγγι 1824, 希") == 3
    found = summary(["希腊的城市希腊的城市希腊的城市。"], 4)
    assert count_words(found) == 4 and found.endswith("…")


def test_texts_without_words():
    for texts in ((), ("",), ("  \n ",)):
        assert summary(texts) == ""


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["mill", "comet", "1910", "Byron", "希腊", "a", "of"]), min_size=1, max_size=12),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 40),
)
def test_summaries_hold_the_budget(bags, words):
    texts = [" ".join(bag).capitalize() + "." for bag in bags]
    found = summary(texts, words)
    assert found and count_words(found) <= words


def test_first_sentences():
    text = "One two three. Four five. Six."
    assert first_sentences(text, 5) == "One two three. Four five."
    assert first_sentences(text, 1) == "One two three." and first_sentences("", 3) == ""
