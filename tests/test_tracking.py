"""Weights & Biases beside a run, and what happens where it fails."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from gnnrag.config import TrackingConfig
from gnnrag.run.tracking import Tracker

ROOT = Path(__file__).resolve().parents[1]


class FakeRun:
    def __init__(self, calls: list[Any], fails: str) -> None:
        self.calls, self.fails, self.summary = calls, fails, self

    def __getattr__(self, name: str) -> Any:
        def called(*given: Any, **named: Any) -> None:
            self.calls.append((name, *given, *named.values()))
            if name == self.fails:
                raise OSError("no server")

        return called


def fake_wandb(monkeypatch: pytest.MonkeyPatch, fails: str = "") -> list[Any]:
    calls: list[Any] = []

    def init(**given: Any) -> FakeRun:
        calls.append(("init", given))
        if fails == "init":
            raise OSError("no server")
        return FakeRun(calls, fails)

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init, Settings=dict))
    return calls


def test_a_run_is_shown_and_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_wandb(monkeypatch)
    settings = TrackingConfig(tracking="online", project="p")
    for _ in range(2):
        tracker = Tracker(settings, tmp_path / "r" / "fold1", "train", {"seed": 1}, tmp_path / "r")
        tracker.log({"loss": 1.0}, 1)
        tracker.finish({"dev": {"em": 0.5}})
        tracker.finish(code=1)
    first, second = (given for name, given in (c for c in calls if c[0] == "init"))
    assert first["id"] == second["id"]
    assert (first["name"], first["group"], first["resume"], first["config"]) == ("r-fold1", "r", "allow", {"seed": 1})
    assert calls[1:4] == [("log", {"loss": 1.0}, 1), ("update", {"dev": {"em": 0.5}}), ("finish", 0)]
    assert len(calls) == 8


def test_off_asks_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_wandb(monkeypatch)
    tracker = Tracker(TrackingConfig(), tmp_path / "r", "train", {})
    tracker.log({}, 1)
    tracker.finish()
    assert not calls and not (tmp_path / "r").exists()


@pytest.mark.parametrize("fails", ["init", "log", "update", "finish"])
def test_a_failure_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    fake_wandb(monkeypatch, fails)
    tracker = Tracker(TrackingConfig(tracking="online"), tmp_path, "train", {})
    for step in range(3):
        tracker.log({"loss": 1.0}, step)
    tracker.finish({})
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_sweep_has_named_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_wandb(monkeypatch)
    monkeypatch.setenv("WANDB_SWEEP_ID", "s")
    Tracker(TrackingConfig(tracking="online"), tmp_path, "train", {})
    assert not {"id", "project", "entity", "resume"} & calls[0][1].keys()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_offline_run_of_the_real_client(tmp_path: Path) -> None:
    settings = ["method=single", "retriever=bm25", "data.limit=3", "index.embedder.model=hash"]
    places = [f"index.root={tmp_path}", f"run.root={tmp_path}", "run.name=r", "run.tracking=offline"]
    command = [sys.executable, "inference/evaluate.py", "configs/evaluate/sample.yaml", *settings, *places]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "r" / "metrics.json").read_text())["questions"] == 3
    assert list((tmp_path / "r" / "wandb").glob("offline-run-*/run-*.wandb"))
