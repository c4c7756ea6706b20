"""The training loop, and the directory of a run: settings, metrics, states to resume from, checkpoints.

One process on a CPU or many on a cluster; a killed run resumes from its last saved state.
"""

from __future__ import annotations

import logging
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import yaml  # type: ignore[import-untyped]
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from gnnrag import __version__
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.io import Journal, read_journal, remove, write_atomic, write_folder, write_json, write_jsonl
from gnnrag.run.rundir import check_same, code_version, lock_run
from gnnrag.run.tracking import Tracker
from gnnrag.training.config import FitConfig
from gnnrag.training.report import means

STATE, BEFORE = "state.pt", "state.before.pt"
CHECKPOINTS = "checkpoints"  # of a trainer of transformers, which keeps its own states
FITTED = "fitted.json"  # its result, once it has ended
TRAINED = (STATE, BEFORE, CHECKPOINTS, FITTED, "best")  # a run with any of these has trained
logger = logging.getLogger(__name__)
Rows = dict[str, dict[str, float]]


class Task(Protocol):
    """A training task; `metric` names the validation metric that chooses the weights to keep (larger is better)."""

    metric: str

    def batch(self, step: int) -> Sequence[Any]:
        """Return the items of a step, the same in every process: a pure function of the step."""
        ...

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return one loss for each item. Shape (len(items),)."""
        ...

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Return the metrics by question id for the validation questions in `part`, this process's share."""
        ...

    def save(self, model: nn.Module, folder: Any, record: Mapping[str, Any]) -> None: ...


