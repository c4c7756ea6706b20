"""Records between markers: every spelling met, and what is dropped and counted."""

from __future__ import annotations

from collections import Counter

import pytest

from gnnrag.extract.base import EntityRecord, RelationRecord
from gnnrag.roles.writers.records import (
    clean_name,
    clean_type,
    dropped,
    number,
    read_entity,
    read_relation,
    split_records,
)

A = (
    '("entity"<|>Ada<|>person<|>Ada wrote.)##\n'
    '("relationship"<|>Ada<|>Byron<|>Ada is his child.<|>family, descent<|>9)##\n'
    '("content_keywords"<|>computing)##\n<|COMPLETE|>'
)


def test_records_are_read_in_order() -> None:
    found = split_records(A)
    assert [tag for tag, _ in found.rows] == ["entity", "relation"] and found.is_complete
    assert found.counts["seen"] == 2 and found.flags == ("records_seen",) * 2
    assert read_entity(found.rows[0][1], found.counts) == EntityRecord("Ada", "person", "Ada wrote.")
    relation = RelationRecord("Ada", "Byron", "Ada is his child.", ("family", "descent"), 9.0)
    assert read_relation(found.rows[1][1], found.counts) == relation


@pytest.mark.parametrize(
    "text",
    [
        "(entity<|>Ada<|>person<|>d)",  # Q-EX-1: no quotes around the tag
        "('ENTITY'<|>'Ada'<|>\"person\"<|>d)",
        "```\n(“entity” <|> Ada <| >person<|>d)\n```",
        "entity<|>Ada<|>person<|>d",
        '1. ("entity"<|>Ada<|>person<|>d',
        '<think>hm ##</think>("entity"<|>Ad&#97;<|>person<|>d\x07)',
    ],
)
def test_spellings_of_one_record(text):
    found = split_records(text)
    assert found.rows == [("entity", ["Ada", "person", "d"])]
    assert not found.is_complete and found.flags[-1] == "no_end_marker"


@pytest.mark.parametrize(
    "text, expected",
    [
        ('("relationship"<|>A<|>B<|>d<|>7)', RelationRecord("A", "B", "d", (), 7.0)),  # GraphRAG: no keywords
        ('("relationship"<|>A<|>B<|>d<|>trade)', RelationRecord("A", "B", "d", ("trade",), 1.0)),
        ('("relationship"<|>A<|>B<|>d<|>k<|>high)', RelationRecord("A", "B", "d", ("k",), 1.0)),
        ('("relationship"<|>A<|>B<|>d<|>k<|>nan)', RelationRecord("A", "B", "d", ("k",), 1.0)),
        ('("relationship"<|>A<|>B<|>d<|>k<|>1e9)', RelationRecord("A", "B", "d", ("k",), 10.0)),
        ('("relationship"<|>A<|>B)', "dropped_fields"),
        ('("relationship"<|>A<|>a<|>d<|>k<|>1)', "dropped_loop"),
        ('("relationship"<|>A<|>B<|><|>k<|>1)', "dropped_empty"),
    ],
)
def test_relations(text, expected):
    records = split_records(text)
    found = read_relation(records.rows[0][1], records.counts)
    if isinstance(expected, str):
        assert found is None and records.counts[expected] == 1
    else:
        assert found == expected and not dropped(records.counts)


def test_types_names_and_numbers():
    assert clean_type(" , Natural Object, person") == "naturalobject" and clean_type("") == ""
    assert [clean_type(bad) for bad in ("it's", "a|b", "x(y)")] == [None] * 3
    assert len(clean_name("x" * 300)) == 256 and len(clean_name("北" * 300).encode()) <= 512
    assert clean_name("北" * 300) == "北" * 170
    counts: Counter[str] = Counter()
    rows = (["A", "x"], ["A", "a/b", "d"], ["A", "x", ""], ["", "x", "d"])
    assert [read_entity(row, counts) for row in rows] == [None] * 4
    assert counts == {"dropped_fields": 1, "dropped_type": 1, "dropped_empty": 2}
    assert [number(t, 10) for t in ("-3", "7.5", "inf", "x")] == [0, 7.5, None, None]
