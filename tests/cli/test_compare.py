"""The comparison script on two runs whose scores are written by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gnnrag.cli.app import run
from gnnrag.errors import GnnragError
from gnnrag.metrics.comparison import Run, load_runs, main_metrics

METRIC = "answer/em"


def main(arguments: list[str]) -> int:
    return run(["compare", *arguments, "--debug"])


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
    (row,) = found["differences"]
    assert (row["difference"], row["better"], row["worse"], row["same"], row["test"]) == (0.25, 2, 1, 1, "mcnemar")


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


def test_a_folder_that_is_no_run(runs: list[str], tmp_path: Path) -> None:
    with pytest.raises(GnnragError, match="is no run that has ended"):
        main([runs[0], str(tmp_path)])
    with pytest.raises(GnnragError, match="none is no run"):
        main([runs[0], str(tmp_path / "none")])


def test_runs_scored_in_different_ways_are_not_compared(runs: list[str]) -> None:
    for path, variant in zip(runs, ("hipporag", "squad"), strict=True):
        (Path(path) / "metrics.json").write_text(json.dumps({"settings": {"f1_variant": variant}}))
    with pytest.raises(GnnragError, match="was scored with"):
        load_runs([Path(path) for path in runs])


def test_main_metrics_are_those_that_every_run_defines() -> None:
    def run_of(*undefined: str) -> Run:
        names = ("text/words", "text/rouge", "answer/f1", METRIC, "retrieval/recall@5", "retrieval/mrr")
        scores = {name: np.array([np.nan, np.nan if name in undefined else 0.0]) for name in names}
        return Run("r", {}, ("a", "b"), np.array(["t", "t"]), scores)

    assert main_metrics([run_of()]) == ["retrieval/recall@5", METRIC, "answer/f1", "text/rouge"]
    assert main_metrics([run_of(), run_of("retrieval/recall@5")]) == [METRIC, "answer/f1", "text/rouge"]
