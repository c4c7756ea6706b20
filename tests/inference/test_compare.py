"""The comparison script on two runs whose scores are written by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gnnrag.errors import GnnragError
from inference.compare import main

METRIC = "answer/em"


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    paths = []
    for name, values in (("one", (1, 1, 0, 0)), ("two", (1, 0, 1, 1))):
        path = tmp_path / name
        path.mkdir()
        rows = [{"question_id": f"q{i}", "type": "t", "has_gold": True, METRIC: v} for i, v in enumerate(values)]
        (path / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        groups = {"short": {"count": 4, METRIC: sum(values) / 4}}
        rounds = [{"round": 0, "questions": 4, "queries": 1.0, "reached": 0.5}]
        metrics = dict.fromkeys(("retrieval/recall@2", "retrieval/recall@5", "retrieval/mrr", "answer/f1"), 0.0)
        metrics |= dict.fromkeys(("cost/retriever_calls", "cost/llm_calls", "cost/prompt_tokens"), 0.0)
        metrics |= {"cost/completion_tokens": 0.0, "failed": 0, METRIC: sum(values) / 4}
        metrics |= {"by_length": groups, "by_type": groups, "by_round": rounds}
        (path / "metrics.json").write_text(json.dumps(metrics))
        paths.append(str(path))
    return paths


def test_who_is_right_where(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*runs, "--metric", METRIC, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    shares = {"both": 0.25, "first only": 0.25, "second only": 0.5, "neither": 0.0}
    assert found["overlap"] == [{"run": "two", "metric": METRIC, **shares}]
    (row,) = found["differences"]
    assert (row["difference"], row["better"], row["worse"], row["same"], row["test"]) == (0.25, 2, 1, 1, "mcnemar")


def test_groups_and_rounds(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*runs, "--metric", METRIC, "--by", "length"]) == 0
    out = capsys.readouterr().out
    assert "who is right where" in out and "short" in out and "0.75" in out
    assert main([*runs, "--metric", METRIC, "--by", "round"]) == 0
    out = capsys.readouterr().out
    assert "reached: share of the gold passages" in out and "pool: Recall@5 of all that was found so far" in out
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "pool: Recall@5" in capsys.readouterr().out


def test_a_benchmark_without_hops(runs: list[str]) -> None:
    with pytest.raises(GnnragError, match="no figures by hops"):
        main([*runs, "--metric", METRIC, "--by", "hops"])


def test_runs_of_one_folder_name_are_told_apart(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "deep" / "two"
    shutil.copytree(runs[0], other)
    given = [runs[0], runs[1], str(other), runs[1]]
    assert main([*given, "--metric", METRIC, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    two = f"{tmp_path.name}/two"
    assert list(found["runs"]) == ["one", two, "deep/two", f"{two} (2)"]
    assert [found["runs"][name][METRIC] for name in found["runs"]] == [0.5, 0.75, 0.5, 0.75]
    assert [(row["run"], row["at"], row["difference"]) for row in found["differences"]] == [
        (two, 1, 0.25),
        ("deep/two", 2, 0.0),
        (f"{two} (2)", 3, 0.25),
    ]
    assert main([*given, "--metric", METRIC, "--by", "length"]) == 0
    groups = capsys.readouterr().out.rpartition("count")[2]
    assert groups.count("deep/two") == 1


def test_a_folder_that_is_no_run_or_no_page(runs: list[str], tmp_path: Path) -> None:
    with pytest.raises(GnnragError, match=r"is a folder; give the file to write, such as .*compared\.html"):
        main([*runs, "--html", str(tmp_path)])
    with pytest.raises(GnnragError, match=r"is no run: .*; runs in it are one, two$"):
        main([runs[0], str(tmp_path)])
    with pytest.raises(GnnragError, match="none does not exist"):
        main([runs[0], str(tmp_path / "none")])
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "meta.json").write_text("{}")
    with pytest.raises(GnnragError, match="cut has not ended"):
        main([runs[0], str(tmp_path / "cut")])
