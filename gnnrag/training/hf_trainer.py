"""What trainings by a Trainer of transformers (TRL, sentence-transformers) share: the run's record, and its states."""

from __future__ import annotations

import json
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import TrainerCallback

from gnnrag.training.base import RunContext
from gnnrag.training.report import progress_line
from gnnrag.training.rundir import TrainingRun

ASIDE = ("runtime", "_per_second", "total_flos", "epoch", "num_tokens", "train_loss", "grad_norm")  # no figures of ours


class RunCallback(TrainerCallback):
    """Writes a trainer's figures into the run, and lets all processes save and stop where one was asked to."""

    def __init__(self, run: TrainingRun, context: RunContext) -> None:
        self.run, self.context, self.is_stopped, self.start = run, context, False, time.perf_counter()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.run.cut(state.global_step)
        show = self.context.on_note
        self.run.on_row = lambda row: show(f"{self.run.path}, {progress_line(row, state.max_steps)}")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        asked = torch.tensor(float(self.context.stop()), device=args.device)
        if self.context.accelerator.reduce(asked, "sum") > 0:  # type: ignore[operator]
            control.should_save = control.should_training_stop = True
            self.is_stopped = state.global_step < state.max_steps

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        row = {
            f"validation/{name[5:]}" if name.startswith("eval_") else f"train/{name}": value
            for name, value in given["logs"].items()
            if isinstance(value, int | float) and not name.endswith(ASIDE)
        }
        if row:
            self.run.log({"step": state.global_step, "seconds": time.perf_counter() - self.start, **row})


def newest_checkpoint(folder: Path) -> str | None:
    """Return the newest whole checkpoint to go on from; half of one lacks the state, which is written last."""
    steps = {}
    for path in folder.glob("checkpoint-*/trainer_state.json"):
        with suppress(ValueError, SafetensorError):
            for weights in path.parent.glob("*.safetensors"):
                with safe_open(weights, "pt"):
                    pass
            state = json.loads(path.read_text())
            is_last = state["global_step"] >= state["max_steps"]  # transformers would do one step more
            if not is_last and all(map(zipfile.is_zipfile, path.parent.glob("*.pt*"))):
                steps[state["global_step"]] = str(path.parent)
    return steps[max(steps)] if steps else None
