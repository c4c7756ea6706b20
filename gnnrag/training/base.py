"""One training, whatever is trained: data, trainer (transformers, TRL, sentence-transformers), report, checkpoint."""

from __future__ import annotations

import json
import math
import platform
import time
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from huggingface_hub import ModelCard, ModelCardData
from safetensors import SafetensorError, safe_open
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback

from gnnrag import __version__
from gnnrag.config import TrackingConfig, read_yaml, to_plain
from gnnrag.errors import ConfigError, nearest
from gnnrag.io import read_json, write_folder, write_json, write_jsonl
from gnnrag.methods.base import promote
from gnnrag.metrics.statistics import bootstrap_interval
from gnnrag.parts import from_settings
from gnnrag.roles.tuned.checkpoint import RECORD
from gnnrag.run.rundir import claimed, code_version, read_seen, seen_hash, seen_in, write_seen
from gnnrag.run.tracking import Tracker
from gnnrag.training.config import Parts, TrainConfig
from gnnrag.types import OnProgress

T = TypeVar("T")
CARD = Path(__file__).parent / "card.md.jinja"
CHECKPOINTS = "checkpoints"  # of the trainer
FITTED = "fitted.json"  # its result: the `step` whose weights are kept, and their metrics of `validation`
TRAINED = (CHECKPOINTS, FITTED, "best")  # a run with any of these has trained
# Ends of the names of a Trainer's figures that are not shown.
IGNORED = ("runtime", "_per_second", "total_flos", "epoch", "num_tokens", "train_loss", "grad_norm")
Report = list[dict[str, Any]]
Rows = dict[str, dict[str, float]]  # metrics by question
TOP = 5  # passages that recall, NDCG and MRR are taken of
PRIVATE = ("chances", "is_right")  # what a threshold was learned from: not for the report


@dataclass
class RunContext:
    """The processes of a training, and its callbacks."""

    accelerator: Accelerator  # devices and processes
    stop: Callable[[], bool] = lambda: False  # asked before each step; true saves the state and ends
    on_note: Callable[[str], None] = lambda note: None  # gets messages for the user
    command: str = ""  # the command line, for the model card

    @property
    def share(self) -> slice:
        """The slice of a list that this process works on."""
        return slice(self.accelerator.process_index, None, self.accelerator.num_processes)

    def gather(self, rows: Report) -> Report:
        """Return the rows of all processes, in the order of sets and ids."""
        return sorted(gather_object(rows), key=lambda row: (row["set"], row["id"]))


def shut_down(accelerator: Accelerator) -> None:
    """Shut the process group down once all processes are here; nothing may be exchanged afterwards."""
    # Gloo's threads free the tensors of a collective after it has ended, and need the GIL for it: an interpreter that
    # exits just then kills the process (SIGABRT, one in ten with torch 2.13).
    if accelerator.num_processes > 1:
        accelerator.wait_for_everyone()
        time.sleep(0.2)  # releases the GIL for them
    accelerator.end_training()


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
        step, figures = state.log_history[-1]["step"], figures_of(state.log_history[-1])
        if self.context.accelerator.is_main_process and figures:
            rows = [{"step": entry["step"], **figures_of(entry)} for entry in state.log_history if figures_of(entry)]
            write_jsonl(self.path / "metrics.jsonl", rows)  # anew, as a resumed training repeats some
            self.tracker.log(figures, step)
            values = ", ".join(f"{name.rpartition('/')[2]} {value:.3g}" for name, value in figures.items())
            self.context.on_note(f"{self.path}, step {step} of {state.max_steps}: {values}")


