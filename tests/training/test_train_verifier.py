"""`training/train_verifier.py` as a person starts it, on recorded decisions with a tiny encoder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gnnrag.cli.app import run
from gnnrag.roles.tuned.checkpoint import read_tuned
from gnnrag.roles.tuned.verifier import load_cross_encoder, pairs_of, scores_of
from gnnrag.training.base import newest_checkpoint
from tests.helpers.language_rows import settings
from tests.helpers.tiny_model import make_tiny_model
from tests.helpers.toy_verifier import make_encoder, make_rows, write_rows
from tests.helpers.trainings import read, reported, rows_of

SMALL = [
    "network.max_tokens=32", "ranking.max_pairs=4", "folds.count=3", "folds.validation=0.3",
    "trainer.max_steps=6", "trainer.per_device_train_batch_size=2", "trainer.learning_rate=0.01",
    "trainer.eval_steps=3", "trainer.save_steps=3", "trainer.logging_steps=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verifier")
    make_encoder(root / "encoder")
    write_rows(root / "a.jsonl", make_rows(12))
    return root


def call(folder: Path, *more: str) -> int:
    places = [f"sets.toy.rows=[{folder / 'a.jsonl'}]", f"run.root={folder / 'runs'}"]
    return run(["train", "verifier", *SMALL, *places, f"network.base={folder / 'encoder'}", *more])


def losses(run: Path) -> dict[int, float]:
    return {row["step"]: row["train/loss"] for row in rows_of(run / "metrics.jsonl") if "train/loss" in row}


def scores(run: Path) -> list[float]:
    model = load_cross_encoder(run / "best")
    row = make_rows(1)[0]
    return scores_of(model, pairs_of(row.question, row.chain, [p.passage for p in row.passages]))


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    assert call(folder, "run.name=a", "run.notes=[a small one]") == 0
    return folder / "runs" / "a"


def test_a_training_reports_on_unseen_questions_alone(folder: Path, trained: Path) -> None:
    assert reported(trained, "toy", "a small one") and read(trained / "folds.json")["toy"]["validation"]
    metrics = read(trained / "metrics.json")["toy"]
    assert {"recall@5", "pool_recall@5", "precision"} <= metrics.keys()
    record = read_tuned(trained, "verifier", ("cross_encoder",))
    assert record.facts["threshold"] == record.facts["selection"]["threshold"]
    assert record.facts["validation"].keys() == {"map", "mrr@5", "ndcg@5"}
    assert record.base["name"] == str(folder / "encoder")
    card = (trained / "best" / "README.md").read_text("utf-8")
    assert "| toy | report | recall@5 |" in card and "accelerate launch" in card and "- base: encoder\n" in card
    assert list(losses(trained)) == [1, 2, 3, 4, 5, 6]


def test_what_has_ended_is_not_trained_again_nor_taken_for_another(
    folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = shutil.copytree(trained, trained.with_name("ended")).name
    shutil.rmtree(trained.with_name(name) / "checkpoints")
    before = [read(trained / "metrics.json"), rows_of(trained / "metrics.jsonl"), scores(trained)]
    assert call(folder, f"run.name={name}") == 0
    path = trained.with_name(name)
    assert [read(path / "metrics.json"), rows_of(path / "metrics.jsonl"), scores(path)] == before
    assert not (path / "checkpoints").exists()
    assert call(folder, f"run.name={name}", "seed=7") == 2
    assert "other settings (seed)" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["network.rank=2", "trainer.load_best_model_at_end=false"]])
def test_a_killed_training_goes_on_from_its_last_whole_checkpoint(folder: Path, trained: Path, more: list[str]) -> None:
    name = "lora" if more else "killed"
    if more:
        assert call(folder, "run.name=whole", *more) == 0
        trained = folder / "runs" / "whole"
    assert call(folder, f"run.name={name}", *more) == 0
    path = folder / "runs" / name
    shutil.rmtree(path / "best")
    before = Path(newest_checkpoint(path / "checkpoints") or "")
    assert before.name in ("checkpoint-3",), "the last one is the end: there is no step after it"
    half = shutil.copytree(before, before.with_name("checkpoint-5"))
    state = read(half / "trainer_state.json")
    (half / "trainer_state.json").write_text(json.dumps({**state, "global_step": 5}), "utf-8")
    assert newest_checkpoint(path / "checkpoints") == str(half)
    weights = next(half.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-8])
    assert newest_checkpoint(path / "checkpoints") == str(before)
    assert call(folder, f"run.name={name}", *more) == 0
    assert losses(path) == pytest.approx(losses(trained), abs=1e-5)
    assert scores(path) == pytest.approx(scores(trained), abs=1e-4)


@pytest.mark.slow
def test_the_folds_together_report_on_every_question_once(folder: Path) -> None:
    assert call(folder, "run.name=b", "cross=true", "trainer.max_steps=2") == 0
    crossed = folder / "runs" / "b"
    rows = rows_of(crossed / "report.jsonl")
    assert sorted(row["id"] for row in rows) == sorted(f"q{i}" for i in range(12))
    for row in rows:
        assert row["id"] in read(crossed / f"fold{row['fold']}" / "folds.json")["toy"]["report"]


@pytest.mark.slow
def test_a_language_model_may_judge(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "base", lively=True)
    assert run(["train", "verifier", *settings(tmp_path, "verifier", model, "run.name=c", "trainer.max_steps=2")]) == 0
    assert read_tuned(tmp_path / "runs" / "c", "verifier", ("causal",)).facts["report"]
