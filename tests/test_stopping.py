"""A scheduler's signals stop a run after the questions in flight, and the same command continues it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import StoppedError
from gnnrag.run.evaluate import Observer, evaluate
from gnnrag.run.rundir import SIGNALS, stop_flag

SETTINGS = ["method=single", "retriever=bm25", "index.embedder.model=hash", "data.limit=6", "concurrency=1"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_sets_the_flag_and_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_flag() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(1)
    assert signal.getsignal(number) == before


def test_an_evaluation_stops_and_the_same_call_continues_it(tmp_path: Path) -> None:
    places = [f"index.root={tmp_path}", f"run.root={tmp_path}", "run.name=r", "roles.reader=oracle"]
    config = load_config(EvaluateConfig, "configs/evaluate/sample.yaml", [*SETTINGS, *places])
    answered: list[str] = []

    def count(prediction: Any) -> None:
        answered.append(prediction.question_id)
        if len(answered) == 2:
            os.kill(os.getpid(), signal.SIGUSR1)

    with pytest.raises(StoppedError, match="4 questions left"):
        evaluate(config, replace(Observer(), on_question=count))
    assert len((tmp_path / "r" / "predictions.jsonl").read_text().splitlines()) == 2
    assert not (tmp_path / "r" / "metrics.json").exists()
    _, metrics = evaluate(config, replace(Observer(), on_question=count))
    assert metrics["questions"] == len(answered) == len(set(answered)) == 6
