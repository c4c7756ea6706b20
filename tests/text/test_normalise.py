"""Spelling-insensitive forms of text, keys of phrases, and which of two names are variants."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.text.normalise import cached, drop_qualifier, find_words, fold, norm_phrase, phrase_key, terms, words


@pytest.mark.parametrize(
    ("phrase", "key"),
    {
        "The Beatles": "beatles",
        "Ocean's Eleven": "ocean eleven",
        "Ocean’s Eleven": "ocean eleven",
        "O'Neill": "oneill",
        "half- brother": "half brother",
        "S.O.B. (Film)": "s o b film",
        "The": "the",
        "...": "",
        "北京": "北京",
    }.items(),
)
def test_phrase_key(phrase: str, key: str) -> None:
    assert phrase_key(phrase) == key


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.text("aAbTheéŁß北’'-.,()… \n019", max_size=60))
def test_keys_are_made_of_words(text: str) -> None:
    assert phrase_key(text) == " ".join(words(phrase_key(text)))


@pytest.mark.parametrize(
    ("title", "bare"),
    {
        "Casablanca (film)": "Casablanca",
        "Sigrid (1566–1633) of Sweden": "Sigrid (1566–1633) of Sweden",
        "(film)": "(film)",
        "A (b) (c)": "A (b)",
        "A (b (c))": "A (b (c))",
        " A (x) \n": "A",
    }.items(),
)
def test_drop_qualifier(title: str, bare: str) -> None:
    assert drop_qualifier(title) == bare


@pytest.mark.parametrize(
    ("phrase", "hipporag", "unicode"),
    [
        ("S.O.B. (Film)", "s o b   film", "s o b film"),
        ("Beyoncé Knowles", "beyonc  knowles", "beyoncé knowles"),
        ("北京", "", "北京"),
        ("Straße  No. 5", "stra e  no  5", "strasse no 5"),
        ("ﬁlm\u00a0²", "lm", "film 2"),
        ("e\u0301tude", "e tude", "étude"),
        ("...", "", ""),
    ],
)
def test_both_forms_of_a_phrase(phrase: str, hipporag: str, unicode: str) -> None:
    assert norm_phrase(phrase, "hipporag") == hipporag
    assert norm_phrase(phrase, "unicode") == unicode
    assert norm_phrase(norm_phrase(phrase, "unicode"), "unicode") == unicode


@pytest.mark.parametrize(
    "text, words_",
    {
        "हिन्दी भाषा": ["हिन्दी", "भाषा"],
        "ที่อยู่ ABC": ["ที่อยู่", "ABC"],
        "שָׁלוֹם עולם": ["שָׁלוֹם", "עולם"],
        "مُحَمَّد، علي": ["مُحَمَّد", "علي"],
        "தமிழ்-மொழி": ["தமிழ்", "மொழி"],
        "cafe\u0301 snake_case": ["cafe\u0301", "snake", "case"],
        "می\u200cخواهم": ["می\u200cخواهم"],
        "\u0301 ...": [],
    }.items(),
)
def test_a_word_is_letters_with_their_marks(text: str, words_: list[str]) -> None:
    assert find_words(text) == words_


@pytest.mark.parametrize(
    "one, other",
    [("कि", "की"), ("が", "か"), ("ด้าน", "ดาน"), ("שָׁר", "שַׂר"), ("மொழி", "மொழ"), ("عِلْم", "عَلَم"), ("ပါ", "ပ")],
)
def test_marks_that_tell_words_apart_stay(one: str, other: str) -> None:
    assert fold(one) != fold(other) and phrase_key(one) != phrase_key(other) and phrase_key(one)
    assert norm_phrase(one, "unicode") != norm_phrase(other, "unicode")
    assert fold(unicodedata.normalize("NFD", one)) == fold(one)


@pytest.mark.parametrize(
    "accented, plain",
    [
        *(("Łódź", "lodz"), ("Ξέρξης", "ξερξησ"), ("Ёлка", "елка"), ("Nguyễn", "nguyen"), ("Straße", "strasse")),
        *(("co\u00adöp", "coop"), ("\u202bש\u200fלום\u202c", "שלום"), ("محـــمد", "محمد")),
    ],
)
def test_accents_of_latin_greek_and_cyrillic_go(accented: str, plain: str) -> None:
    assert fold(accented) == fold(unicodedata.normalize("NFD", accented)) == plain


@pytest.mark.parametrize(
    "text, expected",
    {
        "東京都 ABC": ["東京", "京都", "abc"],
        "水": ["水"],
        "กทม": ["กท", "ทม"],
        "第3次世界大戦": ["第", "3", "次世", "世界", "界大", "大戦"],
        "한국어 문장": ["한국어", "문장"],
        "ｶﾞﾗｽ ＡＢＣ": ["ガラ", "ラス", "abc"],
        "ꦧꦱꦗ": ["ꦧꦱ", "ꦱꦗ"],
        "co\u00adop\u2060erate": ["cooperate"],
    }.items(),
)
def test_where_there_are_no_blanks_pairs_of_characters_are_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected and terms("plain Latin") == words("plain Latin")


def test_results_are_kept_but_not_those_of_long_texts() -> None:
    calls: list[str] = []
    upper = cached(size=2, longest=3)(lambda text: calls.append(text) or text.upper())
    assert " ".join(map(upper, ("a", "a", "long", "long", "b", "c", "a"))) == "A A LONG LONG B C A"
    assert calls == ["a", "long", "long", "b", "c", "a"]
