"""Spelling-insensitive forms of text, keys of phrases, and which of two names are variants."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.errors import ConfigError
from gnnrag.text.normalise import drop_qualifier, fold, is_variant, norm_phrase, phrase_key, words


@pytest.mark.parametrize(
    ("text", "folded"),
    {
        "Beyoncé": "beyonce",
        "Łódź": "lodz",
        "Straße": "strasse",
        "北京": "北京",
    }.items(),
)
def test_fold(text: str, folded: str) -> None:
    assert fold(text) == folded


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


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ConfigError, match="hipporag, unicode"):
        norm_phrase("x", "latin")


VARIANTS = (
    ("Development Plan", "DEVELOPMENT PLANS"),
    ("the Grid-Line", "grid line"),
    ("data base", "database"),
    ("Lovelace, Ada", "Ada Lovelace"),
    ("U.N.", "United Nations"),
    ("BBC", "British Broadcasting Corporation"),
    ("USA", "United States of America"),
    ("church", "churches"),
)
NO_VARIANTS = (
    ("Development Plan", "Planning Office"),
    ("Plan 1", "Plan 2"),
    ("1824", "1825"),
    ("William", "Williams"),
    ("virus", "viru"),
    ("un", "United Nations"),
    ("J. Smith", "John Smith"),
    ("", "x"),
)


@pytest.mark.parametrize(("names", "expected"), [*((p, True) for p in VARIANTS), *((p, False) for p in NO_VARIANTS)])
def test_variants_both_ways(names: tuple[str, str], expected: bool) -> None:
    assert is_variant(*names) is is_variant(*names[::-1]) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("J. R. Tolkien", "John Ronald Tolkien", True),
        ("John R. Tolkien", "John Ronald Tolkien", True),
        ("J. Tolkien", "John Ronald Tolkien", False),
        ("Ada Williams", "Ada William", False),
    ],
)
def test_variants_of_people(one: str, other: str, expected: bool) -> None:
    assert is_variant(one, other, is_person=True) is expected
