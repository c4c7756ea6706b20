"""One training, whatever is trained: run directory, tracking, trainer, report, checkpoint."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from gnnrag.cluster.stopping import STOPPED
from gnnrag.cluster.tracking import flattened, open_tracker, send_checkpoint
from gnnrag.common.files import write_json, write_jsonl
from gnnrag.config import read_yaml
from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.metrics.statistics import bootstrap_interval, with_interval
from gnnrag.registry import resolve
from gnnrag.run.rundir import commit
from gnnrag.run.trained import seen_hash, seen_in, write_seen
from gnnrag.training.calibration import pooled_metrics
from gnnrag.training.config import FitConfig, TrainingRunConfig
from gnnrag.training.loop import Task, Trainer
from gnnrag.training.rundir import TrainingRun

Report = list[dict[str, Any]]
PRIVATE = ("chances", "is_right", "probabilities", "truths")  # what a threshold was learned from: not for the report


@dataclass
class Surroundings:
    """What a training is told of where it runs.

    Attributes:
        accelerator: devices and processes.
        stop: asked before each step; true saves the state and ends.
        on_note: told what a person should know.
        command: the command line, for the model card.
    """

    accelerator: Accelerator
    stop: Callable[[], bool] = lambda: False
    on_note: Callable[[str], None] = lambda note: None
    command: str = ""


class Plan(ABC):
    """What a kind of training brings along.

    Attributes:
        settings: resolved settings as plain data, the fold among them.
        inputs: fingerprints of what it reads.
        parts: ids of the questions that train, validate and report, by set: written into the run.
        fit: optimiser and length.
        run: the run's settings.
        fold: the fold reported on, None for none.
    """

    settings: Mapping[str, Any]
    inputs: Mapping[str, Any]
    parts: Mapping[str, Any]
    fit: FitConfig
    run: TrainingRunConfig
    fold: int | None

    @property
    def indexes(self) -> Sequence[Index]:
        """Indexes that it reads: what W&B shows a checkpoint to be made from."""
        return ()

    @property
    def seen(self) -> frozenset[str]:
        """Hashes of the questions that shape the weights; written beside them."""
        return seen_in(self.parts)

    @abstractmethod
    def build(self) -> tuple[Task, nn.Module]:
        """Return the task and its network."""

    @abstractmethod
    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """Return a row (`set`, `id`, `metrics`) for each question reported on, and facts for the checkpoint's record.

        Called in every process once the kept weights are in place; every process must return all rows.
        """

    def exports(self, trainer: Trainer, record: Mapping[str, Any]) -> Mapping[str, Callable[[Path], None]]:
        """Return what writes further folders of the run beside `best`, by their names.

        Args:
            trainer: with the kept weights in place.
            record: of the checkpoint, its report among it.
        """
        return {}


def train(path: Path, plan: Plan, around: Surroundings) -> Report | None:
    """Train, report, and save the checkpoint `best`.

    Returns:
        One row for each question reported on; None where the training was stopped before its end.
    """
    accelerator = around.accelerator
    _refuse_seen(plan)
    run = _open_run(path, plan, accelerator)
    run.on_row = lambda row: around.on_note(f"{path}, {told(row, plan.fit.steps)}")
    run.write("folds.json", dict(plan.parts))
    tracker = open_tracker(path, plan, commit(), around.on_note) if accelerator.is_main_process else None
    code = 1
    try:
        task, model = plan.build()
        trainer = Trainer(task, model, plan.fit, run, accelerator, tracker, around.stop)
        if trainer.progress.step == 0:
            for row in getattr(task, "prepared", ()):
                run.log(row)
        state = trainer.fit()
        if not state.is_done:
            code = STOPPED
            return None
        rows, facts = plan.report(trainer)
        rows = [{**row, "fold": plan.fold} for row in rows]
        metrics = write_report(path, rows, {}) if accelerator.is_main_process else {}
        step = state.best_step if plan.fit.keep == "best" else state.step
        record = {"step": step, "validation": state.kept_metrics, **facts, "report": metrics}

        def save(write: Callable[[Path], None], folder: Path) -> None:
            write(folder)
            write_seen(folder, plan.seen)

        folders = {**plan.exports(trainer, record), "best": lambda folder: task.save(trainer.bare, folder, record)}
        for name, write in folders.items():
            run.save_folder(name, partial(save, write))
        if tracker:
            send_checkpoint(tracker, path, plan, metrics, state.step, around.on_note)
            best = {"best": state.best} if math.isfinite(state.best) else {}
            tracker.finish({"best_step": state.best_step, **best, **flattened(metrics)})
        return rows
    finally:
        if tracker:
            tracker.finish(code=code)  # stopped or failed: the session ends too, and is taken up under its id
        run.close()


def _refuse_seen(plan: Plan) -> None:
    """Raise ConfigError where a question to report on shaped the checkpoint that training starts from, or this one."""
    seen = plan.seen
    for name, part in plan.parts.items():
        shaped = [id_ for id_ in part.get("report", ()) if seen_hash(id_) in seen]
        if shaped:
            raise ConfigError(
                f"set {name}: {len(shaped)} questions to report on, such as {shaped[0]!r}, trained or validated the "
                "checkpoint that `start` names, or do so under another set; start from one with the same folds and "
                "folds.report, or give folds.report=null"
            )


def told(row: Mapping[str, Any], steps: int) -> str:
    """Return a row of metrics as a person reads it."""
    shown = {name.rpartition("/")[2]: value for name, value in row.items() if name not in ("step", "seconds")}
    values = ", ".join(f"{name} {value:.3g}" for name, value in shown.items())
    return f"step {row['step']} of {steps}, {row['seconds']:.0f} s: {values}"


def gathered(accelerator: Accelerator, rows: Report) -> Report:
    """Return the rows of all processes, in the order of sets and ids."""
    rows = rows if accelerator.num_processes == 1 else gather_object(rows)
    return sorted(rows, key=lambda row: (row["set"], row["id"]))


def write_report(path: Path, rows: Report, more: Mapping[str, Any]) -> dict[str, Any]:
    """Write `report.jsonl` and `metrics.json`: means and 95% intervals of each set and each number of hops.

    A metric that some questions lack (AUC without a gold passage) is the mean over those that have it. What only all
    pairs of questions together tell, such as their calibration, has no interval.
    """
    groups: dict[str, Report] = {}
    for row in rows:
        names = [row["set"]] + ([f"{row['set']}/{row['hops']}-hop"] if row.get("hops") else [])
        for name in names:
            groups.setdefault(name, []).append(row)
    write_jsonl(path / "report.jsonl", [{k: v for k, v in row.items() if k not in PRIVATE} for row in rows])
    metrics: dict[str, Any] = dict(more)
    for name, group in sorted(groups.items()):
        mine: list[dict[str, float]] = [row["metrics"] for row in group]
        metrics[name] = {"questions": len(mine), **pooled_metrics(group)}
        for key in dict.fromkeys(key for row in mine for key in row):
            found = bootstrap_interval(np.array([row[key] for row in mine if key in row]))
            metrics[name] |= {key: found.mean, f"{key}_ci": [found.low, found.high]}
    write_json(path / "metrics.json", metrics)
    return metrics


def score_rows(record: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the rows of a model card's evaluation table from a checkpoint's record."""
    scores = [{"set": "all", "part": "validation", "metric": k, "value": v} for k, v in record["validation"].items()]
    for name, row in record.get("report", {}).items():
        for key, value in row.items():
            if f"{key}_ci" in row:
                shown = with_interval(value, row[f"{key}_ci"])
                scores.append({"set": name, "part": "report", "metric": key, "value": shown, "n": row["questions"]})
    return tuple(scores)


