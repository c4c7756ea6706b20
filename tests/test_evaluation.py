"""Whole runs on the sample corpus, with the hash embedder: no weights, no language model, no network."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnnrag.config import EvaluateConfig, MetricsConfig, load_config
from gnnrag.datasets.base import load_dataset
from gnnrag.index.index import Index
from gnnrag.io import read_journal, write_jsonl
from gnnrag.roles.base import Answer
from gnnrag.roles.tuned.reader import OfflineReader
from gnnrag.run import evaluate as evaluate_module
from gnnrag.run.evaluate import Observer, evaluate, load_data_for, write_metrics
from gnnrag.run.rundir import read_predictions
from gnnrag.types import Prediction

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "data" / "sample"
LIMIT = 24  # questions; of fewer queries than 20 nobody says that most fell back
STABLE = ("config.yaml", "predictions.jsonl", "traces.jsonl", "scores.jsonl")


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture
def config(indexes: Path, tmp_path: Path) -> Any:
    def make(*overrides: str, runs: str = "runs") -> EvaluateConfig:
        base = [
            f"data.path={SAMPLE}", "index.embedder.model=hash", "index.text.language=blank:en", "retriever=hybrid",
            f"index.root={indexes}", f"run.root={tmp_path / runs}", "run.name=mine",
            f"data.limit={LIMIT}",
        ]  # fmt: skip
        if not any(setting.startswith("roles") for setting in overrides):
            base.append("roles.reader=oracle")  # the network that reads is slow, and few tests are about answers
        return load_config(EvaluateConfig, None, [*base, *overrides])

    return make


def read(path: Path, names: tuple[str, ...] = STABLE) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in names}


def same_metrics(one: dict[str, Any], two: dict[str, Any]) -> bool:
    def timeless(metrics: Any) -> Any:
        if not isinstance(metrics, dict):
            return metrics
        return {k: timeless(v) for k, v in metrics.items() if k != "cost/seconds_per_question"}

    return bool(timeless(one) == timeless(two))


def test_two_runs_are_equal_byte_for_byte(config: Any) -> None:
    results = []
    for runs, concurrency in (("one", 1), ("two", 32)):
        path, metrics = evaluate(
            config("method=bdtr", "roles=offline", "data.limit=3", f"concurrency={concurrency}", runs=runs)
        )
        results.append((read(path, STABLE[1:]), metrics))
    assert results[0][0] == results[1][0] and same_metrics(results[0][1], results[1][1])
    metrics = results[0][1]
    assert metrics["failed"] == 0 and metrics["questions"] == 3
    assert metrics["retrieval/recall@5"] > 0.3 and 0 < metrics["answer/f1"] < 1


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt: a shell starts what it puts in the background (`pytest &`) with that signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_run_is_continued(config: Any) -> None:
    whole, _ = evaluate(config("run.name=whole"))
    seen: list[str] = []

    def interrupt(prediction: Prediction) -> None:
        seen.append(prediction.question_id)
        if len(seen) == 7:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        evaluate(config("concurrency=3"), Observer(on_question=interrupt))
    path = whole.parent / "mine"
    rows = [json.loads(line)["question_id"] for line in (path / "predictions.jsonl").read_text().splitlines()]
    assert rows == seen and 7 <= len(seen) < LIMIT
    rest: list[str] = []
    path, metrics = evaluate(config(), Observer(on_question=lambda p: rest.append(p.question_id)))
    assert not set(rest) & set(seen) and len(rest) + len(seen) == LIMIT
    assert read(path, STABLE[1:]) == read(whole, STABLE[1:]) and metrics["failed"] == 0


def test_failures_are_rows_score_zero_and_are_tried_again(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(self: OfflineReader, task: Any, session: Any) -> Answer:
        if task.question.id in broken:
            raise RuntimeError("out of memory")
        return Answer(task.question.answers[0] if task.question.answers else "")

    broken = {"sample-q3", "sample-q5"}
    monkeypatch.setattr(OfflineReader, "__call__", read)
    path, metrics = evaluate(config("method=single", "roles=offline"))
    assert metrics["failed"] == 2 and metrics["answer/em"] == pytest.approx((LIMIT - 2) / LIMIT, abs=1e-4)
    rows = {p.question_id: p for p in read_predictions(path)}
    assert rows["sample-q3"].error == "RuntimeError: out of memory" and rows["sample-q3"].answer == ""
    broken.clear()
    seen: list[str] = []
    _, metrics = evaluate(
        config("method=single", "roles=offline"), Observer(on_question=lambda p: seen.append(p.question_id))
    )
    assert sorted(seen) == ["sample-q3", "sample-q5"] and metrics["failed"] == 0 and metrics["answer/em"] == 1


def test_figures_go_before_a_question_is_answered_again(config: Any) -> None:
    dots = ("method=single", "retriever=bm25", "data.limit=3")
    path, metrics = evaluate(config(*dots))
    rows = read_journal(path / "predictions.jsonl")
    write_jsonl(path / "predictions.jsonl", [*rows[:2], rows[2] | {"error": "down"}])
    seen: list[Prediction] = []

    def stop(prediction: Prediction) -> None:
        seen.append(prediction)
        raise OSError("cut off")

    with pytest.raises(ExceptionGroup):
        evaluate(config(*dots), Observer(on_question=stop))
    assert len(seen) == 1 and not (path / "metrics.json").exists() and not (path / "scores.jsonl").exists()
    assert len(read_journal(path / "predictions.jsonl")) == 4 and len(read_predictions(path)) == 3
    assert same_metrics(evaluate(config(*dots))[1], metrics) and (path / "scores.jsonl").exists()


def test_scoring_reads_files_only(config: Any, tmp_path: Path) -> None:
    path, metrics = evaluate(config("method=single"))
    moved = tmp_path / "elsewhere"
    shutil.copytree(path, moved)
    (moved / "metrics.json").unlink()
    data = load_dataset(SAMPLE, limit=LIMIT)
    rows = read_predictions(moved)
    again = write_metrics(moved, data, rows, MetricsConfig())
    assert again == metrics == json.loads((moved / "metrics.json").read_text())
    third = write_metrics(moved, data, rows, MetricsConfig(ks=[3]))["retrieval/recall@3"]
    assert third >= metrics["retrieval/recall@2"]


def test_rounds_are_told_of_all_questions_or_of_none(config: Any) -> None:
    dots = ("method=multihop", "retriever=bm25", "data.limit=4")
    path, metrics = evaluate(config(*dots))
    before, notes = (path / "traces.jsonl").read_text().splitlines(keepends=True), list[str]()
    assert len(before) == 4 and metrics["by_round"][0]["queries"] == 1
    (path / "traces.jsonl").write_text("".join(before[:3]))
    _, metrics = evaluate(config(*dots), Observer(on_note=notes.append))
    assert "by_round" not in metrics and any("1 of 4 questions have no trace" in n for n in notes)


def test_scores_of_each_question(config: Any) -> None:
    path, metrics = evaluate(config("method=single"))
    rows = [json.loads(line) for line in (path / "scores.jsonl").read_text().splitlines()]
    assert [r["question_id"] for r in rows] == [q.id for q in load_dataset(SAMPLE).questions[:LIMIT]]
    counted = [r["retrieval/recall@5"] for r in rows if r["has_gold"]]
    assert sum(counted) / len(counted) == pytest.approx(metrics["retrieval/recall@5"], abs=1e-4)


def test_an_index_given_is_used_and_none_is_built(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config("data.limit=2")
    evaluate(settings)
    index = Index(Path(settings.index.root) / "sample")
    monkeypatch.setattr(evaluate_module, "open_or_build", lambda *_: pytest.fail("built an index"))
    path, metrics = evaluate(config("data.limit=2", "run.name=other"), index=index)
    assert path.name == "other" and metrics["questions"] == 2


@pytest.mark.slow
def test_the_oracle_is_the_ceiling(config: Any) -> None:
    offline = evaluate(config("roles=offline", "run.name=offline"))[1]
    oracle = evaluate(config("roles=oracle", "run.name=oracle"))[1]
    for metric in ("retrieval/recall@5", "answer/f1"):
        assert oracle[metric] > offline[metric]
    assert oracle["retrieval/recall@5"] > 0.8


def test_titles_can_be_left_out(config: Any) -> None:
    titled, bare = (load_data_for(config(*more)) for more in ((), ("data.titles=false",)))
    assert any(passage.title for passage in titled.passages)
    assert [(p.id, p.title, p.text) for p in bare.passages] == [(p.id, "", p.text) for p in titled.passages]
    assert bare.questions == titled.questions
    assert bare.name != titled.name, "its index is another"


@pytest.mark.slow
def test_a_run_on_triples_that_the_model_of_the_run_extracts(config: Any, tmp_path: Path) -> None:
    """The `llm` section serves the index too; the same command asks nothing again."""
    reply = '{"named_entities": ["Solaris"], "triples": [["Solaris", "directed by", "Andrei Tarkovsky"]]}'
    dots = ["method=single", "retriever=hipporag2", "index.extract.method=prompted", f"index.path={tmp_path / 'i'}"]
    settings = config(*dots, "llm=scripted", f"llm_cache={tmp_path / 'cache.sqlite'}")
    settings.llm.part.default = reply
    assert evaluate(settings)[1]["failed"] == 0
    index = Index(tmp_path / "i")
    assert list(index.entity_graph.graph.facts) == [["solaris", "directed by", "andrei tarkovsky"]]
    spent = index.record("extraction")["counts"]["triples calls"]
    assert spent == 2 * len(index.ids) and not index.entity_graph.is_sentences
    before = index.fingerprint
    assert evaluate(settings)[1]["failed"] == 0 and Index(tmp_path / "i").fingerprint == before
