"""`training/train_verifier.py` as a person starts it, on recorded decisions with a tiny encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli.app import run
from gnnrag.io import WEIGHTS, load_tensors
from gnnrag.roles.tuned.checkpoint import read_tuned
from tests.helpers.language_rows import settings
from tests.helpers.pictures import is_drawn
from tests.helpers.tiny_model import make_tiny_model
from tests.helpers.toy_verifier import make_encoder, make_rows, write_rows
from tests.helpers.trainings import read, reported, rows_of

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "network.train_layers=1", "network.hidden=8", "network.max_tokens=32",
    "ranking.feature_steps=5", "ranking.max_pairs=4", "selecting.read=4", "folds.count=3", "folds.validation=0.3",
    "fit.steps=6", "fit.batch_size=2", "fit.lr=0.01", "fit.eval_every=3", "fit.save_every=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verifier")
    make_encoder(root / "encoder")
    write_rows(root / "a.jsonl", make_rows(12, mined=1))
    return root


def arguments(folder: Path, *more: str) -> list[str]:
    places = [f"sets.toy.rows=[{folder / 'a.jsonl'}]", f"run.root={folder / 'runs'}"]
    return [*SMALL, *places, f"network.base={folder / 'encoder'}", *more]


def call(folder: Path, *more: str) -> int:
    return run(["train", "verifier", *arguments(folder, *more)])


def weights(run: Path) -> Any:
    return load_tensors(run / "best" / WEIGHTS)


def gap(one: Path, other: Path) -> float:
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    # The gradient of a key's bias is 0 but for rounding, which Adam blows up to its rate; nothing depends on it.
    return max(float((a[name] - b[name]).abs().max()) for name in a if not name.endswith("key.bias"))


def test_a_training_reports_on_unseen_questions_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder, "run.name=a", "run.notes=[a small one]") == 0
    assert capsys.readouterr().out.strip().splitlines()[-1] == str(folder / "runs" / "a")
    run = folder / "runs" / "a"
    assert (
        "probabilities" not in reported(run, "toy", "a small one")[0] and read(run / "folds.json")["toy"]["validation"]
    )
    metrics = read(run / "metrics.json")["toy"]
    assert {"pooled_auc", "calibration_error", "auc", "recall@5", "pool_recall@5", "precision"} <= metrics.keys()
    record = read_tuned(run, "verifier", ("cross_encoder",))
    assert record.facts["threshold"] == record.facts["selection"]["threshold"] and record.facts["read"] == 4
    assert record.base["name"] == str(folder / "encoder")
    card = (run / "best" / "README.md").read_text("utf-8")
    assert "| toy | report | auc |" in card and "accelerate launch" in card


@pytest.fixture(scope="module")
def crossed(folder: Path) -> Path:
    assert call(folder, "run.name=b", "cross=true", "network.text=false") == 0
    return folder / "runs" / "b"


@pytest.mark.slow
def test_the_folds_together_report_on_every_question_once(crossed: Path) -> None:
    rows = rows_of(crossed / "report.jsonl")
    assert sorted(row["id"] for row in rows) == sorted(f"q{i}" for i in range(12))
    for row in rows:
        assert row["id"] in read(crossed / f"fold{row['fold']}" / "folds.json")["toy"]["report"]
    assert all(is_drawn(crossed / name / "curves.png") for name in (".", "fold0", "fold1", "fold2"))
    logged = rows_of(crossed / "fold0" / "metrics.jsonl")
    fitted = [(row["features/fitted"], row["features/loss"]) for row in logged if row["step"] == 0]
    assert [step for step, _ in fitted] == [1, 2, 3, 4, 5] and all(loss > 0 for _, loss in fitted)


@pytest.mark.slow
def test_a_language_model_may_judge(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "base", lively=True)
    assert run(["train", "verifier", *settings(tmp_path, "verifier", model, "run.name=c", "trainer.max_steps=2")]) == 0
    assert read_tuned(tmp_path / "runs" / "c", "verifier", ("causal",)).facts["report"]


@pytest.mark.parametrize(
    "settings, message",
    [
        (["kind=bilinear"], "kind='bilinear' is unknown"),
        (["metric=acc"], "metric='acc' is not measured; there are: auc"),
        (["network.hiden=3"], "unknown setting 'network.hiden'"),
        (["network.base=./nowhere"], "network.base='./nowhere'"),
        (["sets.toy.rows=[]"], "gnnrag collect-traces writes them"),
        (["sets.toy.rows=[none.jsonl]"], "gnnrag collect-traces writes it"),
        (["cross=true", "folds.report=null"], "cross=true reports on every fold in turn"),
    ],
)
def test_bad_settings_are_one_line(
    folder: Path, settings: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(folder, "run.name=bad", *settings) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err
