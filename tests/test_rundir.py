from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import ConfigError, GnnragError
from gnnrag.run.rundir import RunDir, code_version, read_predictions, run_name
from gnnrag.session import Session
from gnnrag.types import Prediction

CONFIG: dict[str, Any] = {
    "method": {"name": "bdtr", "max_rounds": 2},
    "retriever": {"name": "dense"},
    "roles": {"default": "offline"},
    "seed": 0,
    "concurrency": 16,
    "metrics": {"ks": [1, 5]},
    "run": {"fresh": False},
    "llm_cache": "a.sqlite",
}
INPUTS = {"data": {"passages": "aa", "questions": "bb"}, "index": {"embeddings": "cc"}}


def changed(section: str, **values: Any) -> dict[str, Any]:
    return CONFIG | {section: {**CONFIG[section], **values}}


def open_run(root: Path, config: Any = None, inputs: Any = None, **more: Any) -> RunDir:
    return RunDir(root, "mine", config or CONFIG, inputs or INPUTS, **more)


def predict(id_: str, answer: str = "x", error: str | None = None) -> Prediction:
    return Prediction(id_, answer, ("p1", "p2"), ("p1",), 2, {"llm_calls": 3}, 0.5, error)


def add(run: RunDir, *predictions: Prediction) -> None:
    for prediction in predictions:
        session = Session(prediction.question_id)
        session.record("answer", text=prediction.answer)
        run.add(prediction, session)


def rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_run_holds_everything_needed_to_trust_it(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    add(run, predict("q1"))
    run.finish(["q1"])
    assert {p.name for p in run.path.iterdir()} == {
        "config.yaml", "meta.json", "predictions.jsonl", "traces.jsonl", "log.jsonl"
    }  # fmt: skip
    meta = json.loads((run.path / "meta.json").read_text())
    assert (
        meta["inputs"] == INPUTS and meta["settings"]["method"] == CONFIG["method"] and meta["commit"] == code_version()
    )
    assert not {"concurrency", "run", "metrics", "llm_cache"} & meta["settings"].keys()
    assert "max_rounds: 2" in (run.path / "config.yaml").read_text()
    (row,) = rows(run.path / "predictions.jsonl")
    assert row == {
        "question_id": "q1", "answer": "x", "ranking": ["p1", "p2"], "context": ["p1"], "rounds": 2,
        "usage": {"llm_calls": 3}, "error": None, "nodes": [],
    }  # fmt: skip
    assert rows(run.path / "traces.jsonl") == [{"question_id": "q1", "events": [{"event": "answer", "text": "x"}]}]
    assert [r["event"] for r in rows(run.path / "log.jsonl")] == ["question"]


def test_resume(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    add(run, predict("q2"), predict("q1"))
    run.close()
    run = open_run(tmp_path)
    assert run.done() == {"q1", "q2"}
    assert sorted(read_predictions(run.path), key=lambda row: row.question_id) == [predict("q1"), predict("q2")]
    add(run, predict("q3"))
    assert run.finish(["q1", "q2", "q3"]) == [predict("q1"), predict("q2"), predict("q3")]


def test_failed_questions_are_tried_again_unless_told_not_to(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    add(run, predict("q1"), predict("q2", "", "down"))
    run.close()
    run = open_run(tmp_path)
    assert run.done() == {"q1"}
    add(run, predict("q2", "better"))
    run.close()
    run = open_run(tmp_path)
    assert run.done() == {"q1", "q2"}
    assert [p.answer for p in run.finish(["q1", "q2"])] == ["x", "better"], "the newest row of a question counts"
    assert len(rows(run.path / "traces.jsonl")) == 2


def test_finish_puts_rows_into_question_order(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    add(run, predict("q3"), predict("q1"), predict("q2"), predict("q1", "newer"))
    assert [p.question_id for p in run.finish(["q1", "q2", "q3"])] == ["q1", "q2", "q3"]
    assert [r["answer"] for r in rows(run.path / "predictions.jsonl")] == ["newer", "x", "x"]
    assert [r["question_id"] for r in rows(run.path / "traces.jsonl")] == ["q1", "q2", "q3"]
    before = (run.path / "predictions.jsonl").read_bytes()
    assert open_run(tmp_path).finish(["q1", "q2", "q3"]) and (run.path / "predictions.jsonl").read_bytes() == before


def test_finish_names_what_is_missing(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    add(run, predict("q1"))
    with pytest.raises(GnnragError, match="2 questions have no row, the first is 'q2'"):
        run.finish(["q1", "q2", "q3"])


@pytest.mark.parametrize("name", ["predictions.jsonl", "traces.jsonl", "log.jsonl"])
@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_tail_that_was_cut_is_done_again(tmp_path: Path, name: str, cut: int) -> None:
    run = open_run(tmp_path)
    add(run, predict("q1"), predict("q2"))
    run.close()
    path = run.path / name
    path.write_bytes(path.read_bytes()[:-cut])
    run = open_run(tmp_path)
    assert run.done() == ({"q1"} if name == "predictions.jsonl" else {"q1", "q2"})
    add(run, *(predict(q) for q in ("q1", "q2") if q not in run.done()))
    assert [p.question_id for p in run.finish(["q1", "q2"])] == ["q1", "q2"]


@pytest.mark.parametrize(
    "config, names",
    [
        (changed("method", max_rounds=3), "method.max_rounds"),
        (changed("retriever", name="bm25"), "retriever.name"),
        (changed("retriever", search="flat"), "retriever.search"),
        (CONFIG | {"seed": 1}, "seed"),
    ],
)
def test_changed_settings_are_refused_by_name(tmp_path: Path, config: Any, names: str) -> None:
    run = open_run(tmp_path)
    add(run, predict("q1"))
    run.close()
    with pytest.raises(ConfigError) as caught:
        open_run(tmp_path, config)
    assert f"exists with other settings ({names})" in str(caught.value) and "run.fresh=true" in str(caught.value)
    open_run(tmp_path).close()  # the refusal has changed nothing


def test_changed_inputs_are_refused_by_name(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    add(run, predict("q1"))
    run.close()
    with pytest.raises(ConfigError, match=r"exists with other inputs \(data.questions\)"):
        open_run(tmp_path, inputs={**INPUTS, "data": {"passages": "aa", "questions": "zz"}})


@pytest.mark.parametrize(
    "config",
    [CONFIG | {"concurrency": 1}, CONFIG | {"llm_cache": None}, changed("metrics", ks=[3]), changed("run", fresh=True)],
)
def test_settings_that_decide_nothing_may_change(tmp_path: Path, config: Any) -> None:
    run = open_run(tmp_path)
    add(run, predict("q1"))
    run.close()
    assert open_run(tmp_path, config).done() == {"q1"}


def test_a_run_without_predictions_is_nothing_to_protect(tmp_path: Path) -> None:
    """A first attempt that failed on its settings must not stand in the way of the second."""
    open_run(tmp_path).close()
    run = open_run(tmp_path, CONFIG | {"seed": 1})
    assert json.loads((run.path / "meta.json").read_text())["settings"]["seed"] == 1


def test_fresh_starts_over(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    add(run, predict("q1"))
    run.close()
    run = open_run(tmp_path, CONFIG | {"seed": 5}, fresh=True)
    assert run.done() == set() and rows(run.path / "log.jsonl") == []


def test_two_writers_are_refused(tmp_path: Path) -> None:
    first = open_run(tmp_path)
    with pytest.raises(GnnragError, match="being written by another process"):
        open_run(tmp_path)
    first.close()
    open_run(tmp_path).close()


def test_read_predictions_changes_nothing(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    add(run, predict("q1"))
    run.finish(["q1"])
    before = {p: p.read_bytes() for p in run.path.iterdir()}
    assert read_predictions(run.path) == [predict("q1")]
    assert {p: p.read_bytes() for p in run.path.iterdir()} == before
    with pytest.raises(GnnragError, match="is no run"):
        read_predictions(tmp_path / "nowhere")


def test_name() -> None:
    name = run_name(CONFIG, "sample-dev", INPUTS)
    assert name.startswith("sample-dev-bdtr-dense-offline-") and len(name.rpartition("-")[2]) == 8
    assert run_name(CONFIG | {"concurrency": 2}, "sample-dev", INPUTS) == name
    assert run_name(CONFIG | {"seed": 2}, "sample-dev", INPUTS) != name
    assert run_name(CONFIG, "sample-dev", {**INPUTS, "index": {}}) != name
