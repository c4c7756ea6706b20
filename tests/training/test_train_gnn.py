"""`training/train_gnn.py` as a person starts it, on the sample corpus with the hash embedder."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli.app import run
from gnnrag.errors import ConfigError
from gnnrag.gnn.checkpoint import load_checkpoint
from gnnrag.index.embedder import HashEmbedder
from gnnrag.training.gnn import one_encoder
from tests.helpers.trainings import read, reported

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "sets.sample.index.embedder.model=hash", "sets.sample.index.text.language=blank:en",
    f"sets.sample.data.path={ROOT / 'data' / 'sample'}", "sets.sample.data.limit=12", "gnn.dim=4", "gnn.layers=1",
    "prune.passages=12", "folds.count=2", "folds.validation=0.3", "trainer.max_steps=4",
    "trainer.per_device_train_batch_size=2",
    "trainer.eval_steps=2", "cross=false",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("train")


def call(folder: Path, *more: str) -> int:
    places = [f"sets.sample.index.path={folder / 'index'}", f"run.root={folder / 'runs'}"]
    return run(["train", "gnn", *SMALL, *places, *more])


def test_a_training_reports_on_unseen_questions_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder, "run.name=a", "run.notes=[a small one]") == 0
    out = capsys.readouterr().out
    run = folder / "runs" / "a"
    assert out.strip().splitlines()[-1] == str(run) and "recall@5" in out
    rows = reported(run, "sample", "a small one")
    metrics = read(run / "metrics.json")["sample"]
    assert metrics["questions"] == len(rows) and 0 <= metrics["recall@5"] <= 1 and len(metrics["recall@5_ci"]) == 2
    checkpoint = load_checkpoint(run / "best")
    assert checkpoint.model.config.features and checkpoint.facts["prune"]["passages"] == 12
    assert "| sample | report | recall@5 |" in (run / "best" / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_stage_1_starts_stage_2(folder: Path) -> None:
    stage1 = ["stage=completion", "completion.triples=4", "completion.negatives=4"]
    assert call(folder, "run.name=c", *stage1) == 0
    assert any("validation/mrr" in line for line in (folder / "runs" / "c" / "metrics.jsonl").open())
    start = f"start={folder / 'runs' / 'c' / 'best'}"
    assert call(folder, "run.name=d", start, "trainer.learning_rate=1e-12", "trainer.weight_decay=0") == 0
    before, after = (load_checkpoint(folder / "runs" / name / "best").model.state_dict() for name in "cd")
    assert all(abs(before[name] - after[name]).max() < 1e-6 for name in before)


def test_stage_1_reads_no_more_of_an_index_than_graph_and_relations(folder: Path) -> None:
    root, stage1 = folder / "bare", ["stage=completion", "completion.triples=2", "completion.negatives=2"]
    assert call(folder, "run.name=i", f"sets.sample.index.path={root}", "completion.query=relation", *stage1) == 0
    made = {path.name.rpartition("-")[0] for path in root.iterdir() if path.is_dir()}
    assert {"message_graph", "relation_vectors"} <= made and "sentence_vectors" not in made


def test_sets_of_different_embedders_are_refused() -> None:
    other = type("Other", (HashEmbedder,), {"identity": "other"})()
    corpora: Any = {
        name: types.SimpleNamespace(index=types.SimpleNamespace(embedder=embedder))
        for name, embedder in (("a", HashEmbedder()), ("b", other))
    }
    with pytest.raises(ConfigError, match=r"sets a and b were indexed with .*weights is 'other'"):
        one_encoder(corpora)
