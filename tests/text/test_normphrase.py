from __future__ import annotations

import pytest

from gnnrag.errors import ConfigError
from gnnrag.text.normalise import norm_phrase
from tests.helpers.each import each


@each(
    "phrase, hipporag, unicode",
    [
        ("S.O.B. (Film)", "s o b   film", "s o b film"),
        ("Beyoncé Knowles", "beyonc  knowles", "beyoncé knowles"),
        ("Roşia de Amaradia", "ro ia de amaradia", "roşia de amaradia"),
        ("北京", "", "北京"),
        ("Straße  No. 5", "stra e  no  5", "strasse no 5"),
        ("snake_case", "snake case", "snake case"),
        ("ﬁlm\u00a0²", "lm", "film 2"),
        ("e\u0301tude", "e tude", "étude"),
        ("...", "", ""),
    ],
)
def test_both_forms(phrase, hipporag, unicode):
    assert norm_phrase(phrase, "hipporag") == hipporag
    assert norm_phrase(phrase, "unicode") == unicode
    assert norm_phrase(norm_phrase(phrase, "unicode"), "unicode") == unicode


def test_an_unknown_form_is_refused():
    with pytest.raises(ConfigError, match="allowed are hipporag, unicode"):
        norm_phrase("x", "latin")
