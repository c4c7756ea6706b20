"""Training rows written elsewhere are read strictly, with line and field; what a query gains over a pool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import DataError
from gnnrag.training.rows import DEPTH, ThoughtsRow, VerifierRow, gain, plain_rows, read_rows

PASSAGE = {"id": "a", "title": "A", "text": "text of a", "score": 0.5, "cosine": 0.25}
ROW: dict[str, Any] = {"id": "r1", "set": "s", "question_id": "q", "question": "Q?", "passages": [PASSAGE]}
THOUGHT = ROW | {"fast": "f"}


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines), encoding="utf-8")
    return path


def test_rows_survive_writing_and_reading(tmp_path: Path) -> None:
    verifier = ROW | {"selected": ["a"], "gold": ["a"], "chain": "c", "support": ["a"], "source": {"chat": ["a"]}}
    thoughts = THOUGHT | {"round": 2, "earlier": ["e"], "pool": ["a"], "gold": ["b"]}
    for kind, data in ((VerifierRow, verifier), (ThoughtsRow, thoughts)):
        rows = [kind.model_validate(data)]
        path = written(tmp_path / "rows.jsonl", *plain_rows(rows))
        assert read_rows(path, kind) == rows
    assert list(plain_rows([ThoughtsRow.model_validate(THOUGHT)])) == [THOUGHT]
    enough = read_rows(written(tmp_path / "rows.jsonl", ROW | {"sufficient": True}), ThoughtsRow)
    assert enough[0].sufficient, "a row that says that nothing is missing"
    assert rows[0].passages[0].passage.content == "A\ntext of a"


@pytest.mark.parametrize(
    "kind, bad, field",
    [
        (VerifierRow, {"id": ""}, "id"),
        (VerifierRow, {"question": None}, "question"),
        (VerifierRow, {"passages": [PASSAGE | {"score": "high"}]}, r"passages\.0\.score"),
        (VerifierRow, {"selektiert": ["a"]}, "selektiert"),
        (VerifierRow, {"fast": "f"}, "fast"),
        (ThoughtsRow, {"fast": 3}, "fast"),
        (ThoughtsRow, {"fast": "f", "round": "first"}, "round"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, kind: Any, bad: dict[str, Any], field: str) -> None:
    good = ROW if kind is VerifierRow else THOUGHT
    path = written(tmp_path / "rows.jsonl", good, "", ROW | {"id": "r2"} | bad)
    with pytest.raises(DataError, match=rf"rows\.jsonl, line 3: .*{field}"):
        read_rows(path, kind)


@pytest.mark.parametrize(
    "ranking, pool, expected",
    [
        ("axy", "xyz", 1.0),  # missing, and found first
        ("xay", "xyz", 0.5),
        ("axy", "xay", 0.5),  # raised from the second place to the first
        ("xay", "axy", 0.0),  # lowered: nothing is lost, the pool keeps it
        ("abx", "bxy", 1.0),  # b falls from 1 to 2, which counts as nothing
        ("bax", "xya", 1 + 1 / 2 - 1 / 3),
        ("xyz", "xyz", 0.0),
        ("", "xyz", 0.0),
        ("ba", "", 1.5),
    ],
)
def test_a_gain_is_what_reciprocal_ranks_rise_by(ranking: str, pool: str, expected: float) -> None:
    assert gain([ranking], pool, {"a", "b"}) == pytest.approx(expected)


def test_only_the_first_passages_count_and_of_several_queries_the_best() -> None:
    deep = [f"x{n}" for n in range(DEPTH)] + ["a"]
    assert gain([deep], [], {"a"}) == gain([], [], {"a"}) == 0.0
    assert gain([["a"]], deep, {"a"}) == 1.0, "what no verifier sees is missing"
    assert gain(["xa", "ab", "yyb"], "xb", {"a", "b"}) == 1.0
