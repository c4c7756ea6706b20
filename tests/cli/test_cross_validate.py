"""`inference/cross_validate.py`: no question is answered with a network that trained on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.cli import app
from gnnrag.run.rundir import read_predictions
from tests.helpers.indexes import REPOSITORY

SAMPLE = REPOSITORY / "data/sample"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cross")
    assert train(path, "both", "cross=true") == 0
    return path


def train(folder: Path, name: str, *more: str) -> int:
    settings = [
        "sets.sample.index.embedder.model=hash", "sets.sample.index.text.language=blank:en", "gnn.dim=4",
        f"sets.sample.data.path={SAMPLE}", "sets.sample.data.limit=12", f"sets.sample.index.path={folder / 'index'}",
        "gnn.layers=1", "prune.passages=12", "folds.count=2", "folds.validation=0.3", "trainer.max_steps=2",
        "trainer.per_device_train_batch_size=2", f"run.root={folder / 'training'}",
        f"run.name={name}",
    ]  # fmt: skip
    return app.run(["train", "gnn", *settings, *more])


def call(folder: Path, training: str, *more: str) -> int:
    settings = [
        f"data.path={SAMPLE}", "data.limit=12", "index.embedder.model=hash", "index.text.language=blank:en",
        "retriever=gfm", f"index.path={folder / 'index'}", f"run.root={folder / 'runs'}",
        f"gnn={folder / 'training' / training}",
    ]  # fmt: skip
    return app.run(["cross-validate", *settings, *more])


@pytest.mark.slow
def test_each_question_meets_the_network_that_did_not_train_on_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(folder, "both", "method=multihop") == 0
    merged = Path(capsys.readouterr().out.splitlines()[-1])
    parts = json.loads((merged / "meta.json").read_text("utf-8"))["merged"]
    asked = {}
    for name in parts:
        run = merged.with_name(name)
        checkpoint = next(line for line in (run / "config.yaml").read_text().splitlines() if "checkpoint:" in line)
        trained = json.loads((Path(checkpoint.split(": ")[1]).parent / "folds.json").read_text("utf-8"))["sample"]
        for prediction in read_predictions(run):
            assert prediction.question_id in trained["report"]
            assert prediction.question_id not in trained["train"] + trained["validation"]
            asked[prediction.question_id] = prediction.ranking
    assert len(parts) == 2 and len(asked) == 12
    assert {p.question_id: p.ranking for p in read_predictions(merged)} == asked
