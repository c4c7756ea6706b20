from __future__ import annotations

from gnnrag.text.normalise import is_variant
from tests.helpers.each import each


@each(
    "one, other",
    [
        ("Development Plan", "DEVELOPMENT PLANS"),
        ("the Grid-Line", "grid line"),
        ("data base", "database"),
        ("Mesolóngi", "Mesolongi"),
        ("Lovelace, Ada", "Ada Lovelace"),
        ("U.N.", "United Nations"),
        ("BBC", "British Broadcasting Corporation"),
        ("USA", "United States of America"),
        ("city", "cities"),
        ("S.O.B.", "SOB"),
        ("church", "churches"),
    ],
)
def test_variants(one, other):
    assert is_variant(one, other) and is_variant(other, one)


@each(
    "one, other",
    [
        ("Development Plan", "Planning Office"),
        ("Plan 1", "Plan 2"),
        ("1824", "1825"),
        ("William", "Williams"),
        ("Paris", "Pari"),
        ("virus", "viru"),
        ("UN", "UNO"),
        ("un", "United Nations"),
        ("Grid", "Grid Lines"),
        ("J. Smith", "John Smith"),
        ("", "x"),
        ("...", "!"),
        ("A", "Art"),
    ],
)
def test_no_variants(one, other):
    assert not is_variant(one, other) and not is_variant(other, one)


def test_people():
    assert is_variant("J. R. Tolkien", "John Ronald Tolkien", is_person=True)
    assert is_variant("John R. Tolkien", "John Ronald Tolkien", is_person=True)
    assert not is_variant("J. Tolkien", "John Ronald Tolkien", is_person=True)
    assert not is_variant("K. Tolkien", "John Tolkien", is_person=True)
    assert not is_variant("Ada Williams", "Ada William", is_person=True)