def figures_of(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of an entry of a Trainer's log that are shown, by our names."""
    return {
        f"validation/{name[5:]}" if name.startswith("eval_") else f"train/{name}": value
        for name, value in entry.items()
        if isinstance(value, int | float) and name != "step" and not name.endswith(IGNORED)
    }


def arguments(kind: type[T], folder: Path, config: TrainConfig, metric: str | None, own: Mapping[str, Any]) -> T:
    """Return a trainer's arguments, of the class `kind`: those of `config` over those of the training over ours.

    `metric` None: there is no validation. Raises ConfigError where the library refuses them.
    """
    has_gpu = torch.cuda.is_available()
    validated = {"eval_strategy": "steps", "load_best_model_at_end": True, "metric_for_best_model": metric}
    common = {
        "output_dir": str(folder),
        "seed": config.seed,
        "save_total_limit": 2,
        "use_cpu": not has_gpu,
        "dataloader_pin_memory": has_gpu,
        "disable_tqdm": True,
        "report_to": "none",  # `RunCallback` passes its rows to the tracker
        "restore_callback_states_from_checkpoint": True,  # such as how much patience is left
        **(validated if metric else {}),
    }
    try:
        return from_settings(kind, {**common, **own, **config.trainer}, "trainer")
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


class Training(ABC):
    """One training, which reports on the questions of `fold` (None: of none). Folds share `data`, as `open` made it."""

    schema: ClassVar[type[Any]]  # dataclass of all settings, a `TrainConfig`
    title: ClassVar[str]  # of the model card
    summary: ClassVar[str]  # the first paragraph of the card
    prefix: ClassVar[str]  # of the names of runs
    record: ClassVar[str] = RECORD  # file of the checkpoint's record, which has `facts`
    sets: Mapping[str, Any]  # what was opened, by name

    def __init__(self, config: Any, data: Any, fold: int | None, context: RunContext) -> None:
        self.config, self.sets, self.fold, self.context = config, data, fold, context
        self.run = config.run
        self.inputs: dict[str, Any] = {name: one.inputs for name, one in self.sets.items()}  # fingerprints
        self.settings = {**to_plain(config), "fold": fold}
        # Questions that train, validate and report, by set.
        self.parts: dict[str, Parts] = {name: one.divide(config.folds, fold) for name, one in self.sets.items()}

    @classmethod
    @abstractmethod
    def open(cls, config: Any, on_index: OnProgress) -> Any:
        """Check settings, open data and indexes; raises ConfigError and DataError."""

    @property
    def seen(self) -> frozenset[str]:
        """Hashes of all questions that shape the weights, by training or validation, here or before (`start`)."""
        start = getattr(self.config, "start", None)
        before = read_seen(Path(start)) if start else None
        return seen_in({name: parts.plain() for name, parts in self.parts.items()}) | (before or frozenset())

    def questions_of(self, part: str) -> list[tuple[str, str]]:
        """Return the questions of a part (`train`, `validation`, `report`), each as (set, id)."""
        return [(name, id_) for name, parts in self.parts.items() for id_ in getattr(parts, part)]

    @abstractmethod
    def trainer(self, folder: Path) -> Any:
        """Return the trainer, whose checkpoints go into a folder. Raises DataError where nothing can be learned."""

    @abstractmethod
    def keep(self, trainer: Any, folder: Path) -> None:
        """Write the kept weights of a trainer with their record."""

    def fit(self, callback: RunCallback) -> dict[str, Any] | None:
        """Train from the newest whole checkpoint, and write `best` and `fitted.json`; None where it was stopped.

        Where the training had ended before, its `fitted.json` is returned.
        """
        path = callback.path
        self.best = path / "best"
        if not ((path / FITTED).is_file() and self.best.is_dir()):
            trainer = self.trainer(path / CHECKPOINTS)
            trainer.remove_callback(PrinterCallback)
            trainer.add_callback(callback)
            if self.config.patience and trainer.args.metric_for_best_model:
                trainer.add_callback(EarlyStoppingCallback(self.config.patience))
            if newest := newest_checkpoint(path / CHECKPOINTS):
                self.context.on_note(f"{path} goes on from {Path(newest).name}")
            trainer.train(resume_from_checkpoint=newest)
            if callback.is_stopped:
                return None
            state = trainer.state
            best = trainer.args.load_best_model_at_end and state.best_model_checkpoint
            step = int(best.rpartition("-")[2]) if best else state.global_step
            figures = [each for row in state.log_history if row["step"] == step for each in figures_of(row).items()]
            metrics = {name[11:]: value for name, value in figures if name.startswith("validation/")}
            if self.context.accelerator.is_main_process:
                write_folder(self.best, partial(self.keep, trainer))
                write_json(path / FITTED, {"step": step, "validation": metrics})
            self.context.accelerator.wait_for_everyone()
        return read_json(path / FITTED)  # type: ignore[no-any-return]

    @abstractmethod
    def report(self) -> tuple[Report, dict[str, Any]]:
        """Measure the kept weights, as they are saved, on the questions to report on.

        Every process gets all rows, and facts for the record of the checkpoint.
        """

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write the facts of a training beside the kept weights, the questions that shaped them, and the card."""
        record = read_json(self.best / self.record)
        facts = record["facts"] | facts
        write_json(self.best / self.record, record | {"facts": facts})
        write_seen(self.best, self.seen)
        data, base = ModelCardData(library_name="gnnrag"), record.get("base") or record.get("encoder")
        card = ModelCard.from_template(data, str(CARD), training=self, record=facts, base=base)
        card.save(self.best / "README.md")


def chosen_training(kinds: Mapping[str, str], source: str | None, overrides: Sequence[str]) -> type[Training]:
    """Return the training that `kind` names (default: `kinds`' first). Raises ConfigError: unknown kind, or no file."""
    given = read_yaml(source, "those of configs/train") if source else {}
    given |= dict(item.partition("=")[::2] for item in overrides)
    name = str(given.get("kind") or next(iter(kinds)))
    if name not in kinds:
        raise ConfigError(f"kind={name!r} is unknown. {nearest(name, kinds)}")
    module, _, attribute = kinds[name].partition(":")
    return getattr(import_module(module), attribute)  # type: ignore[no-any-return]


def train(path: Path, training: Training) -> Report | None:
    """Train one fold, report, save `best`; returns a row for each question reported on, None where it was stopped.

    Only the first process writes. Raises ConfigError where the run in this folder has other settings or inputs, or a
    question to report on trains or validates, here or in the checkpoint that training starts from; GnnragError while
    another process writes the run.
    """
    seen = training.seen
    for name, parts in training.parts.items():
        if shaped := [id_ for id_ in parts.report if seen_hash(id_) in seen]:
            raise ConfigError(
                f"set {name}: {len(shaped)} questions to report on, such as {shaped[0]!r}, trained or validated the "
                "checkpoint of `start`, or train or validate in another set; start from a checkpoint with the same "
                "folds and folds.report, or give folds.report=null"
            )
    accelerator, settings, inputs = training.context.accelerator, training.settings, training.inputs
    is_main, commit = accelerator.is_main_process, code_version()
    with ExitStack() as ends:
        if is_main:
            known = {name: value for name, value in settings.items() if name != "run"}
            ends.enter_context(claimed(path, settings, known, inputs, training.run.fresh, TRAINED))
            versions = {"gnnrag": __version__, "python": platform.python_version(), "torch": torch.__version__}
            meta = {"settings": known, "inputs": dict(inputs), "commit": commit, "versions": versions}
            write_json(path / "meta.json", meta)
            write_json(path / "folds.json", {name: parts.plain() for name, parts in training.parts.items()})
        accelerator.wait_for_everyone()
        whole = path.parent if path.name.startswith("fold") else None
        tracked = training.run if is_main else TrackingConfig()
        tracker = Tracker(tracked, path, "train", {**settings, "commit": commit, "inputs": inputs}, whole)
        ends.callback(tracker.close)  # stopped or failed
        fitted = training.fit(RunCallback(path, training.context, tracker))
        if fitted is None:
            return None
        rows, facts = training.report()
        rows = [{**row, "fold": training.fold} for row in rows]
        if is_main:
            metrics = write_report(path, rows, {})
            made = {"inputs": inputs, "commit": commit, "seed": training.config.seed}
            training.finish({**fitted, **facts, "report": metrics, **made})
            tracker.finish({**fitted, **metrics})
        return rows


# ------------------------------------------------------------------------------------------------------------ reports
def promotion_metrics(labels: np.ndarray, places: Sequence[int], top_k: int = TOP) -> dict[str, float]:
    """Measure a selection from a pool, and the ranking in which what was selected comes first.

    `labels` (n,) bool tells which passages of the pool are right, `places` are the selected ones. `precision` is left
    out where nothing is selected; `recall`, `recall@k` and `pool_recall@k` (before the promotion) where none is right.
    """
    right = int(labels.sum())
    order = [int(i) for i in promote([str(i) for i in range(len(labels))], [str(i) for i in places])]
    hits = int(labels[list(places)].sum()) if places else 0
    out = {"selected": float(len(places))}
    if places:
        out["precision"] = hits / len(places)
    if right:
        out |= {f"recall@{top_k}": float(labels[order[:top_k]].sum()) / right, "recall": hits / right}
        out[f"pool_recall@{top_k}"] = float(labels[:top_k].sum()) / right
    return out


def by_question(rows: Report) -> Report:
    """Return a row for each question: the means of its rows' metrics, each over the rows that have it."""
    groups: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["id"]), []).append(row["metrics"])
    return [{"set": name, "id": id_, "metrics": means(metrics)} for (name, id_), metrics in groups.items()]


def means(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over the rows that have it."""
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return {name: math.fsum(values) / len(values) for name, values in columns.items()}


def write_report(path: Path, rows: Report, more: Mapping[str, Any]) -> dict[str, Any]:
    """Write `report.jsonl`, `metrics.json`: means and 95% intervals by set and hops, over questions with the metric."""
    groups: dict[str, Report] = {}
    for row in rows:
        for name in [row["set"]] + ([f"{row['set']}/{row['hops']}-hop"] if row.get("hops") else []):
            groups.setdefault(name, []).append(row)
    write_jsonl(path / "report.jsonl", [{k: v for k, v in row.items() if k not in PRIVATE} for row in rows])
    metrics: dict[str, Any] = dict(more)
    for name, group in sorted(groups.items()):
        measured: list[dict[str, float]] = [row["metrics"] for row in group]
        metrics[name] = {"questions": len(measured)}
        for key in dict.fromkeys(key for row in measured for key in row):
            interval = bootstrap_interval(np.array([row[key] for row in measured if key in row]))
            metrics[name] |= {key: interval.mean, f"{key}_ci": [interval.low, interval.high]}
    write_json(path / "metrics.json", metrics)
    return metrics
