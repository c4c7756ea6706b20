"""Filters: what they may say, what they cost, how unknown values and mixed types count."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gnnrag.errors import ConfigError
from gnnrag.index.filters import LONGEST, checked, matching
from gnnrag.index.tables import PassageTable, passage_rows, write_passages
from gnnrag.types import Passage

PASSAGES = [
    Passage("a", "One", "It's here.", "p. 1", {"source": "reports/a.pdf", "year": 2019, "page": 1, "draft": True}),
    Passage("b", "Two", "There.", "", {"source": "notes/b.md", "year": 2020, "date": "2020-05-06", "fee": 1}),
    Passage("c", "It's", 'A "word".', "", {"source": "reports/c's.pdf", "year": 2021, "order": "x", "fee": 2.5}),
    Passage("d", "", "Later.", "", {"source": "d.csv", "date": "2021-01-01", "mixed": 1, "größe": 2}),
    Passage("e", "", "Last.", "", {"mixed": "one"}),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> PassageTable:
    return write_passages(str(tmp_path_factory.mktemp("filters") / "p.lance"), PASSAGES, {})


def passing(table: PassageTable, condition: str) -> str:
    mask = matching(table, condition)
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
        ("year > NULL", ""),
        ("title = 'x'' OR ''1''=''1'", ""),
    ],
)
def test_what_a_filter_lets_through(table: PassageTable, condition: str, ids: str) -> None:
    assert passing(table, condition) == ids


@pytest.mark.parametrize(
    ("condition", "word"),
    [
        ("yaer = 2020", "Did you mean 'year'"),
        ("source LIKE", "LIKE"),
        ("year", "boolean"),
        ("'x'", "boolean"),
        ("NULL", "boolean"),
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
        ("true) OR (true", "parentheses"),
        ("(year = 2020", "parentheses"),
        ("year = 2020 draft", "draft"),
        ("year = 2020, true", "year"),
    ],
)
def test_a_malformed_filter_gets_one_line(table: PassageTable, condition: str, word: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ConfigError) as error:
        passing(table, condition)
    message = str(error.value)
    assert word in message and "\n" not in message and len(message) < 1000, message
    assert "source LIKE 'reports/%'" in message, "an example"
    assert "year" in message, "the columns"
    assert time.perf_counter() - started < 2


def test_columns_are_bounded_whatever_documents_bring(tmp_path: Path) -> None:
    passages = [Passage(str(i), "", "x", "", {f"f{i}_{k}": k for k in range(50)}) for i in range(20)]
    table = write_passages(str(tmp_path / "p.lance"), passages, {})
    assert len(table.columns) == 204 and matching(table, "f0_7 = 7").tolist() == [True] + [False] * 19


def test_a_field_of_another_type_widens_its_column(tmp_path: Path) -> None:
    rows = [{"n": 1, "flag": True, "s": "a"}, {"n": 2.5, "flag": 3, "s": 4}, {"n": "x", "flag": False, "new": 1.0}]
    passages = [Passage(str(i), "", f"text {i}", "", row) for i, row in enumerate(rows)]
    table = write_passages(str(tmp_path / "p.lance"), passages[:1], {"settings": 1})
    table = table.edit((), passages[1:2])
    assert matching(table, "n > 1.5 AND flag = '3' AND s = '4'").tolist() == [False, True]
    assert matching(table, "flag = 'true' AND n = 1 AND s = 'a'").tolist() == [True, False]
    table = table.edit((), passages[2:])
    assert matching(table, "n = 'x' AND flag = 'false' AND s IS NULL AND new = 1").tolist() == [False, False, True]
    whole = write_passages(str(tmp_path / "w.lance"), passages, {})
    for name in ("flag", "s", "new"):
        assert table.rows[name].to_pylist() == whole.rows[name].to_pylist(), name
    assert [p.metadata["n"] for p in passage_rows(table.rows)] == ["1.0", "2.5", "x"] and table.state == {"settings": 1}


@pytest.mark.parametrize("bomb", ["+".join(["1"] * 850) + "=1", "cast(" * 48 + "1" + " as int)" * 48 + "=1"])
def test_conditions_that_would_end_the_process_are_refused(bomb):
    with pytest.raises(ConfigError, match="too many parts"):
        checked(bomb, ["id"])
