"""A training small enough for tests: fits a line, draws random numbers, and may be killed. Also run as a script."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from gnnrag.training.base import shut_down
from gnnrag.training.config import FitConfig
from gnnrag.training.loop import Trainer
from gnnrag.training.rundir import TrainingRun


class LineTask:
    """Fits y = 3x - 1 with noise drawn from the step; `die_at` kills the process in the middle of that step."""

    metric = "score"

    def __init__(self, die_at: int = -1, seen: list[list[float]] | None = None) -> None:
        self.die_at, self.seen = die_at, seen

    def batch(self, step: int) -> list[tuple[float, float]]:
        if step == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.rand(8, generator=torch.Generator().manual_seed(step))
        return [(v, 3 * v - 1) for v in x.tolist()]

    def loss(self, model: nn.Module, items: Any, device: torch.device) -> torch.Tensor:
        x, y = torch.tensor(items, dtype=torch.float32, device=device).T
        if self.seen is not None:
            self.seen.append(x.tolist())
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    settings = json.loads(sys.argv[2])
    place = sys.argv[1] + (f"-{os.environ['RANK']}" if settings.get("own_disks") else "")
    stops = settings.get("die_at", -1), settings.get("stop_at", -1)
    trained = train(place, FitConfig(**settings["fit"]), *stops, dropout=settings["dropout"])
    if trained.accelerator.is_main_process:
        weights = {name: value.tolist() for name, value in trained.bare.state_dict().items()}
        extra = {"processes": trained.accelerator.num_processes, "weights": weights}
        Path(place, "result.json").write_text(json.dumps(extra))
    shut_down(trained.accelerator)
