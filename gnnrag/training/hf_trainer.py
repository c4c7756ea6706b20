"""What all trainers (transformers, TRL, sentence-transformers) share: runs, arguments, callbacks, checkpoints."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from transformers import EarlyStoppingCallback, TrainerCallback

from gnnrag.errors import ConfigError
from gnnrag.io import write_jsonl
from gnnrag.parts import from_settings
from gnnrag.run.tracking import Tracker

if TYPE_CHECKING:
    from gnnrag.training.base import RunContext

T = TypeVar("T")
CHECKPOINTS = "checkpoints"  # of the trainer
# Its result, once it has ended: the `step` whose weights are kept, their metrics of `validation`, and what the model
# card says of the network (`card`).
FITTED = "fitted.json"
TRAINED = (CHECKPOINTS, FITTED, "best")  # a run with any of these has trained
# Ends of the names of a Trainer's figures that are not shown.
IGNORED = ("runtime", "_per_second", "total_flos", "epoch", "num_tokens", "train_loss", "grad_norm")


class RunCallback(TrainerCallback):
    """Writes a trainer's figures into the run; where one process is asked to stop, all of them save and stop."""

    def __init__(self, path: Path, context: RunContext, tracker: Tracker) -> None:
        self.path, self.context, self.tracker = path, context, tracker
        self.is_stopped = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        asked = torch.tensor(float(self.context.stop()), device=args.device)
        if self.context.accelerator.reduce(asked, "sum") > 0:  # type: ignore[operator]
            control.should_save = control.should_training_stop = True
            self.is_stopped = state.global_step < state.max_steps

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step, figures = state.log_history[-1]["step"], shown(state.log_history[-1])
        if self.context.accelerator.is_main_process and figures:
            rows = [{"step": entry["step"], **shown(entry)} for entry in state.log_history if shown(entry)]
            write_jsonl(self.path / "metrics.jsonl", rows)  # anew, as a resumed training repeats some
            self.tracker.log(figures, step)
            values = ", ".join(f"{name.rpartition('/')[2]} {value:.3g}" for name, value in figures.items())
            self.context.on_note(f"{self.path}, step {step} of {state.max_steps}: {values}")


def shown(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of an entry of a Trainer's log that are shown, by our names."""
    return {
        f"validation/{name[5:]}" if name.startswith("eval_") else f"train/{name}": value
        for name, value in entry.items()
        if isinstance(value, int | float) and name != "step" and not name.endswith(IGNORED)
    }


def callbacks_of(callback: RunCallback, patience: int | None, is_validated: bool) -> list[Any]:
    """Return a run's callback, and one that stops after `patience` evaluations without a better one."""
    return [callback, *([EarlyStoppingCallback(patience)] if patience and is_validated else [])]


def arguments(
    kind: type[T], folder: Path, seed: int, metric: str | None, own: Mapping[str, Any], given: Mapping[str, Any]
) -> T:
    """Return a trainer's arguments, of the class `kind`: the user's (`given`) over those of the training over ours.

    `metric` None: there is no validation. Raises ConfigError where the library refuses them.
    """
    has_gpu = torch.cuda.is_available()
    validated = {"eval_strategy": "steps", "load_best_model_at_end": True, "metric_for_best_model": metric}
    common = {
        "output_dir": str(folder),
        "seed": seed,
        "save_total_limit": 2,
        "use_cpu": not has_gpu,
        "dataloader_pin_memory": has_gpu,
        "disable_tqdm": True,
        "report_to": "none",  # `RunCallback` passes its rows to the tracker
        "restore_callback_states_from_checkpoint": True,  # such as how much patience is left
        **(validated if metric else {}),
    }
    try:
        return from_settings(kind, {**common, **own, **given}, "trainer")
    except ValueError as error:
        raise ConfigError(f"trainer: {' '.join(str(error).split())[:300]}") from error


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
