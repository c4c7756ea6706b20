"""`training/train_reader.py` as a person starts it, on the sample corpus with a tiny encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.cli.app import run
from gnnrag.parts import set_up
from gnnrag.roles.tuned.reader import TunedReader
from gnnrag.run.rundir import read_seen, seen_hash
from tests.helpers.tiny_encoder import make_tiny_encoder
from tests.helpers.trainings import read, reported
from tests.helpers.tuned import base_of

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "data" / "sample"
SMALL = [
    f"sets.sample.data.path={SAMPLE}", "sets.sample.data.limit=12", "sets.sample.index.embedder.model=hash",
    "sets.sample.index.text.language=blank:en", "network.train_layers=1",
    "network.text_tokens=48", "shown.passages=3", "shown.most=3", "folds.count=2",
    "folds.validation=0.3", "trainer.max_steps=4", "trainer.per_device_train_batch_size=2", "trainer.eval_steps=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    rows = (SAMPLE / "corpus.jsonl").read_text("utf-8").splitlines()[:60]
    make_tiny_encoder(folder / "base", [json.loads(row)["text"] for row in rows])
    return folder


def call(folder: Path, *more: str) -> int:
    places = [f"network.base={folder / 'base'}", f"sets.sample.index.path={folder / 'index'}"]
    return run(["train", "reader", *SMALL, *places, f"run.root={folder / 'runs'}", *more])


@pytest.mark.slow
def test_a_training_reports_on_unseen_questions_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder, "run.name=a", "run.notes=[a small one]") == 0
    run = folder / "runs" / "a"
    out = capsys.readouterr().out
    assert out.strip().splitlines()[-1] == str(run) and "gold_em" in out
    reported(run, "sample", "a small one")
    parts = read(run / "folds.json")["sample"]
    assert read_seen(run) == {seen_hash(id_) for id_ in (*parts["train"], *parts["validation"])}
    base = base_of(run)
    reader = set_up(TunedReader(path=str(run), base=base))  # a run serves as a checkpoint
    assert reader.fingerprint and reader.does.sureness is None  # benchmarks/calibrate_reader.py fits it
