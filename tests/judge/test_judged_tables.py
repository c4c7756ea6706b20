"""Judgements in the tables of the papers, and the script as a person calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnrag.cli.app import run
from gnnrag.judge import judge, judged_figures
from gnnrag.reports.running import run_table as reproduce
from gnnrag.reports.tables import cell, load_table
from tests.helpers.indexes import HASH_DOTS, REPOSITORY
from tests.helpers.judged import question, scripted, settings, verdict, write_data, write_run

TABLE = """
title: A judged table
paper: nobody's
used: {reader: a model}
base: {data: {path: SAMPLE, limit: 20}, method: single}
models: {roles: prompted}
rows: {BM25: {retriever: bm25}, Dense: {retriever: dense}}
columns: [em, a_score, e_score, win_rate, correctness, factuality, win_logicality]
published: {metrics: [e_score], rows: {BM25: [8.5]}}
"""


@pytest.mark.slow
def test_columns_of_a_table_come_from_the_judgements_of_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(TABLE.replace("SAMPLE", str(REPOSITORY / "data/sample")))
    table = load_table(path)
    own = [
        "roles=offline",
        "roles.reader.options.min_fit_short=0",
        f"index.root={tmp_path / 'i'}",
        f"run.root={tmp_path / 'r'}",
    ]
    own += [dot for dot in HASH_DOTS if not dot.startswith("retriever")]
    before = reproduce(table, own)
    assert before[0].values["a_score"] is None and before[0].values["win_rate"] is None
    runs = [Path(result.run) for result in before]
    judge(settings("scores", runs[0]), backend=scripted(lambda request: "7"))
    judge(settings("pairwise", *runs), backend=scripted(lambda request: verdict("A")))
    first, second = reproduce(table, own)
    assert (first.values["e_score"], first.values["win_rate"]) == (7.0, None)
    assert cell(first, table.columns[2]) == "7.00 [7.00, 7.00] (8.50)"
    assert second.values["a_score"] is None and second.values["win_rate"] == second.values["win_logicality"] is not None
    with (runs[0] / "predictions.jsonl").open("a") as out:
        out.write("\n")
    assert judged_figures(runs[0]) == {}, "other predictions than were judged"


@pytest.mark.parametrize("limit, figures", [(20, [50.0, 6.0, 6.0]), (19, [None] * 3)])
def test_figures_of_few_questions_stay_out_of_tables(tmp_path: Path, limit: int, figures: list[float | None]) -> None:
    data = write_data(tmp_path / "data", [question(n) for n in range(20)])
    first, second = (write_run(tmp_path / x, data, {f"q{n}": x for n in range(20)}) for x in "ab")
    dots = [f"limit={limit}"]
    judge(settings("pairwise", first, second, dots=dots), backend=scripted(lambda request: verdict("A")))
    judge(settings("scores", second, dots=dots), backend=scripted(lambda request: "6"))
    assert [judged_figures(second).get(f"judge/{name}") for name in ("win_rate", "a_score", "e_score")] == figures


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    data = write_data(tmp_path / "data", [question(n) for n in range(4)])
    first = write_run(tmp_path / "first", data, {"q0": "w w", "q1": "w", "q2": "w", "q3": None})
    return [first, write_run(tmp_path / "second", data, {f"q{n}": "w w w" for n in range(4)})]


def call(kind: str, runs: list[Path], *more: str) -> int:
    config = str(REPOSITORY / "configs" / "judge" / f"{kind}.yaml")
    dots = [f"runs=[{','.join(map(str, runs))}]", "llm=scripted", "llm_cache=null"]
    return run(["judge", config, *dots, *more])


@pytest.mark.parametrize(
    "kind, dots, remark",
    [
        ("scores", ["llm.default=well"], "24 calls parse_failure"),
        ("pairwise", ["llm.default=well"], "6 calls parse_failure"),
        ("scores", [], "24 calls llm_error"),  # no rule: every call fails
    ],
)
def test_a_judge_that_says_nothing_ends_with_exit_code_1(
    runs: list[Path], capsys: pytest.CaptureFixture[str], kind: str, dots: list[str], remark: str
) -> None:
    assert call(kind, runs if kind == "pairwise" else runs[1:], *dots) == 1
    out, err = capsys.readouterr()
    assert remark in err and out.splitlines() == [str(runs[1] / "judgements" / kind)]
