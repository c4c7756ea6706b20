"""Queries beside gold sub-questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli import app
from gnnrag.metrics.sub_questions import gold_sub_questions, match
from gnnrag.types import GoldHop, Question


def test_references_are_filled_in() -> None:
    hops = (GoldHop("Low Tide >> maker", "Ann Roe", None), GoldHop("Where was #1 born, #3?", "Wick", None))
    found = gold_sub_questions(Question("q", "?", decomposition=hops))
    assert found == ("Low Tide maker", "Where was Ann Roe born, #3?")
    assert gold_sub_questions(Question("q", "?")) == ()


@pytest.mark.parametrize("asked, gold, precision, recall", [
    (["one two"], ["one two"], 1.0, 1.0),
    (["one two"], ["one two", "three four"], 1.0, 0.5),
    (["one two", "five six"], ["one two"], 0.5, 1.0),
    (["one three"], ["one two"], 0.5, 0.5),
    ([], ["one two"], 0.0, 0.0),
    (["five"], ["one two"], 0.0, 0.0),
])  # fmt: skip
def test_match_by_hand(asked: list[str], gold: list[str], precision: float, recall: float) -> None:
    found = match(asked, gold)
    assert (found["precision"], found["recall"]) == (precision, recall)
    expected = 2 * precision * recall / (precision + recall) if precision else 0.0
    assert found["f1"] == pytest.approx(expected)
    assert (found["asked"], found["same_number"]) == (len(asked), float(len(asked) == len(gold)))


def make_run(folder: Path, *texts: tuple[int, str]) -> Path:
    folder.mkdir()
    events = [{"event": "query", "round": round_, "text": text} for round_, text in texts] + [{"event": "merge"}]
    (folder / "traces.jsonl").write_text(json.dumps({"question_id": "q", "events": events}) + "\n", "utf-8")
    return folder


def make_set(folder: Path, decomposition: list[dict[str, str]]) -> Path:
    folder.mkdir()
    (folder / "corpus.jsonl").write_text(json.dumps({"id": "p", "title": "t", "text": "x"}) + "\n", "utf-8")
    row = {"id": "q", "question": "?", "answers": ["a"], "decomposition": decomposition}
    (folder / "questions.dev.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    return folder


def test_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_set(tmp_path / "set", [{"question": "one two", "answer": "a"}, {"question": "three", "answer": "b"}])
    run = make_run(tmp_path / "run", (0, "one two three"), (1, "one two"), (2, "one two"))
    assert app.run(["match-thoughts", str(run), "--data", str(data)]) == 0
    printed = capsys.readouterr().out
    assert "1.000" in printed and "0.500" in printed and "0.667" in printed


@pytest.mark.parametrize("has_decomposition", [False, True])
def test_what_cannot_be_compared_is_named(tmp_path: Path, has_decomposition: bool, capsys: Any) -> None:
    parts = [{"question": "one", "answer": "a"}] if has_decomposition else []
    data = make_set(tmp_path / "set", parts)
    (tmp_path / "run").mkdir()
    assert app.run(["match-thoughts", str(tmp_path / "run"), "--data", str(data)]) == 2
    assert str(tmp_path / "run" if has_decomposition else data) in capsys.readouterr().err
