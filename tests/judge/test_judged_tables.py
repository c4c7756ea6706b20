"""Judgements in the tables of the papers, and the script as a person calls it."""

from __future__ import annotations

import json
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
base: {data: {path: SAMPLE, limit: 4}, method: single}
models: {roles: prompted}
rows: {BM25: {retriever: bm25}, Dense: {retriever: dense}}
columns: [em, a_score, e_score, win_rate, correctness, factuality, win_logicality]
published: {metrics: [a_score], rows: {BM25: [8.5]}}
"""


@pytest.mark.slow
def test_columns_of_a_table_come_from_the_judgements_of_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(TABLE.replace("SAMPLE", str(REPOSITORY / "data/sample")))
    table = load_table(path)
    own = ["roles=offline", f"index.root={tmp_path / 'i'}", f"run.root={tmp_path / 'r'}"]
    own += [dot for dot in HASH_DOTS if not dot.startswith("retriever")]
    before = reproduce(table, own)
    assert before[0].values["a_score"] is None and before[0].values["win_rate"] is None
    runs = [Path(result.run) for result in before]
    judge(settings("scores", runs[0]), backend=scripted(lambda request: "7"))
    assert judged_figures(runs[0]) == {}, "four questions are too few"
    dots = ["least=3"]
    judge(settings("scores", runs[0], dots=dots), backend=scripted(lambda request: "7"))
    judge(
        settings("pairwise", *runs, dots=["least=4"]),
        backend=scripted(lambda request: verdict("A")),
    )
    first, second = reproduce(table, own)
    assert (first.values["a_score"], first.values["e_score"]) == (7.0, 7.0) and first.values["win_rate"] is None
    assert cell(first, table.columns[1]) == "7.00 [7.00, 7.00] (8.50)"
    assert second.values["a_score"] is None and second.values["win_rate"] == 50.0 == second.values["win_logicality"]
    assert (first.values["correctness"], first.values["factuality"], second.values["factuality"]) == (7.0, 7.0, None)
    both = judged_figures(runs[1])
    with (runs[0] / "predictions.jsonl").open("a") as out:
        out.write("\n")
    assert judged_figures(runs[0]) == {}, "other predictions than were judged"
    assert both["judge/win_rate_counted"] == 4 and judged_figures(runs[1]) == {}, "nor of what it was held against"


@pytest.mark.parametrize(
    "dots, figures",
    [
        (["least=10"], [50.0, 6.0, 6.0]),
        (["least=11"], [None] * 3),
        (["least=5", "limit=4"], [None] * 3),
        (["least=2", "types=[a]"], [None] * 3),
    ],
)
def test_figures_of_few_or_chosen_questions_stay_out_of_tables(
    tmp_path: Path, dots: list[str], figures: list[float | None]
) -> None:
    data = write_data(tmp_path / "data", [question(n, type="ab"[n % 2]) for n in range(10)])
    first, second = (write_run(tmp_path / x, data, {f"q{n}": x for n in range(10)}) for x in "ab")
    judge(settings("pairwise", first, second, dots=dots), backend=scripted(lambda request: verdict("A")))
    judge(settings("scores", second, dots=dots), backend=scripted(lambda request: "6"))

    def shown(run: Path) -> list[float | None]:
        return [judged_figures(run).get(f"judge/{name}") for name in ("win_rate", "a_score", "e_score")]

    assert shown(second) == figures
    first.rename(tmp_path / "elsewhere")
    assert shown(second) == [None, *figures[1:]], "what it was held against is not there"


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    data = write_data(tmp_path / "data", [question(n) for n in range(4)])
    first = write_run(tmp_path / "first", data, {"q0": "w w", "q1": "w", "q2": "w", "q3": None})
    return [first, write_run(tmp_path / "second", data, {f"q{n}": "w w w" for n in range(4)})]


def call(kind: str, runs: list[Path], *more: str) -> int:
    config = str(REPOSITORY / "configs" / "judge" / f"{kind}.yaml")
    dots = [f"runs=[{','.join(map(str, runs))}]", "judged=answer", "llm=scripted", "llm_cache=null"]
    return run(["judge", config, *dots, *more])


def test_tables_of_scores(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("scores", runs, "llm.default=6", "repeats=2") == 0
    out, err = capsys.readouterr()
    assert "judged by scripted" in out and "4.50 [1.50, 6.00] (4)" in out and "6.00 [6.00, 6.00] (4)" in out
    assert "+1.500 [+0.000, +4.500]" in out and "1 / 0" not in out and "agreement with itself" in out
    assert out.splitlines()[-1] == str(runs[1] / "judgements" / "scores")
    assert "first: 1 failed questions and 0 without an answer score 0" in err and "first: 36 calls" in err
    assert call("scores", runs, "llm.default=6", "repeats=2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["judgements"][0]["judge/a_score"] == 4.5 and found["differences"]["second"]["right"]["p"] == 1.0


def test_tables_of_pairs(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    reply = verdict("A").replace('"', r"\"")
    assert call("pairwise", runs, f'llm.default="{reply}"') == 0
    out, err = capsys.readouterr()
    assert "first against second, 4 questions, judged by scripted" in out
    assert "0.375 [0.142, 0.692]" in out and "0 / 3 / 1 of 4" in out and "1.000 [0.449, 1.000]" in out
    assert "first: 1 failed questions and 0 without an answer lose" in err
    assert "shown first wins 100%" not in err, "three pairs tell nothing"
    assert "first against second: 4 of 4 questions have a value: too few to call a run better" in err
    assert out.count("too few") == 5
    assert call("pairwise", runs, f'llm.default="{reply}"', "least=4") == 0
    out, err = capsys.readouterr()
    assert out.count("neither") == 5 and "too few" not in out + err, "a half lies inside of the interval"


def test_a_judge_that_says_nothing_ends_with_exit_code_1(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("scores", runs[1:], "llm.default=well") == 1
    out, err = capsys.readouterr()
    assert "second: 72 of 72 replies were malformed; 24 values are missing for that, left out and not guessed" in err
    assert "A-Score" not in out and out.splitlines()[-1] == str(runs[1] / "judgements" / "scores")
    assert call("pairwise", runs, "llm.default=well") == 1
    out, err = capsys.readouterr()
    assert "win rate" not in out and "18 of 18 replies were malformed; 3 pairs are missing" in err
    assert call("scores", runs[1:], "name=other") == 1  # no rule: every call fails
    assert "second: 24 values are missing because calls failed; the same command tries again" in capsys.readouterr().err
