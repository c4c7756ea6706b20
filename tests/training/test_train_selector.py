"""`training/train_thoughts.py kind=selector` as a person starts it, on the sample corpus with the hash embedder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnrag.cli.console import run_script
from gnnrag.common.records import load_tensors
from gnnrag.datasets.base import load_dataset
from gnnrag.index.index import Index
from gnnrag.roles.tuned.checkpoint import read_tuned
from gnnrag.roles.tuned.thoughts import FEATURES, load_selector
from gnnrag.training.loop import Trainer
from gnnrag.training.selector_data import DecisionConfig, DecisionSet
from tests.helpers.each import each
from tests.helpers.trainings import read, reported
from training import train_thoughts

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "kind=selector", "sets.sample.index.embedder.model=hash", "sets.sample.index.text.language=blank:en",
    f"sets.sample.data.path={ROOT / 'data' / 'sample'}", "sets.sample.data.limit=16", "decisions.candidates=16",
    "selector.hidden=16", "folds.count=2", "folds.validation=0.3", "fit.steps=40", "fit.lr=0.003", "fit.batch_size=8",
    "fit.eval_every=20",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("train")


def call(folder: Path, *more: str) -> int:
    places = [f"sets.sample.index.path={folder / 'index'}", f"run.root={folder / 'runs'}", f"cache={folder / 'cache'}"]
    return run_script(train_thoughts.main, [*SMALL, *places, *more], train_thoughts.__doc__)


@pytest.mark.slow
def test_a_training_reports_on_unseen_questions_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder, "run.name=a", "run.notes=[a small one]") == 0
    assert "recall@5" in capsys.readouterr().out
    run = folder / "runs" / "a"
    reported(run, "sample", "a small one")
    record = read(run / "best" / "gnnrag.json")
    assert (record["role"], record["kind"]) == ("thoughts", "selector") and record["settings"]["candidates"] == 16
    assert "| sample | report | recall@5 |" in (run / "best" / "README.md").read_text("utf-8")
    assert (run / "best" / "questions.json").exists()


@pytest.mark.slow
def test_a_trained_selector_gains_more_than_chance_on_questions_that_it_has_not_seen(folder: Path) -> None:
    assert call(folder, "run.name=learned", "sets.sample.data.limit=40", "fit.steps=80", "fit.eval_every=80") == 0
    run = folder / "runs" / "learned"
    ids = read(run / "folds.json")["sample"]["report"]
    data, index = load_dataset(str(ROOT / "data" / "sample")), Index(folder / "index")
    questions = [q for q in data.questions if q.id in ids]
    decisions = DecisionSet(questions, index, DecisionConfig(candidates=16), folder / "cache" / "sample").decisions
    model = load_selector(run / "best", read_tuned(run / "best", "thoughts", ("selector",)), FEATURES)
    rows = [d for of in decisions.values() for d in of if d.round == 1]
    places = [[-1 if i is None else i for i in model.pick(d.options)] for d in rows]
    chosen = [float(d.worth[fast, slow] - d.worth[-1, -1]) for d, (fast, slow) in zip(rows, places, strict=True)]
    chance = [float(d.worth[:-1, :-1].mean() - d.worth[-1, -1]) for d in rows]
    assert len(rows) > 10 and np.mean(chosen) > np.mean(chance) + 0.05


@pytest.mark.slow
def test_a_stopped_training_goes_on_to_the_same_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(folder, "run.name=whole") == 0
    update = Trainer._update

    def killed(self: Trainer, step: int) -> None:
        if step == 27:
            raise RuntimeError("killed")
        update(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", killed)
        assert call(folder, "run.name=cut", "fit.save_every=10") == 1
    assert call(folder, "run.name=cut", "fit.save_every=10") == 0
    whole, cut = (load_tensors(folder / "runs" / name / "best" / "model.safetensors") for name in ("whole", "cut"))
    assert all((whole[name] == cut[name]).all() for name in whole)


@each(
    "setting, message",
    [
        ("decisions.trails=[up]", "decisions.trails='up': allowed are rules, best, wander"),
        ("decisions.candidates=1", "decisions.candidates=1: must be at least 2"),
        ("temperature=0", "temperature=0.0 must be above 0"),
        ("sets.sample.use=some", "sets.sample.use='some': allowed are"),
        ("sets.sample.share=0", "sets.sample.share=0.0: must be above 0"),
        ("selector.features=[a]", "selector.features is filled in"),
    ],
)
def test_settings_out_of_range_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str], setting: str, message: str
) -> None:
    assert call(folder, "run.name=bad", setting) == 2
    assert message in capsys.readouterr().err
