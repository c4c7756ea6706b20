"""The comparison script on two runs whose scores are written by hand."""

from __future__ import annotations

import json
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
    assert "reached" in capsys.readouterr().out


def test_a_benchmark_without_hops(runs: list[str]) -> None:
    with pytest.raises(GnnragError, match="no figures by hops"):
        main([*runs, "--metric", METRIC, "--by", "hops"])
