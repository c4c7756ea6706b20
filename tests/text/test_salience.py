"""Extractive summaries: which sentences are taken, within which budget."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.text.sentences import count_words, extract_summary, first_sentences, sentences_of

TEXTS = (
    "Night Harbour\nNight Harbour is a film directed by Vera Lindqvist. It was shot in Tromso.",
    "Vera Lindqvist\nVera Lindqvist was a Swedish director. She was born in the town of Kalmar.",
    "Tromso\nTromso is a city in northern Norway. The film Night Harbour by Vera Lindqvist was shot there.",
)


def summary(texts, words=75, redundancy=0.4):
    return extract_summary(texts, words, lambda text: text.lower().split(), redundancy)


def test_sentences_come_with_their_place_and_without_headings():
    assert sentences_of(TEXTS[:1]) == {
        "Night Harbour is a film directed by Vera Lindqvist.": True,
        "It was shot in Tromso.": False,
    }
    assert list(sentences_of(["Only a heading", "Title\nNo full stop"])) == ["Only a heading", "No full stop"]
    assert len(sentences_of([TEXTS[0], TEXTS[0]])) == 2


def test_everything_fits_into_a_large_budget_in_the_order_of_the_texts():
    assert summary(TEXTS, 500) == " ".join(sentences_of(TEXTS))


def test_central_sentences_win_and_pronouns_lose():
    found = summary(TEXTS, 24)
    assert "Vera Lindqvist" in found and "It was shot" not in found and count_words(found) <= 24


def test_redundancy_makes_room_for_something_else():
    same = ["The old mill stands by the river.", "The old mill stands near the river.", "A comet passed in 1910."]
    assert "comet" not in summary(same, 14, 0.0)
    assert "comet" in summary(same, 14, 0.9)


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
    assert extract_summary(["... ?! ...", "--"], 10, lambda text: []) != ""


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["mill", "comet", "1910", "Byron", "希腊", "a", "of"]), min_size=1, max_size=12),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 40),
)
def test_summaries_hold_the_budget_and_are_made_of_sentences(bags, words):
    texts = [" ".join(bag).capitalize() + "." for bag in bags]
    found = summary(texts, words)
    assert found and count_words(found) <= words
    if not found.endswith("…"):
        rest = found
        for sentence in sorted(sentences_of(texts), key=len, reverse=True):
            rest = rest.replace(sentence, "")
        assert not rest.strip()
    assert found == summary(texts, words)


def test_first_sentences():
    text = "One two three. Four five. Six."
    assert first_sentences(text, 5) == "One two three. Four five."
    assert first_sentences(text, 1) == "One two three." and first_sentences("", 3) == ""