class TrainingRun:
    """One training on disk: `config.yaml`, `meta.json`, `folds.json`, `metrics.jsonl`, `best/`, ...

    Only the first process writes; the others read (`is_main=False`). Raises ConfigError where the run has other
    settings or inputs, GnnragError while another process writes it.
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any],
        inputs: Mapping[str, Any],
        fresh: bool = False,
        is_main: bool = True,
    ) -> None:
        self.path, self.is_main = Path(path), is_main
        self.on_row: Callable[[Mapping[str, Any]], None] = lambda row: None  # called with each row of metrics
        self.tracker: Tracker | None = None  # gets these rows, too
        self._rows: Journal | None = None
        self._lock = ExitStack()
        if not is_main:
            return
        self._lock = lock_run(self.path)
        if fresh:
            remove(self.path)
        meta = {"settings": {k: v for k, v in config.items() if k != "run"}, "inputs": dict(inputs)}
        check_same(self.path, meta["settings"], inputs, TRAINED)
        write_atomic(self.path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
        versions = {"gnnrag": __version__, "python": platform.python_version(), "torch": torch.__version__}
        write_json(self.path / "meta.json", {**meta, "commit": code_version(), "versions": versions})
        self._rows = Journal(self.path / "metrics.jsonl")

    def log(self, row: Mapping[str, Any]) -> None:
        if self._rows is not None:
            self._rows.append(dict(row))
            self.on_row(row)
            if self.tracker:
                self.tracker.log({k: v for k, v in row.items() if k not in ("step", "seconds")}, row["step"])

    def forget_after(self, step: int) -> None:
        """Remove the metrics of later steps, which a resumed run repeats."""
        if self._rows is not None:
            self._rows.close()
            rows = read_journal(self.path / "metrics.jsonl")
            write_jsonl(self.path / "metrics.jsonl", [row for row in rows if row["step"] <= step])
            self._rows = Journal(self.path / "metrics.jsonl")

    def write(self, name: str, data: Any) -> None:
        if self.is_main:
            write_json(self.path / name, data)

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Save what training resumes from; the state before is kept beside it."""
        if self.is_main:
            if (self.path / STATE).exists():
                (self.path / STATE).replace(self.path / BEFORE)
            write_atomic(self.path / STATE, lambda out: torch.save(dict(state), out))

    def load_state(self) -> dict[str, Any] | None:
        """Return the newest state that can be read; None where there is none."""
        for path in (self.path / STATE, self.path / BEFORE):
            if path.exists():
                try:
                    return torch.load(path, map_location="cpu", weights_only=True)
                except Exception as error:  # noqa: BLE001 - the reader raises several unrelated types
                    logger.warning("%s cannot be read (%s); an earlier state is taken, if there is one", path, error)
        return None

    def save_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Write a folder of the run; one that was there is replaced when the new one is whole."""
        if self.is_main:
            write_folder(self.path / name, write)

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
        self._lock.close()


@dataclass
class TrainingState:
    step: int = 0
    best: float = -math.inf
    best_step: int = 0
    stale: int = 0  # evaluations since the best one
    seconds: float = 0.0
    loss: float = 0.0  # summed since the last log
    metrics: dict[str, float] = field(default_factory=dict)  # of the last evaluation
    kept_metrics: dict[str, float] = field(default_factory=dict)  # of the weights that `kept` holds
    is_done: bool = False


class Trainer:
    """Trains a network, in place, until the last step, or until `stop` is true in any process; then it saves its state.

    `stop` is called before each step. The items of a step depend on its number alone, and are dealt out to the
    processes in turn. The loss of a step is the sum over its items, divided by `batch_size`. `summarise` turns the
    metrics of all validation questions into those of the validation.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        config: FitConfig,
        run: TrainingRun,
        accelerator: Accelerator,
        stop: Callable[[], bool] = lambda: False,
        summarise: Callable[[Rows], dict[str, float]] = lambda rows: means(rows.values()),
    ) -> None:
        self.task, self.config, self.run, self.accelerator = task, config, run, accelerator
        self._stop, self._summarise = stop, summarise
        self.state = TrainingState()
        optimizer = torch.optim.AdamW(groups_of(model), lr=config.lr, weight_decay=config.weight_decay)
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.bare = accelerator.unwrap_model(self.model)
        # The mean is updated at every step, so it is on the model's device; `kept` is only restored: main memory.
        self.mean = copied(self.bare, accelerator.device) if config.average else {}
        self.kept = copied(self.bare)
        self._resume()

    def fit(self) -> TrainingState:
        """Train. Afterwards the model holds the weights in `kept`, unless training was stopped before the end."""
        state, config = self.state, self.config
        started = time.perf_counter() - state.seconds
        while state.step < config.steps and not state.is_done:
            if self._must_stop():
                self._save()
                return state
            self._update(state.step)
            state.step += 1
            state.seconds = time.perf_counter() - started
            is_last = state.step == config.steps
            if state.step % config.log_every == 0 or is_last:
                steps = state.step % config.log_every or config.log_every
                self._log({"train/loss": state.loss / steps, "train/lr": learning_rate(config, state.step - 1)})
                state.loss = 0.0
            if state.step % config.eval_every == 0 or is_last:
                self._evaluate()
                state.is_done = is_last or (config.patience is not None and state.stale >= config.patience)
                self._save()
            elif state.step % config.save_every == 0:
                self._save()
        self.bare.load_state_dict(self.kept, strict=False)
        return state

    @property
    def kept_step(self) -> int:
        return self.state.best_step if self.config.keep == "best" else self.state.step

    @property
    def kept_metrics(self) -> dict[str, float]:
        return self.state.kept_metrics

    def _must_stop(self) -> bool:
        """Call `stop` in all processes, and let all of them stop at the same step."""
        asked = torch.tensor(float(self._stop()), device=self.accelerator.device)
        return bool(self.accelerator.reduce(asked, "sum") > 0)  # type: ignore[operator]

    def _update(self, step: int) -> None:
        config, accelerator = self.config, self.accelerator
        items = self.task.batch(step)
        own = items[accelerator.process_index :: accelerator.num_processes]
        torch.manual_seed(step * accelerator.num_processes + accelerator.process_index)  # same dropout if resumed
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, step) * group["scale"]
        with accelerator.autocast():
            rows = self.task.loss(self.model, own, accelerator.device)
            # Gradients are averaged over processes; this scaling makes the average the mean over the whole batch.
            loss = rows.sum() * accelerator.num_processes / config.batch_size
        accelerator.backward(loss)
        total: Any = accelerator.reduce(loss.detach() / accelerator.num_processes, "sum")
        if not torch.isfinite(total):
            raise GnnragError(f"step {step}: the loss is {float(total)}; lower fit.lr={config.lr:g} or set fit.clip")
        if config.clip is not None:
            accelerator.clip_grad_norm_(self.model.parameters(), config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.state.loss += float(total)
        for name, value in trained_state(self.bare).items() if self.mean else ():
            # The decay rises with the steps: a high one would keep the initial weights in the mean for too long.
            decay = min(config.average, (1 + step) / (10 + step))
            self.mean[name].lerp_(value, 1 - decay) if value.is_floating_point() else self.mean[name].copy_(value)

    def _evaluate(self) -> None:
        state = self.state
        current = copied(self.bare) if self.mean else {}
        if current:
            self.bare.load_state_dict(self.mean, strict=False)
        self.model.eval()
        part = slice(self.accelerator.process_index, None, self.accelerator.num_processes)
        with torch.inference_mode():
            rows = self.task.evaluate(self.bare, part, self.accelerator.device)
        state.metrics = self._summarise(dict(gather_object(list(rows.items()))))
        if state.metrics and self.task.metric not in state.metrics:
            known = ", ".join(sorted(state.metrics))
            raise ConfigError(f"metric={self.task.metric!r} is not measured; there are: {known}")
        value = state.metrics.get(self.task.metric, -math.inf)
        is_better = value > state.best
        state.stale = 0 if is_better or not state.metrics else state.stale + 1
        if is_better:
            state.best = value
        if is_better or not state.metrics:  # without validation, the last weights are kept
            state.best_step = state.step
        if is_better or not state.metrics or self.config.keep == "last":
            self.kept, state.kept_metrics = copied(self.bare), dict(state.metrics)
            record = {"step": state.step, "validation": dict(state.metrics)}
            self.run.save_folder("best", lambda folder: self.task.save(self.bare, folder, record))
        if current:
            self.bare.load_state_dict(current, strict=False)
        self._log({f"validation/{name}": v for name, v in state.metrics.items()})

    def _log(self, values: Mapping[str, float]) -> None:
        self.run.log({"step": self.state.step, **values, "seconds": round(self.state.seconds, 2)})

    def _save(self) -> None:
        state = {
            "progress": vars(self.state),
            "model": trained_state(self.bare),
            "optimizer": self.optimizer.state_dict(),
        }
        self.run.save_state({**state, "mean": self.mean, "kept": self.kept})

    def _resume(self) -> None:
        state = self.run.load_state()
        if state is not None:
            self.state = TrainingState(**state["progress"])
            self.bare.load_state_dict(state["model"], strict=False)
            self.optimizer.load_state_dict(state["optimizer"])
            self.mean = {name: value.to(self.accelerator.device) for name, value in state["mean"].items()}
            self.kept = state["kept"]
        self.run.forget_after(self.state.step if state else -1)


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    """Return the parameters that train; `parameter_groups()` of a model may give some their own `scale` of lr."""
    own = getattr(model, "parameter_groups", None)
    groups = own() if own else [{"params": [p for p in model.parameters() if p.requires_grad]}]
    return [{"scale": 1.0, **group} for group in groups]


def trained_state(model: nn.Module) -> dict[str, Tensor]:
    """Return what training changes: the state of a model without its frozen parameters."""
    frozen = {name for name, value in model.named_parameters(remove_duplicate=False) if not value.requires_grad}
    return {name: value for name, value in model.state_dict().items() if name not in frozen}


def copied(model: nn.Module, device: str | torch.device = "cpu") -> dict[str, Tensor]:
    """Return a copy of `trained_state`, by default in main memory."""
    return {name: value.detach().to(device, copy=True) for name, value in trained_state(model).items()}


def learning_rate(config: FitConfig, step: int) -> float:
    """Return the learning rate of a step (from 0): a linear warm-up, then constant or falling towards 0."""
    if step < config.warmup:
        return config.lr * (step + 1) / (config.warmup + 1)
    done = (step - config.warmup) / max(config.steps - config.warmup, 1)
    if config.schedule == "linear":
        return config.lr * (1 - done)
    return config.lr * (1 + math.cos(math.pi * done)) / 2 if config.schedule == "cosine" else config.lr


def means_of_sets(rows: Rows) -> dict[str, float]:
    """Return the mean over sets of each set's means; ids are `SET/ID`. Sets count equally, whatever their size."""
    by_set: dict[str, Rows] = {}
    for id_, row in rows.items():
        by_set.setdefault(id_.partition("/")[0], {})[id_] = row
    return means(means(of_set.values()) for of_set in by_set.values())
