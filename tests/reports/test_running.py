"""Tables on the sample corpus: rows run, are read again, and fail alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnrag import parts
from gnnrag.cli.app import run
from gnnrag.cli.reports import retitled, shown
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import StoppedError
from gnnrag.parts import part
from gnnrag.reports.running import resolved, run_table
from gnnrag.reports.tables import Result, Table, as_json, cell, load_table
from gnnrag.retrievers.base import Retriever
from gnnrag.run.rundir import read_predictions
from gnnrag.types import Ranking
from tests.helpers.indexes import HASH_DOTS, REPOSITORY
from tests.helpers.toy_tuned import register_toys, toy_training

SAMPLE = REPOSITORY / "data/sample"
TABLE = f"""
title: A small table
paper: nobody's
used: {{reader: a model}}
base: {{data: {{path: {SAMPLE}, limit: 6}}}}
models: {{roles: prompted, llm.model: none}}
grid: {{retriever: [bm25, dense]}}
rows:
  Original: {{method: single}}
  IRCOT: {{method: ircot}}
columns: [em, f1, recall@5, search_calls, seconds]
published: {{scale: 100, metrics: [em], rows: {{bm25: {{Original: [40]}}}}}}
note: Only a test.
"""


def table_of(tmp_path: Path, text: str = TABLE) -> Table:
    path = tmp_path / "table.yaml"
    path.write_text(text)
    return load_table(path)


@pytest.fixture
def overrides(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.getbasetemp() / "reports-index"
    return ["roles=offline", "roles.reader=oracle", f"index.root={root}", f"run.root={tmp_path / 'r'}", *HASH_DOTS[1:]]


@pytest.mark.slow
def test_rows_are_runs_and_are_read_again(overrides: list[str], tmp_path: Path) -> None:
    table = table_of(tmp_path)
    first = run_table(table, overrides)
    assert [r.row.name for r in first] == ["bm25 / Original", "bm25 / IRCOT", "dense / Original", "dense / IRCOT"]
    assert all(r.run and not r.error and r.questions == 6 and not r.failed for r in first)
    assert first[0].label == "single / bm25 / offline+reader.oracle on sample dev"
    metrics = json.loads((Path(first[0].run) / "metrics.json").read_text())
    assert first[0].values["recall@5"] == metrics["retrieval/recall@5"] and first[0].values["search_calls"] == 0
    assert first[0].row.published == {"em": 0.4}

    left: list[int] = []
    again = run_table(table, overrides, on_start=lambda row, n: left.append(n), on_question=lambda p: 1 / 0)
    assert left == [0, 0, 0, 0] and again == first, "finished rows are read"

    data = json.loads(as_json(table, first))
    assert data["rows"][0]["published"] == {"em": 0.4} and data["used"] == {"reader": "a model"}
    em = table.columns[0]
    assert cell(first[0], em).endswith("(0.400)") and cell(Result(table.rows[1]), em) == "-"

    journal = Path(first[0].run) / "predictions.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:4]))
    (resumed,) = run_table(table, overrides, lambda row: row is table.rows[0], on_start=lambda row, n: left.append(n))
    assert left[-1] == 2 and resumed.values["recall@5"] == first[0].values["recall@5"], "an interrupted row goes on"


def test_a_row_that_fails_costs_no_other(overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnrag.retrievers.bm25 import BM25Retriever

    table = table_of(tmp_path)
    monkeypatch.setattr(BM25Retriever, "setup", lambda self: 1 / 0)
    errors: list[str] = []
    results = run_table(table, overrides, on_row=lambda r: errors.append(r.error))
    assert [bool(error) for error in errors] == [True, True, False, False]
    assert results[0].error == "ZeroDivisionError: division by zero"


def test_a_signal_ends_the_table(overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: Any) -> Any:
        raise StoppedError("stopped with 2 questions left")

    monkeypatch.setattr("gnnrag.reports.running.cross_evaluate", stopped)
    (result,) = run_table(table_of(tmp_path), overrides)
    assert result.error == "stopped with 2 questions left"


@pytest.mark.slow
def test_the_script(overrides: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of(tmp_path)
    call = [str(table.path), *overrides, "--only", "bm25"]
    assert run(["reproduce", *call, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "bm25 / Original: single / bm25 / offline+reader.oracle on sample dev",
        "bm25 / IRCOT: ircot / bm25 / offline+reader.oracle on sample dev",
    ]
    assert not (tmp_path / "r").exists()
    assert run(["reproduce", *call]) == 0
    out = capsys.readouterr().out
    title = " ".join(out.partition("━")[0].split())
    assert "roles=offline" in title and "run.root" not in title and "data.path" not in title
    assert retitled(table, ["run.root=x"]) is table
    assert "Recall@5" in out and "(0.400)" in out and "Only a test." in out
    assert "The paper used reader: a model." in out
    assert run(["reproduce", *call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][1]["name"] == "bm25 / IRCOT"


@pytest.mark.slow
def test_rows_with_trained_roles_are_cross_validated(
    overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_toys(monkeypatch, "reader")
    table = table_of(tmp_path)
    ids = [q.id for q in load_dataset(SAMPLE, limit=6).questions]
    trained = {"reader": toy_training(tmp_path / "reader", "reader", ids)}
    results = run_table(table, overrides, lambda row: "bm25" in row.name, trained=trained)
    roles = "bm25 / offline+reader.tuned on sample dev"
    assert [r.label for r in results] == [f"single / {roles}", f"ircot / {roles}"]
    assert all(r.run and not r.error and r.questions == 6 and not r.failed and not r.trained_on for r in results)
    answers = {p.question_id: p.answer for p in read_predictions(results[0].run)}
    for fold in ("fold0", "fold1"):
        parts = json.loads((trained["reader"] / fold / "folds.json").read_text())["sample"]
        assert {id_ for id_, answer in answers.items() if answer == fold} == set(parts["report"])
    dots = [*overrides, "roles.reader=tuned", f"roles.reader.path={trained['reader'] / 'fold0'}"]
    seen = run_table(table, dots, lambda row: row is table.rows[0])
    assert "roles.reader trained on" in seen[0].trained_on and "these questions: no result" in shown(table, seen)
    (none,) = run_table(table, overrides, lambda row: row is table.rows[0], trained={"reader": tmp_path})
    assert "is no training run" in none.error


# ----------------------------------------------------------------------------------------------- a table of retrievers
@part("retriever", "broken")
class Broken(Retriever):
    def setup(self) -> None:
        raise RuntimeError("bug")


@part("retriever", "asking")
class Asking(Retriever):
    """A retriever that needs roles: its only way in is `retrieve_for`, and each question costs two calls."""

    reads = ("text",)
    role_names, asks_roles = ("expander",), True

    async def retrieve_for(self, queries: Any, session: Any) -> list[Ranking]:
        for _ in queries:
            session.add_call("expander", 10, 1)
            session.add_call("expander", 10, 1)
        return [Ranking(tuple(self.index.ids[:3]), np.array([3.0, 2.0, 1.0]), branch="dense_fallback") for _ in queries]


@pytest.mark.slow
def test_retrievers_side_by_side(overrides: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts.names("retriever")
    for cls in (Broken, Asking):
        name = cls.__name__.lower()
        monkeypatch.setitem(parts._PARTS, ("retriever", name), parts.part("retriever", name)(cls))
    text = (REPOSITORY / "configs/tables/retrievers.yaml").read_text()
    text = re.sub(r"\[bm25[^\]]*\]", "[broken, bm25, hybrid, asking]", text)
    dots = [f"data.path={SAMPLE}", "data.limit=6", "llm_cache=null", *overrides]
    broken, bm25, hybrid, asking = run_table(table_of(tmp_path, text), dots)
    assert broken.error == "RuntimeError: bug"
    assert bm25.questions == 6 and bm25.values["search_calls"] == 0 and not hybrid.error
    metrics = json.loads((Path(bm25.run) / "metrics.json").read_text())
    assert all(bm25.values[f"recall@{k}"] == metrics[f"retrieval/recall@{k}"] for k in (2, 5, 10))
    assert hybrid.values["index_mb"] > bm25.values["index_mb"] > 0
    assert asking.values["search_calls"] == 2.0 and asking.values["fallbacks"] == 1.0


def test_the_table_of_retrievers_loads() -> None:
    table = load_table(REPOSITORY / "configs/tables/retrievers.yaml")
    assert {"bm25", "dense", "chg", "walk"} <= {row.name for row in table.rows}
    for row in table.rows:
        resolved(table, row, ["roles=offline"])
