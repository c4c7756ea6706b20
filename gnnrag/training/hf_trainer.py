"""What trainings by a Trainer of transformers (TRL, sentence-transformers) share: the run's record, and its states."""

from __future__ import annotations

import json
import time
import zipfile
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback

from gnnrag.io import read_json
from gnnrag.training.base import RunContext
from gnnrag.training.loop import CHECKPOINTS, FITTED, TrainingRun
from gnnrag.training.report import progress_line
from gnnrag.training.row_sets import RowsTraining

# Ends of the names of a Trainer's figures that are not shown.
IGNORED = ("runtime", "_per_second", "total_flos", "epoch", "num_tokens", "train_loss", "grad_norm")


@dataclass
class Fitted:
    """The result of a training; its weights are in the folder `best` of the run."""

    kept_step: int
    kept_metrics: dict[str, float]  # of validation
    facts: dict[str, Any] = field(default_factory=dict)  # for the model card


class RunCallback(TrainerCallback):
    """Writes a trainer's figures into the run; where one process is asked to stop, all of them save and stop."""

    def __init__(self, run: TrainingRun, context: RunContext) -> None:
        self.run, self.context = run, context
        self.is_stopped, self.start = False, time.perf_counter()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.run.forget_after(state.global_step)
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
            if isinstance(value, int | float) and not name.endswith(IGNORED)
        }
        if row:
            self.run.log({"step": state.global_step, "seconds": time.perf_counter() - self.start, **row})


class LibraryTraining(RowsTraining):
    """Training by a Trainer of transformers; `trainer` makes it, and `keep` writes what it has learned."""

    @abstractmethod
    def trainer(self, folder: Path, callback: RunCallback) -> Any:
        """Return the trainer, whose checkpoints go into a folder. Raises DataError where nothing can be learned."""

    @abstractmethod
    def keep(self, trainer: Any, fitted: Fitted, folder: Path) -> None:
        """Write the kept weights of a trainer into a folder."""

    def fit(self, run: TrainingRun) -> Fitted | None:
        """Train from the newest whole checkpoint, and write `best` and `fitted.json`; None where it was stopped.

        Where the training had ended before, its `fitted.json` is returned.
        """
        self.best = run.path / "best"
        if (run.path / FITTED).is_file() and self.best.is_dir():
            return Fitted(**read_json(run.path / FITTED))
        callback = RunCallback(run, self.context)
        trainer = self.trainer(run.path / CHECKPOINTS, callback)
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=newest_checkpoint(run.path / CHECKPOINTS))
        if callback.is_stopped:
            return None
        state = trainer.state
        step = (trainer.args.load_best_model_at_end and state.best_global_step) or state.global_step
        metrics = {
            name[5:]: value
            for row in state.log_history
            if row["step"] == step
            for name, value in row.items()
            if name.startswith("eval_") and not name.endswith(IGNORED)
        }
        fitted = Fitted(step, metrics)
        run.save_folder("best", partial(self.keep, trainer, fitted))
        run.write(FITTED, asdict(fitted))
        self.context.accelerator.wait_for_everyone()
        return fitted


def callbacks_of(callback: RunCallback, patience: int | None, validation: Sequence[Any]) -> list[Any]:
    """Return a run's callback, and one that stops after `patience` evaluations without a better one."""
    return [callback, *([EarlyStoppingCallback(patience)] if patience and validation else [])]


def common_arguments(folder: Path, seed: int, metric: str | None) -> dict[str, Any]:
    """Return the Trainer's arguments that are the same whatever is trained; `metric` None: there is no validation."""
    has_gpu = torch.cuda.is_available()
    validated = {"eval_strategy": "steps", "load_best_model_at_end": True, "metric_for_best_model": metric}
    return {
        "output_dir": str(folder),
        "seed": seed,
        "save_total_limit": 2,
        "use_cpu": not has_gpu,
        "dataloader_pin_memory": has_gpu,
        "disable_tqdm": True,
        "report_to": "none",  # `TrainingRun` passes its rows to the tracker
        "restore_callback_states_from_checkpoint": True,  # such as how much patience is left
        **(validated if metric else {}),
    }


def newest_checkpoint(folder: Path) -> str | None:
    """Return the newest whole checkpoint; an incomplete one lacks its state, which is written last."""
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
