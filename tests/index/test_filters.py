"""Filters: what they may say, what they cost, how unknown values and mixed types count."""

from __future__ import annotations

import time

import pytest

from gnnrag.errors import ConfigError
from gnnrag.index.filters import LONGEST, matching, passage_dataset
from gnnrag.types import Passage

PASSAGES = [
    Passage("a", "One", "It's here.", "p. 1", {"source": "reports/a.pdf", "year": 2019, "page": 1, "draft": True}),
    Passage("b", "Two", "There.", "", {"source": "notes/b.md", "year": 2020, "date": "2020-05-06", "fee": 1}),
    Passage("c", "It's", 'A "word".', "", {"source": "reports/c's.pdf", "year": 2021, "order": "x", "fee": 2.5}),
    Passage("d", "", "Later.", "", {"source": "d.csv", "date": "2021-01-01", "mixed": 1, "größe": 2}),
    Passage("e", "", "Last.", "", {"mixed": "one"}),
]


def passing(condition: str) -> str:
    mask = matching(passage_dataset(PASSAGES), condition, len(PASSAGES))
    assert mask.shape == (5,) and mask.dtype == bool and not mask.flags.writeable
    return "".join(p.id for p, passes in zip(PASSAGES, mask, strict=True) if passes)


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("source LIKE 'reports/%' AND year >= 2020", "c"),
        ("source LIKE 'reports/%' OR year >= 2020", "abc"),
        ("NOT year = 2019", "bc"),  # unknown is no
        ("year IS NULL", "de"),
        ("title = 'It''s'", "c"),
        ("source = 'reports/c''s.pdf'", "c"),
        ("text LIKE '%\"word\"%'", "c"),
        ("id IN ('a', 'e')", "ae"),
        ("date >= '2020-06-01'", "d"),
        ("cast(date as date) < date '2021-01-01'", "b"),
        ("place = 'p. 1' AND page = 1 AND draft", "a"),
        ("fee > 1.5", "c"),
        ("mixed = '1'", "d"),
        ("`order` = 'x' OR order = 'y'", "c"),
        ("größe = 2", "d"),
        ("SOURCE ilike 'NOTES%'", "b"),
        ("lower(title) = 'two' AND year % 2 = 0 AND year BETWEEN 2000 AND 2030", "b"),
        ("true", "abcde"),
        ("NULL", ""),
        ("title = 'x'' OR ''1''=''1'", ""),
    ],
)
def test_what_a_filter_lets_through(condition: str, ids: str) -> None:
    assert passing(condition) == ids


@pytest.mark.parametrize(
    ("condition", "word"),
    [
        ("yaer = 2020", "Did you mean 'year'"),
        ("source LIKE", "LIKE"),
        ("year", "int64"),
        ("'x'", "string"),
        ("year = 'soon'", "soon"),
        ("year = 1 / 0", "zero"),
        ("", "characters"),
        (f"id = '{'x' * LONGEST}'", "characters"),
        ("id = 'a", "not closed"),
        ("id = 'a'; DROP TABLE passages", "not allowed"),
        ("id = 'a' -- more", "not allowed"),
        ("id || id = 'aa'", "not allowed"),
        ("id ~ '(a+)+$'", "not allowed"),
        ("id IN (SELECT id FROM passages)", "column"),
        ("length(repeat(id, 100000000)) > 3", "repeat"),
        ("array_length(range(1, 2000000000)) > 1", "array_length"),
        ("_rowid = 1", "_rowid"),
        ("(" * 600 + "true" + ")" * 600, ""),
        ("not " * 400 + "draft", ""),
        ("read_csv('/etc/passwd') = 1", "read_csv"),
        ("\x00", "not allowed"),
    ],
)
def test_a_malformed_filter_gets_one_line(condition: str, word: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ConfigError) as error:
        passing(condition)
    message = str(error.value)
    assert word in message and "\n" not in message and len(message) < 1000, message
    assert "source LIKE 'reports/%'" in message, "an example"
    assert "year" in message, "the columns"
    assert time.perf_counter() - started < 2


def test_columns_are_bounded_whatever_documents_bring() -> None:
    passages = [Passage(str(i), "", "x", "", {f"f{i}_{k}": k for k in range(50)}) for i in range(20)]
    dataset = passage_dataset(passages)
    assert len(dataset.schema.names) == 204 and matching(dataset, "f0_7 = 7", 20).tolist() == [True] + [False] * 19
