"""Evaluations shown in Weights & Biases: what is read back from an offline run is what the run directory says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cluster import tracking
from gnnrag.cluster.tracker import checkpoint_artefact, index_artefact, run_artefact
from gnnrag.cluster.tracking import flattened
from gnnrag.common.files import digest
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.index.index import Index
from gnnrag.run import evaluation
from gnnrag.run.evaluation import Observer, evaluate
from gnnrag.run.rundir import read_predictions
from gnnrag.types import Prediction
from tests.helpers.tracking import FakeWandb
from tests.helpers.wandb_offline import artifacts, exit_code, history, run_files, run_record, settings, summary, table

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample"


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture
def config(indexes: Path, tmp_path: Path) -> Any:
    def make(*overrides: str) -> EvaluateConfig:
        base = [
            f"data.path={SAMPLE}", "index.embedder.model=hash", "index.text.language=blank:en", "retriever=dense",
            f"index.root={indexes}", f"run.root={tmp_path / 'runs'}", "run.name=mine", "run.tracking=offline",
        ]  # fmt: skip
        return load_config(EvaluateConfig, None, [*base, *overrides])

    return make


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def jsonl(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_what_weights_and_biases_holds_is_what_the_run_directory_says(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "EVERY_S", 0.0)
    notes: list[str] = []
    path, _ = evaluate(config("method=bdtr", "run.group=grid"), Observer(on_note=notes.append))
    metrics, predictions = read(path / "metrics.json"), jsonl(path / "predictions.jsonl")
    (file,) = run_files(path)
    assert notes == [] and exit_code(file) == 0

    found, expected = summary(file), flattened(metrics)
    assert len(expected) > 300 and {"by_type/bridge/answer/f1", "retrieval/recall@5_ci"} <= expected.keys()
    assert {name: found.get(name, "is missing") for name in expected} == expected

    rows = history(file)
    running = [row for row in rows if "running/questions" in row]
    assert [row["_step"] for row in running] == [row["running/questions"] for row in running]
    assert [row["_step"] for row in running] == list(range(1, len(predictions) + 1))
    for name, key in tracking.RUNNING.items():
        assert running[-1][f"running/{name}"] == pytest.approx(metrics[key], abs=5e-5), "the last means are the run's"
    logged = [row for row in jsonl(path / "log.jsonl") if row["event"] == "running"]
    assert [{k: v for k, v in row.items() if k.startswith("running/")} for row in running] == [
        {k: v for k, v in row.items() if k.startswith("running/")} for row in logged
    ]

    rounds = [row for row in rows if "round" in row]
    assert [
        {"round": row["round"], **{k.removeprefix("by_round/"): v for k, v in row.items() if k.startswith("by_round/")}}
        for row in rounds
    ] == metrics["by_round"] and len(rounds) >= 3

    tables = rows[-1]
    for name in ("by_type", "by_hops"):
        shown = table(file, tables[f"tables/{name}"])
        assert {row[0]: dict(zip(shown["columns"][1:], row[1:], strict=True)) for row in shown["data"]} == metrics[name]
    shown = table(file, tables["tables/predictions"])
    answers = [dict(zip(shown["columns"], row, strict=True)) for row in shown["data"]]
    assert [row["question_id"] for row in answers] == [row["question_id"] for row in predictions]
    scores = jsonl(path / "scores.jsonl")
    assert [row["recall@5"] for row in answers] == [row["retrieval/recall@5"] for row in scores]
    assert [row["rounds"] for row in answers] == [row["rounds"] for row in predictions]
    for answer in answers:
        lines = answer["evidence"].split("\n")
        assert len(lines) == 5 and lines[0].startswith("1. ") and all(len(line) <= tracking.TEXT for line in lines)
        marked = sum(line[3:].startswith("[gold] ") for line in lines)
        if gold := answer["gold passages"]:
            assert answer["recall@5"] == pytest.approx(marked / len(gold.split(", ")))

    shown_as, said = run_record(file), settings(file)
    assert (shown_as.job_type, shown_as.run_group, shown_as.display_name) == ("evaluate", "grid", "mine")
    assert said["method"]["name"] == "bdtr" and said["commit"] == read(path / "meta.json")["commit"]
    assert said["inputs"]["data"] == read(path / "meta.json")["inputs"]["data"]


@pytest.mark.slow
def test_lineage_names_what_was_used_and_what_was_made(config: Any) -> None:
    own = config("method=bdtr", "roles.verifier=tuned", "data.limit=3")
    path, _ = evaluate(own)
    (file,) = run_files(path)
    found = {row.type: row for row in artifacts(file) if row.type != "run_table"}
    assert {kind: bool(row.use_after_commit) for kind, row in found.items()} == {
        "dataset": True, "index": True, "checkpoint": True, "predictions": False,
    }  # fmt: skip
    index = Index(next(Path(own.index.root).iterdir()))
    assert digest(index.fingerprint)[:16] in found["index"].aliases
    assert [file.path for file in found["index"].manifest.contents] == ["fingerprint.json"], "digests, no bytes"
    files = {file.path for file in found["predictions"].manifest.contents}
    assert {"predictions.jsonl", "metrics.json", "scores.jsonl", "config.json"} <= files and "traces.jsonl" not in files
    assert {"model.safetensors", "fingerprint.json"} <= {file.path for file in found["checkpoint"].manifest.contents}


def test_bytes_are_sent_as_asked(config: Any, tmp_path: Path) -> None:
    path, _ = evaluate(config("data.limit=2", "run.tracking=off", "method=single"))
    root = next(Path(config().index.root).iterdir())
    stages = Index(root).fingerprint
    assert not index_artefact(root, stages, "results").files
    sent = index_artefact(root, stages, "all").files
    assert "manifest.json" in sent and any(name.startswith("embeddings-") for name in sent)
    assert index_artefact(root, stages, "all").aliases == index_artefact(root, stages, "none").aliases
    assert "traces.jsonl" in run_artefact(path, {}, "all").files and not run_artefact(path, {}, "none").files
    folder = tmp_path / "verifier" / "best"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"1")
    (folder / ".half").write_bytes(b"2")
    small = checkpoint_artefact(folder, "results")
    assert small.name == "checkpoint-verifier" and list(small.files) == ["model.safetensors"]
    assert (
        checkpoint_artefact(folder, "none").aliases == small.aliases and not checkpoint_artefact(folder, "none").files
    )
    (folder / "model.safetensors").write_bytes(b"3")
    assert checkpoint_artefact(folder, "results").aliases != small.aliases


@pytest.mark.slow
def test_a_continued_run_goes_on_under_its_id_and_says_nothing_twice(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "EVERY_S", 0.0)
    answered = 0

    def stop(prediction: Prediction) -> None:
        nonlocal answered
        answered += 1
        if answered == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(config("method=single", "data.limit=20"), Observer(on_question=stop))
    path, metrics = evaluate(config("method=single", "data.limit=20"))
    first, second = sorted(run_files(path), key=lambda file: file.stat().st_mtime)
    assert run_record(first).run_id == run_record(second).run_id and exit_code(first) == 75 and exit_code(second) == 0
    steps = [row["_step"] for file in (first, second) for row in history(file) if "running/questions" in row]
    assert steps == list(range(1, 21))
    means = [row["running/recall@5"] for row in history(second) if "running/questions" in row]
    assert means[-1] == pytest.approx(metrics["retrieval/recall@5"], abs=5e-5), "those of earlier sessions count"

    evaluate(config("method=single", "data.limit=20"))
    assert len(run_files(path)) == 2, "nothing new, nothing sent"
    evaluate(config("method=single", "data.limit=20", "metrics.ks=[3,5]"))
    third = max(run_files(path), key=lambda file: file.stat().st_mtime)
    assert len(run_files(path)) == 3 and "retrieval/recall@3" in summary(third), "other figures are sent"
    assert not any("round" in row for row in history(third)), "the series of rounds has been sent"
    assert min(row["_step"] for row in history(third)) > max(row["_step"] for row in history(second))


@pytest.mark.slow
def test_steps_go_on_after_those_sent_where_questions_are_answered_again(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb(tmp_path / "fake", monkeypatch)
    monkeypatch.setattr(tracking, "EVERY_S", 0.0)
    dots = ("method=single", "retriever=bm25", "data.limit=6", "concurrency=1", "run.tracking=online")

    def fail(path: Path, count: int) -> None:
        rows = jsonl(path / "predictions.jsonl")
        rows = [row | {"error": "down"} if number < count else row for number, row in enumerate(rows)]
        (path / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")

    def stop(prediction: Prediction) -> None:
        raise OSError("cut off")

    path, _ = evaluate(config(*dots))
    fail(path, 3)
    with pytest.raises(ExceptionGroup):
        evaluate(config(*dots), Observer(on_question=stop))
    fail(path, 4)
    evaluate(config(*dots))
    running = [row["step"] for row in fake.calls("log") if "running/questions" in row["values"]]
    asked = [row["values"]["running/questions"] for row in fake.calls("log") if "running/questions" in row["values"]]
    assert asked[:7] == [1, 2, 3, 4, 5, 6, 4] and asked[-1] == 6 and len(running) > 9
    assert running == sorted(set(running)) and running[:6] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in fake.calls("log")] == sorted(row["step"] for row in fake.calls("log"))


@pytest.mark.slow
def test_a_part_of_a_run_is_shown_in_the_group_of_the_whole(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb(tmp_path / "fake", monkeypatch)
    own = config("run.tracking=online")
    data = evaluation.load_questions_for(own)
    part = tmp_path / "runs" / "mine" / "shards" / "3-of-16"
    with evaluation.tracked(own, part, data, None, pytest.fail) as shown:
        shown.question(Prediction(data.questions[0].id, "", (), (), 1, {}, 0.1))
    (start,) = fake.calls("init")
    assert start["name"] == "mine-3-of-16" and start["group"] == "mine" and start["dir"] == str(part)


@pytest.mark.slow
def test_parts_and_what_they_are_merged_into_are_one_group_with_the_figures_of_the_whole(config: Any) -> None:
    for number in (2, 1):
        part, _ = evaluate(config("method=single", "data.limit=9", f"shard={number}/2"))
        (file,) = run_files(part)
        assert (run_record(file).run_group, run_record(file).display_name) == ("mine", f"mine-{number}-of-2")
        assert max(row["running/questions"] for row in history(file)) == (5 if number == 1 else 4)
    whole, _ = evaluate(config("method=single", "data.limit=9", "shard=merge"))
    (file,) = run_files(whole)
    expected, found = flattened(read(whole / "metrics.json")), summary(file)
    assert {name: found.get(name) for name in expected} == expected
    assert run_record(file).run_group == run_record(file).display_name == "mine"
    evaluate(config("method=single", "data.limit=9"))
    assert len(run_files(whole)) == 1, "the ordinary command has nothing to add"


@pytest.mark.slow
def test_the_last_figures_are_of_all_questions_however_seldom_they_are_sent(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "EVERY_S", 1e9)
    path, _ = evaluate(config("method=single", "data.limit=9"))
    rows = [row for row in history(run_files(path)[0]) if "running/questions" in row]
    assert [row["_step"] for row in rows] == [1, 9]


@pytest.mark.slow
def test_tracking_changes_nothing_else_and_a_failing_one_is_a_note(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = evaluate(config("method=single", "run.tracking=off", "data.limit=5"))
    names = ("predictions.jsonl", "traces.jsonl", "scores.jsonl")
    expected = {name: (path / name).read_bytes() for name in names}
    assert not (path / "wandb").exists() and not (path / "wandb.json").exists()
    shutil.rmtree(path)
    FakeWandb(tmp_path / "fake", monkeypatch, "init")
    notes: list[str] = []
    path, metrics = evaluate(
        config("method=single", "run.tracking=online", "data.limit=5"), Observer(on_note=notes.append)
    )
    assert [note for note in notes if "Biases" in note] == [
        "Weights & Biases failed (OSError: no server; the run goes on without it)"
    ]
    assert {name: (path / name).read_bytes() for name in names} == expected
    assert read(path / "metrics.json") == metrics and "metrics" not in read(path / "wandb.json")


@pytest.mark.slow
def test_an_unreadable_id_is_a_note(config: Any) -> None:
    own = config("method=single", "data.limit=2")
    path, _ = evaluate(own)
    (path / "wandb.json").write_text("{")
    notes: list[str] = []
    evaluate(own, Observer(on_note=notes.append))
    assert any("Weights & Biases failed" in note for note in notes)


def test_the_table_of_predictions_is_bounded(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = config("method=single", "run.tracking=off")
    path, _ = evaluate(own)
    data = evaluation.load_questions_for(own)
    predictions = read_predictions(path)
    monkeypatch.setattr(tracking, "ROWS", 10)
    rows = tracking.answer_rows(path, tracking.Sources(data.questions, data.passages), predictions)
    assert 5 <= len(rows) <= 10 and {len(row) for row in rows} == {len(tracking.COLUMNS)}
    assert len({row[1] for row in rows}) > 2, "taken from all over the questions, whose types come in blocks"


def test_nested_figures_have_names_with_slashes() -> None:
    nested = {"a": {"b": 1, "c_ci": [0.1, 0.2]}, "rounds": [{"x": 1}, {"x": None}]}
    assert flattened(nested) == {"a/b": 1, "a/c_ci": [0.1, 0.2], "rounds/0/x": 1, "rounds/1/x": None}
