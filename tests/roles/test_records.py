"""Records between markers: both formats, every spelling met, and what is dropped and counted."""

from __future__ import annotations

from collections import Counter

import pytest

from gnnrag.extract.base import EntityRecord, RelationRecord
from gnnrag.roles.writers.records import (
    clean_name,
    clean_type,
    longest,
    number,
    read_entity,
    read_relation,
    split_records,
)

A = (
    '("entity"<|>Ada<|>person<|>Ada wrote programs.)##\n'
    '("relationship"<|>Ada<|>Byron<|>Ada is his child.<|>family, descent<|>9)##\n'
    '("content_keywords"<|>computing)##\n<|COMPLETE|>'
)
B = "entity<|#|>Ada<|#|>person<|#|>Ada wrote.\nrelation<|#|>Ada<|#|>Byron<|#|>family<|#|>A child.\n<|complete|>"


def relation(text):
    found = split_records(text)
    (_, fields, is_lines), counts = found.rows[0], found.counts
    return read_relation(fields, is_lines, counts), counts


def test_format_a():
    found = split_records(A)
    assert [tag for tag, _, _ in found.rows] == ["entity", "relation"] and found.is_complete
    assert found.counts == {"seen": 2}
    assert read_entity(found.rows[0][1], found.counts) == EntityRecord("Ada", "person", "Ada wrote programs.")
    expected = RelationRecord("Ada", "Byron", "Ada is his child.", ("family", "descent"), 9.0)
    assert read_relation(*found.rows[1][1:], found.counts) == expected


def test_format_b():
    found = split_records(B)
    assert found.is_complete and found.counts["seen"] == 2 and found.flags == ("records_seen",) * 2
    expected = RelationRecord("Ada", "Byron", "A child.", ("family",), 1.0)
    assert read_relation(*found.rows[1][1:], found.counts) == expected


@pytest.mark.parametrize(
    "text",
    [
        "(entity<|>Ada<|>person<|>d)",  # Q-EX-1: no quotes around the tag
        "('ENTITY'<|>'Ada'<|>\"person\"<|>d)",
        "```\n(“entity” <|> Ada <| >person<|>d)\n```",
        "entity<|>Ada<|>person<|>d",
        '1. ("entity"<|>Ada<|>person<|>d',
        '<think>hm ##</think>("entity"<|>Ad&#97;<|>person<|>d\x07)',
        "**entity**<|#|>Ada<|#|>person<|#|>d",
        "- entity<|#|>Ada<##>person<|#|>d",
    ],
)
def test_spellings_of_one_record(text):
    found = split_records(text)
    assert [(tag, fields) for tag, fields, _ in found.rows] == [("entity", ["Ada", "person", "d"])]
    assert not found.is_complete and found.flags[-1] == "no_end_marker"


def test_records_without_separator_and_prose_around_them():
    found = split_records('Sure, here it is (as asked):\n("entity"<|>A<|>x<|>a (b) c)\n("entity"<|>B<|>y<|>d)\nDone.')
    assert [fields for _, fields, _ in found.rows] == [["A", "x", "a (b) c"], ["B", "y", "d"]]


@pytest.mark.parametrize(
    "text, expected",
    [
        ('("relationship"<|>A<|>B<|>d<|>7)', RelationRecord("A", "B", "d", (), 7.0)),  # GraphRAG: no keywords
        ('("relationship"<|>A<|>B<|>d<|>trade)', RelationRecord("A", "B", "d", ("trade",), 1.0)),
        ('("relationship"<|>A<|>B<|>d<|>k<|>high)', RelationRecord("A", "B", "d", ("k",), 1.0)),
        ('("relationship"<|>A<|>B<|>d<|>k<|>nan)', RelationRecord("A", "B", "d", ("k",), 1.0)),
        ('("relationship"<|>A<|>B<|>d<|>k<|>1e9)', RelationRecord("A", "B", "d", ("k",), 10.0)),
        ("relation<|#|>A<|#|>B<|#|>k<|#|>d<|#|>4", RelationRecord("A", "B", "d", ("k",), 4.0)),
        ("relation<|#|>A<|#|>B<|#|>k<|#|>d<|#|>more", "dropped_fields"),
        ("relation<|#|>A<|#|>B<|#|>k", "dropped_fields"),
        ('("relationship"<|>A<|>B)', "dropped_fields"),
        ('("relationship"<|>A<|>a<|>d<|>k<|>1)', "dropped_loop"),
        ('("relationship"<|>A<|>B<|><|>k<|>1)', "dropped_empty"),
    ],
)
def test_relations(text, expected):
    found, counts = relation(text)
    if isinstance(expected, str):
        assert found is None and counts[expected] == 1
    else:
        assert found == expected and not any(name.startswith("dropped") for name in counts)


@pytest.mark.parametrize(
    "fields, reason",
    [(["A", "x"], "fields"), (["A", "a/b", "d"], "type"), (["A", "x", ""], "empty"), (["", "x", "d"], "empty")],
)
def test_entities_that_cannot_be_used(fields, reason):
    counts: Counter[str] = Counter()
    assert read_entity(fields, counts) is None and counts == {f"dropped_{reason}": 1}


def test_types_names_and_numbers():
    assert clean_type(" , Natural Object, person") == "naturalobject" and clean_type("") == ""
    assert [clean_type(bad) for bad in ("it's", "a|b", "x(y)")] == [None] * 3
    assert len(clean_name("x" * 300)) == 256 and len(clean_name("北" * 300).encode()) <= 512
    assert clean_name("北" * 300) == "北" * 170
    assert [number(t, 10) for t in ("-3", "7.5", "inf", "x")] == [0, 7.5, None, None]


def test_the_longer_description_stays():
    texts = (("A", "x", "one"), ("B", "", "b"), ("A", "y", "two"), ("A", "z", "three"))
    rows = [EntityRecord(*parts) for parts in texts]
    assert longest(rows) == (EntityRecord("A", "z", "three"), EntityRecord("B", "", "b"))
