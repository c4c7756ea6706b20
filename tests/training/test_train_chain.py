"""Training of the verifier of chains, and the composed questions that it learns from."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from gnnrag.cli.app import run
from gnnrag.cli.training import run_training
from gnnrag.errors import ConfigError, DataError, StoppedError
from gnnrag.io import WEIGHTS, load_tensors, write_jsonl
from gnnrag.roles.tuned.checkpoint import read_tuned
from gnnrag.training.composing import JoinConfig, join_sets
from tests.helpers.toy_verifier import make_rows, write_rows
from tests.helpers.trainings import read, reported, rows_of

SMALL = [
    "kind=chain", "network.hidden=4", "network.length=2", "folds.count=3", "folds.validation=0.3",
    "trainer.max_steps=12",
    "trainer.per_device_train_batch_size=4", "trainer.learning_rate=0.02", "trainer.eval_steps=6",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("chain")
    write_rows(root / "a.jsonl", make_rows(12))
    return root


def settings(folder: Path, *more: str) -> list[str]:
    return [*SMALL, f"sets.toy.rows=[{folder / 'a.jsonl'}]", f"run.root={folder / 'runs'}", *more]


def call(folder: Path, *more: str) -> int:
    return run(["train", "verifier", *settings(folder, *more)])


def test_chains_are_learned_and_reported_on_unseen_questions(folder: Path) -> None:
    assert call(folder, "run.name=a", "run.notes=[a small one]", "trainer.max_steps=60", "trainer.eval_steps=30") == 0
    run = folder / "runs" / "a"
    rows = reported(run, "toy", "a small one")
    metrics = read(run / "metrics.json")["toy"]
    # Both passages of a toy question can be told: its title is asked for, and it names the other one.
    assert metrics["recall"] > 0.9 and all(row["metrics"]["selected"] == 2 for row in rows)
    record = read_tuned(run, "verifier", ("chain",))
    assert record.settings["length"] == 2 and record.base == {}
    assert not (run / "best" / WEIGHTS).stat().st_size > 100_000


def test_a_stopped_training_ends_like_an_undisturbed_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["trainer.logging_steps=1", "trainer.save_steps=6", "network.dropout=0.3"]
    assert call(folder, "run.name=whole", *more) == 0
    asked = itertools.count(1)
    with pytest.raises(StoppedError):
        run_training("train_verifier.py", settings(folder, "run.name=cut", *more), lambda: next(asked) == 8)
    whole, cut = (folder / "runs" / name for name in ("whole", "cut"))
    assert [path.name for path in (cut / "checkpoints").glob("*-8")] and not (cut / "best").exists()
    assert call(folder, "run.name=cut", *more) == 0 and "goes on from checkpoint-8" in capsys.readouterr().err
    rows = [rows_of(path / "metrics.jsonl") for path in (whole, cut)]
    assert rows[0] == rows[1] and len({row.get("train/loss") for row in rows[0]}) > 8
    weights = [load_tensors(path / "best" / WEIGHTS) for path in (whole, cut)]
    assert all((value == weights[1][name]).all() for name, value in weights[0].items())


def test_a_loss_that_is_no_number_ends_with_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder, "run.name=n", "trainer.learning_rate=1e30", "trainer.max_grad_norm=0") == 2
    assert "the loss is nan" in capsys.readouterr().err


def test_patience_ends_a_training_that_gets_no_better(folder: Path) -> None:
    assert call(folder, "run.name=p", "trainer.learning_rate=0", "patience=1", "trainer.eval_steps=3") == 0
    assert max(row["step"] for row in rows_of(folder / "runs" / "p" / "metrics.jsonl")) == 6


# ------------------------------------------------------------------------------------------------- composed questions
def write_set(folder: Path) -> str:
    texts = {"p1": "Emma Vale wrote The Long Pier.", "p2": "Emma Vale lived in Tromso.", "p3": "Tromso has a bridge."}
    asked = [
        ("q1", "Who wrote The Long Pier?", "Emma Vale", "p1"),
        ("q2", "In which town did Emma Vale live?", "Tromso", "p2"),
        ("q3", "When was the bridge of Tromso built?", "1960", "p3"),
        ("q4", "Who lived where a bridge was built in 1960?", "Emma Vale", "p2 p3"),
    ]
    write_jsonl(folder / "corpus.jsonl", [{"id": i, "title": i, "text": text} for i, text in texts.items()])
    rows = [{"id": i, "question": q, "answers": [a], "type": "span", "gold": g.split()} for i, q, a, g in asked]
    write_jsonl(folder / "questions.train.jsonl", rows)
    return str(folder)


def test_names_give_way_to_questions_over_two_and_three_hops(tmp_path: Path) -> None:
    out = tmp_path / "joined"
    assert join_sets(JoinConfig([write_set(tmp_path / "one")], out=str(out)))["composed"] == 3
    made = {tuple(row["gold"]): row for row in rows_of(out / "questions.train.jsonl")}
    assert made.keys() == {("p1", "p2"), ("p2", "p3"), ("p1", "p2", "p3")}
    two, three = made["p1", "p2"], made["p1", "p2", "p3"]
    assert two["question"] == "In which town did the one who wrote The Long Pier live?" and two["answers"] == ["Tromso"]
    assert three["type"] == "3hop" and three["answers"] == ["1960"] and "Long Pier" in three["question"]
    assert [hop["gold"] for hop in three["decomposition"]] == three["gold"]
    assert not any(name in three["question"] for name in ("Emma", "Tromso"))
    assert json.loads((out / "SOURCE.json").read_text())["passages"] == 3
    with pytest.raises(ConfigError, match=r"leave_out.*q9"):
        join_sets(JoinConfig([str(tmp_path / "one")], out=str(out), leave_out=["q1", "q9"]))
    with pytest.raises(DataError, match="no question was composed"):
        join_sets(JoinConfig([str(tmp_path / "one")], out=str(out), two=0, three=0))
    join_sets(JoinConfig([str(tmp_path / "one")], out=str(out), keep=True))
    assert [row["id"] for row in rows_of(out / "questions.train.jsonl") if "+" not in row["id"]] == ["q4"]