def _open_run(path: Path, plan: Plan, accelerator: Accelerator) -> TrainingRun:
    """Open the run in the first process, then in the others."""
    settings, fresh = plan.settings, plan.run.fresh
    run = TrainingRun(path, settings, plan.inputs, fresh) if accelerator.is_main_process else None
    accelerator.wait_for_everyone()
    return run or TrainingRun(path, settings, plan.inputs, is_main=False)


OnIndex = Callable[[str, int, int], None]
Opener = Callable[[Any, Surroundings, OnIndex], Callable[[int | None], Plan]]


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes:
        schema: dataclass of all its settings, with the sections `folds`, `fit` and `run`, and `kind` and `cross`.
        open: checks settings, opens data and indexes (told of progress), and returns what makes the plan of a fold.
        columns: metrics of the final table.
        prefix: of the names of runs.
    """

    schema: type
    open: Opener
    columns: tuple[str, ...]
    prefix: str


def chosen_kind(kinds: Mapping[str, str], default: str, source: str | None, overrides: Sequence[str]) -> Kind:
    """Return the kind that the settings ask for; its settings can only be read once it is known.

    Args:
        kinds: name of a kind to where it is, as in `gnnrag.registry`.
        default: kind of a config that names none.
        source: the config file.
        overrides: `key=value` strings.

    Raises:
        ConfigError: an unknown kind, or no such file.
    """
    name = str(read_yaml(source, "configs/train/verifier.yaml").get("kind") or default) if source else default
    for item in overrides:
        key, _, value = item.partition("=")
        name = value if key == "kind" else name
    found: Kind = resolve("kind", name, dict(kinds))
    return found


SETTLED_S = 0.2


def leave(accelerator: Accelerator) -> None:
    """End the process group, once all processes are here; nothing may be exchanged afterwards.

    Threads of gloo let go of the tensors of an exchange after it has ended, and take Python's lock for it. An
    interpreter that ends in that moment kills them, and with them its process: SIGABRT after a training that went well,
    one in ten with torch 2.13.
    """
    if accelerator.num_processes > 1:
        accelerator.wait_for_everyone()
        time.sleep(SETTLED_S)  # without Python's lock, which they wait for
    accelerator.end_training()
