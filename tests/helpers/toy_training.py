"""A training small enough for tests: fits a line, draws random numbers, and may be stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from gnnrag.training.config import FitConfig
from gnnrag.training.loop import Trainer, TrainingRun


class LineTask:
    """Fits y = 3x - 1 with noise drawn from the step; `die_at` kills the process in the middle of that step."""

    metric = "score"

    def __init__(self, die_at: int = -1) -> None:
        self.die_at = die_at

    def batch(self, step: int) -> list[tuple[float, float]]:
        if step == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.rand(8, generator=torch.Generator().manual_seed(step))
        return [(v, 3 * v - 1) for v in x.tolist()]

    def loss(self, model: nn.Module, items: Any, device: torch.device) -> torch.Tensor:
        x, y = torch.tensor(items, dtype=torch.float32, device=device).T
        return (model(x[:, None])[:, 0] - y) ** 2

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> dict[str, dict[str, float]]:
        grid = [i / 10 for i in range(10)][part]
        return {f"q{x}": {"score": -float((model(torch.tensor([[x]]))[0, 0] - 3 * x + 1).abs())} for x in grid}

    def save(self, model: nn.Module, folder: Path, record: Any) -> None:
        (folder / "model.json").write_text(json.dumps(record))


def make_model(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, 1))


def train(path: str | Path, config: FitConfig, die_at: int = -1, stop_at: int = -1, dropout: float = 0.1) -> Trainer:
    model, task = make_model(dropout), LineTask(die_at)
    accelerator = Accelerator(cpu=True)
    run = TrainingRun(path, {"fit": vars(config)}, {}, is_main=accelerator.is_main_process)
    accelerator.wait_for_everyone()
    trainer: Trainer
    trainer = Trainer(task, model, config, run, accelerator, stop=lambda: trainer.state.step == stop_at)
    trainer.fit()
    run.close()
    return trainer
