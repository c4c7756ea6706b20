"""The training loop: one process on a CPU or many on a cluster, resumed exactly after a kill."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from gnnrag.errors import ArtefactError, ConfigError, GnnragError
from gnnrag.run.tracking import Tracker
from gnnrag.training.config import FitConfig, check_fit
from gnnrag.training.rundir import TrainingRun

Rows = dict[str, dict[str, float]]


class Task(Protocol):
    """Training task; `metric` names the validation metric that decides which weights are kept, larger is better."""

    metric: str

    def batch(self, step: int) -> Sequence[Any]:
        """Return the items of a step, the same in every process: a pure function of the step."""
        ...

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return one loss for each item. Shape (len(items),)."""
        ...

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Return the metrics of each validation question of `part` (every n-th of them), by id."""
        ...

    def save(self, model: nn.Module, folder: Any, record: Mapping[str, Any]) -> None:
        """Write a checkpoint with its model card."""
        ...


@dataclass
class Progress:
    """Progress of a training; saved with every state."""

    step: int = 0
    best: float = -math.inf
    best_step: int = 0
    stale: int = 0  # evaluations since the best one
    seconds: float = 0.0
    loss: float = 0.0  # summed since the last log
    clipped: int = 0  # steps since the last log whose gradient was cut
    metrics: dict[str, float] = field(default_factory=dict)  # of the last evaluation
    kept_metrics: dict[str, float] = field(default_factory=dict)  # of the weights that are kept
    is_done: bool = False


class Trainer:
    """Runs a task to its end, or until `stop`, asked before each step, is true: then it saves the state.

    The items of a step depend on the step alone and are dealt out to the processes in turn, and losses are summed and
    divided by the global batch: any number of processes computes the same update. `model` is changed in place;
    `summarise` makes the validation metrics of those of all questions. Raises ConfigError: settings out of range.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        config: FitConfig,
        run: TrainingRun,
        accelerator: Accelerator,
        tracker: Tracker | None = None,
        stop: Callable[[], bool] = lambda: False,
        summarise: Callable[[Rows], dict[str, float]] | None = None,
    ) -> None:
        check_fit(config, accelerator.num_processes)
        self.task, self.config, self.run, self.accelerator = task, config, run, accelerator
        self.tracker, self._stop, self._summarise = tracker, stop, summarise or means
        self.progress = Progress()
        optimizer = torch.optim.AdamW(groups_of(model), lr=config.lr, weight_decay=config.weight_decay)
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.bare = accelerator.unwrap_model(self.model)
        # The mean changes with every step, so that it lies with the weights; copies only to be put back lie aside.
        self.mean = copied(self.bare, accelerator.device) if config.average else {}
        self.kept = copied(self.bare)
        self._resume()

    def fit(self) -> Progress:
        """Train. Afterwards the model holds the weights that are kept, unless it was stopped before the end."""
        state, config = self.progress, self.config
        started = time.perf_counter() - state.seconds
        while state.step < config.steps and not state.is_done:
            if self._must_stop():
                self._save()
                self.run.draw()
                return state
            self._update(state.step)
            state.step += 1
            state.seconds = time.perf_counter() - started
            is_last = state.step == config.steps
            if state.step % config.log_every == 0 or is_last:
                self._log_loss()
            if state.step % config.eval_every == 0 or is_last:
                self._evaluate()
                state.is_done = is_last or (config.patience is not None and state.stale >= config.patience)
                self._save()
            elif state.step % config.save_every == 0:
                self._save()
        put(self.bare, self.kept)
        self.run.draw()
        return state

    def _must_stop(self) -> bool:
        """Ask all processes, so that all stop at the same step."""
        mine = torch.tensor(float(self._stop()), device=self.accelerator.device)
        return bool(self.accelerator.reduce(mine, "sum") > 0) if self.accelerator.num_processes > 1 else bool(mine)

    def _update(self, step: int) -> None:
        config, accelerator = self.config, self.accelerator
        items = self.task.batch(step)
        if len(items) != config.batch_size:
            raise GnnragError(f"step {step}: the task gave {len(items)} items, not fit.batch_size={config.batch_size}")
        mine = items[accelerator.process_index :: accelerator.num_processes]
        size = config.micro_batch or len(mine)
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, step) * group["scale"]
        total = torch.zeros((), device=accelerator.device)
        starts = range(0, len(mine), size)
        for start in starts:
            is_last = start == starts[-1]
            with nullcontext() if is_last else accelerator.no_sync(self.model), accelerator.autocast():
                rows = self.task.loss(self.model, mine[start : start + size], accelerator.device)
                # Processes average their gradients; that mean is to be the sum over all items by their number.
                loss = rows.sum() * accelerator.num_processes / config.batch_size
            accelerator.backward(loss)
            total += loss.detach() / accelerator.num_processes
        total = accelerator.reduce(total, "sum")
        if not torch.isfinite(total):
            raise GnnragError(f"step {step}: the loss is {float(total)}; lower fit.lr={config.lr:g} or set fit.clip")
        if config.clip is not None:
            norm = accelerator.clip_grad_norm_(self.model.parameters(), config.clip)
            self.progress.clipped += int(norm is not None and float(norm) > config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.loss += float(total)
        for name, value in learned(self.bare).items() if self.mean else ():
            # The mean over few steps would remember the random start: its memory grows with the steps.
            decay = min(config.average, (1 + step) / (10 + step))
            self.mean[name].lerp_(value, 1 - decay) if value.is_floating_point() else self.mean[name].copy_(value)

    def _log_loss(self) -> None:
        state, config = self.progress, self.config
        steps = state.step % config.log_every or config.log_every
        row = {
            "train/loss": state.loss / steps,
            "train/lr": learning_rate(config, state.step - 1),
            "train/clipped": state.clipped / steps,
        }
        state.loss, state.clipped = 0.0, 0
        self._log(row)

    def _evaluate(self) -> None:
        state = self.progress
        own = copied(self.bare) if self.mean else {}
        if own:
            put(self.bare, self.mean)
        self.model.eval()
        part = slice(self.accelerator.process_index, None, self.accelerator.num_processes)
        with torch.inference_mode():
            found = self.task.evaluate(self.bare, part, self.accelerator.device)
        every = [found] if self.accelerator.num_processes == 1 else gather_object([found])
        state.metrics = self._summarise({id_: row for rows in every for id_, row in rows.items()})
        if state.metrics and self.task.metric not in state.metrics:
            known = ", ".join(sorted(state.metrics))
            raise ConfigError(f"metric={self.task.metric!r} is not measured; there are: {known}")
        value = state.metrics.get(self.task.metric, -math.inf)
        is_better = value > state.best
        state.stale = 0 if is_better else state.stale + 1
        if is_better:
            state.best, state.best_step = value, state.step
        elif not state.metrics:  # nothing validates: there is nothing to be patient about
            state.stale, state.best_step = 0, state.step
        if is_better or self.config.keep == "last" or not state.metrics:  # where nothing validates, the last weights
            self.kept, state.kept_metrics = copied(self.bare), dict(state.metrics)
            record = {"step": state.step, "validation": dict(state.metrics)}
            self.run.save_folder("best", lambda folder: self.task.save(self.bare, folder, record))
        if own:
            put(self.bare, own)
        self._log({f"validation/{name}": v for name, v in state.metrics.items()})

    def _log(self, values: Mapping[str, float]) -> None:
        if self.accelerator.is_main_process:
            self.run.log({"step": self.progress.step, **values, "seconds": round(self.progress.seconds, 2)})
            if self.tracker:
                self.tracker.log(values, self.progress.step)

    def _save(self) -> None:
        scaler = self.accelerator.scaler  # of float16, whose steps depend on its scale
        rng = gather_object([torch.get_rng_state()]) if self.accelerator.num_processes > 1 else [torch.get_rng_state()]
        self.run.save_state(
            {
                "progress": vars(self.progress),
                "model": learned(self.bare),
                "optimizer": self.optimizer.state_dict(),
                "scaler": scaler.state_dict() if scaler is not None else None,
                "mean": self.mean,
                "kept": self.kept,
                "rng": rng,
            }
        )

    def _resume(self) -> None:
        state = agreed_state(self.run, self.accelerator)
        if state is None:
            return self.run.cut(-1)
        try:
            self._take(state)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            problem = f"the saved state is of another training ({str(error)[:99]!r}); run.fresh=true starts it over"
            raise ArtefactError(f"{self.run.path}: {problem}") from error
        self.run.cut(self.progress.step)

    def _take(self, state: Mapping[str, Any]) -> None:
        self.progress = Progress(**state["progress"])
        put(self.bare, state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.accelerator.scaler is not None and state.get("scaler"):
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.mean = {name: value.to(self.accelerator.device) for name, value in state["mean"].items()}
        self.kept = state["kept"]
        if self.accelerator.process_index < len(state["rng"]):
            torch.set_rng_state(state["rng"][self.accelerator.process_index])


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    """Return the parameters that train; a model with `parameter_groups()` says which have their own `scale` of lr."""
    own = getattr(model, "parameter_groups", None)
    groups = own() if own else [{"params": [p for p in model.parameters() if p.requires_grad]}]
    return [{"scale": 1.0, **group} for group in groups]


def learned(model: nn.Module) -> dict[str, Tensor]:
    """Return what training changes: trained parameters and buffers. A frozen base model is not saved with them."""
    frozen = {name for name, value in model.named_parameters(remove_duplicate=False) if not value.requires_grad}
    return {name: value for name, value in model.state_dict().items() if name not in frozen}


def copied(model: nn.Module, device: str | torch.device = "cpu") -> dict[str, Tensor]:
    """Return a copy of what training changes, by default aside: a GPU's memory is for what it computes with."""
    return {name: value.detach().to(device, copy=True) for name, value in learned(model).items()}


def put(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put back what `learned` or `copied` returned. Raises RuntimeError where the model is another."""
    found = model.load_state_dict(weights, strict=False)
    missing = set(found.missing_keys) & set(learned(model))
    if missing or found.unexpected_keys:
        raise RuntimeError(f"weights of another model: {sorted(missing)[:3]} missing, {found.unexpected_keys[:3]} odd")


def learning_rate(config: FitConfig, step: int) -> float:
    """Return the rate of a step (from 0): a linear rise, then constant or falling to 0."""
    if step < config.warmup:
        return config.lr * (step + 1) / (config.warmup + 1)
    done = (step - config.warmup) / max(config.steps - config.warmup, 1)
    if config.schedule == "linear":
        return config.lr * (1 - done)
    return config.lr * (1 + math.cos(math.pi * done)) / 2 if config.schedule == "cosine" else config.lr


def means(rows: Rows) -> dict[str, float]:
    """Return the mean of each metric over the questions that have it, summed in the order of their ids."""
    columns: dict[str, list[float]] = {}
    for id_ in sorted(rows):
        for name, value in rows[id_].items():
            columns.setdefault(name, []).append(value)
    return {name: math.fsum(values) / len(values) for name, values in columns.items()}


def agreed_state(run: TrainingRun, accelerator: Accelerator) -> dict[str, Any] | None:
    """Return the saved state or None. Raises ArtefactError: damaged; GnnragError: processes found different ones."""
    problem, state = "", None
    try:
        state = run.load_state()
    except ArtefactError as error:
        problem = str(error)
    progress = dict(state["progress"]) if state else {}
    # Each learns what the others found (nodes may have disks of their own): from other steps they would wait for hours.
    # The seconds that were counted tell two states of one step apart.
    mine = (problem or (f"step {progress.get('step')}" if state else "no state"), progress.get("seconds"))
    every = gather_object([mine]) if accelerator.num_processes > 1 else [mine]
    if problem:
        raise ArtefactError(problem)
    if len(set(every)) > 1:
        found = "; ".join(f"process {rank}: {what}" for rank, (what, _) in enumerate(every))
        raise GnnragError(
            f"training run {run.path}: processes would go on from different states ({found}). Put run.root on a disk "
            "that all nodes share, or copy the first node's run folder to the others, or set run.fresh=true everywhere"
        )
    return state
