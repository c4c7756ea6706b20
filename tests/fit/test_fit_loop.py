from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from gnnrag.errors import ConfigError, GnnragError
from gnnrag.run.rundir import seen_hash
from gnnrag.training import base as fit_training
from gnnrag.training.base import RunContext
from gnnrag.training.config import FitConfig, Parts
from gnnrag.training.loop import Trainer, learning_rate
from gnnrag.training.report import means
from tests.helpers.toy_training import LineTask, train

SHORT = {"steps": 30, "lr": 0.02, "eval_every": 10, "save_every": 3, "log_every": 4, "average": 0.5}


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.bare.state_dict().items()}


def metric_rows(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def test_the_loop_learns_and_writes_what_it_did(tmp_path: Path) -> None:
    trainer = train(tmp_path / "run", FitConfig(**SHORT | {"steps": 200, "eval_every": 50}), dropout=0.0)
    assert trainer.state.is_done and trainer.state.metrics["score"] > -0.3
    rows = metric_rows(tmp_path / "run")
    assert [r["step"] for r in rows if "validation/score" in r] == [50, 100, 150, 200]
    assert rows[0]["step"] == 4 and rows[0]["train/loss"] > [r for r in rows if "train/loss" in r][-1]["train/loss"]
    best = json.loads((tmp_path / "run" / "best" / "model.json").read_text())
    assert best["step"] == trainer.state.best_step


@pytest.mark.slow
def test_a_stopped_run_ends_with_the_weights_and_metrics_of_an_undisturbed_one(tmp_path: Path) -> None:
    config = FitConfig(**SHORT)
    whole = train(tmp_path / "a", config)
    stopped = train(tmp_path / "b", config, stop_at=17)
    assert not stopped.state.is_done and stopped.state.step == 17
    resumed = train(tmp_path / "b", config)
    assert resumed.state.is_done
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(resumed)[name]), name
    assert metric_rows(tmp_path / "a") == metric_rows(tmp_path / "b")
    again = weights(train(tmp_path / "a", config, die_at=0))  # a finished run trains no further
    assert all(torch.equal(value, again[name]) for name, value in weights(whole).items())


def test_without_validation_nothing_is_to_be_patient_about_and_the_last_weights_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LineTask, "evaluate", lambda *_: {})
    state = train(tmp_path / "a", FitConfig(**SHORT | {"patience": 1})).state
    assert (state.step, state.best_step, state.stale) == (30, 30, 0)
    assert json.loads((tmp_path / "a" / "best" / "model.json").read_text())["step"] == 30


def test_a_question_that_shaped_the_start_is_not_reported_on(tmp_path: Path) -> None:
    plan: Any = types.SimpleNamespace(
        config=types.SimpleNamespace(fit=FitConfig()),
        context=RunContext(Accelerator(cpu=True)),
        parts={"toy": Parts(("a",), (), ("b", "c"))},
        seen=frozenset({seen_hash("a"), seen_hash("c")}),
    )
    with pytest.raises(ConfigError, match="set toy: 1 questions to report on, such as 'c'"):
        fit_training.train(tmp_path / "run", plan)
    assert not (tmp_path / "run").exists()


def test_training_stops_when_nothing_improves(tmp_path: Path) -> None:
    config = FitConfig(steps=500, lr=1e-9, eval_every=5, patience=2)
    trainer = train(tmp_path / "a", config, dropout=0.0)
    assert trainer.state.step <= 20 and trainer.state.is_done


@pytest.mark.slow
@pytest.mark.parametrize("keep, step", [("best", 10), ("last", 40)])
def test_the_kept_weights(tmp_path: Path, keep: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([1.0, 0.5, 0.4, 0.3])
    monkeypatch.setattr(LineTask, "evaluate", lambda *_: {"q": {"score": next(scores)}})
    train(tmp_path / "a", FitConfig(steps=40, eval_every=10, patience=None, keep=keep))
    assert json.loads((tmp_path / "a" / "best" / "model.json").read_text())["step"] == step


def test_other_settings_are_refused(tmp_path: Path) -> None:
    train(tmp_path / "a", FitConfig(steps=4, save_every=2))
    with pytest.raises(ConfigError, match=r"other settings \(fit\.lr\)"):
        train(tmp_path / "a", FitConfig(steps=4, save_every=2, lr=1.0))


def test_half_a_state_is_skipped_and_the_one_before_is_taken(tmp_path: Path) -> None:
    config = FitConfig(**SHORT)
    whole = train(tmp_path / "a", config)
    train(tmp_path / "b", config, stop_at=17)
    (tmp_path / "b" / "state.pt").write_bytes(b"PK\x03\x04 cut short")
    resumed = train(tmp_path / "b", config)  # from step 15
    assert resumed.state.is_done and metric_rows(tmp_path / "a") == metric_rows(tmp_path / "b")
    assert all(torch.allclose(v, weights(resumed)[name], atol=1e-5) for name, v in weights(whole).items())


def test_a_loss_that_is_no_number_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineTask, "loss", lambda self, model, items, device: model(torch.full((8, 1), torch.nan))[:, 0])
    with pytest.raises(GnnragError, match="step 0: the loss is nan"):
        train(tmp_path / "a", FitConfig(steps=4))


def test_learning_rates() -> None:
    rises = FitConfig(lr=1.0, warmup=4, steps=14, schedule="linear")
    assert [learning_rate(rises, s) for s in (0, 3, 4, 9)] == pytest.approx([0.2, 0.8, 1.0, 0.5])
    assert learning_rate(FitConfig(lr=1.0, steps=10, schedule="cosine"), 5) == pytest.approx(0.5)
    assert learning_rate(FitConfig(lr=1.0), 1999) == 1.0


def test_means_are_over_the_questions_that_have_a_metric() -> None:
    assert means([{"x": 1.0, "y": 4.0}, {"x": 2.0}]) == {"x": 1.5, "y": 4.0}
