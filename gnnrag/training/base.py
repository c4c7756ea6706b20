"""One training, whatever is trained: data, network, loop, report, checkpoint."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from gnnrag.config import read_yaml, to_plain
from gnnrag.errors import ConfigError, DataError, nearest
from gnnrag.io import digest, write_atomic
from gnnrag.run.rundir import code_version, read_seen, seen_hash, seen_in, write_seen
from gnnrag.run.tracking import Tracker
from gnnrag.training.config import Parts, divide
from gnnrag.training.loop import Rows, Task, Trainer, TrainingRun
from gnnrag.training.report import Report, card_text, means, progress_line, write_report
from gnnrag.types import OnProgress

T = TypeVar("T")


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


class Draws:
    """The items of all batches.

    The probability of a set is proportional to the square root of its size, times its factor in `shares` (default 1).
    The items of a set are taken in a random order, and in a new one when all were taken. A batch depends on seed and
    step alone, so that it is the same after a resumption and in every process. With `together`, a batch is of one set.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        batch_size: int,
        steps: int,
        seed: int,
        shares: Mapping[str, float] | None = None,
        together: bool = False,
    ) -> None:
        self._names = [name for name, size in sizes.items() if size > 0]
        if not self._names:
            raise DataError("training data", f"there is nothing to train on in {', '.join(sizes) or 'no sets at all'}")
        weights = np.sqrt([sizes[name] for name in self._names]) * [(shares or {}).get(n, 1.0) for n in self._names]
        rng = np.random.default_rng(seed)
        shape = (steps, 1) if together else (steps, batch_size)
        chosen = np.broadcast_to(rng.choice(len(weights), size=shape, p=weights / weights.sum()), (steps, batch_size))
        self._chosen = chosen
        self._items = np.zeros(chosen.shape, dtype=np.int64)
        for number, name in enumerate(self._names):
            places = np.flatnonzero(chosen.ravel() == number)
            rounds = -(-len(places) // sizes[name])
            order = [np.random.default_rng([seed, number, i]).permutation(sizes[name]) for i in range(rounds)]
            self._items.reshape(-1)[places] = np.concatenate(order)[: len(places)] if order else 0

    def __getitem__(self, step: int) -> list[tuple[str, int]]:
        """Return the batch of a step: pairs of set and item."""
        rows = zip(self._chosen[step].tolist(), self._items[step].tolist(), strict=True)
        return [(self._names[number], item) for number, item in rows]


class Training(ABC):
    """One training, which reports on the questions of `fold` (None: of none). Folds share `data`, as `open` made it."""

    schema: ClassVar[type[Any]]  # dataclass of all settings, with the sections `folds`, `fit` and `run`
    title: ClassVar[str]  # of the model card
    summary: ClassVar[str]  # the first paragraph of the card
    # validation from the metrics of all questions
    summarise: Callable[[Rows], dict[str, float]] = staticmethod(lambda rows: means(rows.values()))
    prefix: ClassVar[str]  # of the names of runs
    settings: Mapping[str, Any]  # resolved, as plain data, the fold among them
    inputs: Mapping[str, Any]  # fingerprints of what is read
    sets: Mapping[str, Any]  # what was opened, by name

    def __init__(self, config: Any, data: Any, fold: int | None, context: RunContext) -> None:
        self.config, self.sets, self.fold, self.context = config, data, fold, context
        self.run, self.metric = config.run, str(getattr(config, "metric", ""))
        self.inputs = {name: one.inputs for name, one in self.sets.items()}
        self.settings = {**to_plain(config), "fold": fold}
        self.parts = self.divide()  # questions that train, validate and report, by set

    # ------------------------------------------------------------------------------------------ settings and data
    @classmethod
    def settle(cls, config: Any) -> Any:
        """Return the settings with all defaults written out, so that a checkpoint records what was used."""
        return config

    @classmethod
    def run_name(cls, config: Any) -> str:
        kept = {key: value for key, value in to_plain(config).items() if key not in ("run", "cache")}
        return f"{cls.prefix}-{digest(kept)[:8]}"

    @classmethod
    @abstractmethod
    def open(cls, config: Any, context: RunContext, on_index: OnProgress) -> Any:
        """Check settings, open data and indexes; raises ConfigError and DataError."""

    def divide(self) -> Mapping[str, Parts]:
        config, fold = self.config, self.fold
        return {name: divide(one.texts, config.folds, fold, one.config.use) for name, one in self.sets.items()}

    @property
    def seen(self) -> frozenset[str]:
        """Hashes of all questions that shape the weights, by training or validation; written beside the weights."""
        return seen_in({name: parts.plain() for name, parts in self.parts.items()}) | self.seen_before

    @property
    def seen_before(self) -> frozenset[str]:
        """Hashes of the questions that shaped the checkpoint that training starts from."""
        start = getattr(self.config, "start", None)
        return (read_seen(Path(start)) if start else None) or frozenset()

    def draws(self, items: Mapping[str, Sized], together: bool = False) -> Draws:
        config, counts = self.config, {name: len(rows) for name, rows in items.items()}
        return Draws(counts, config.fit.batch_size, config.fit.steps, config.seed, self.shares(), together)

    def shares(self) -> Mapping[str, float]:
        """Return a factor for the probability with which each set is drawn."""
        return {name: one.share for name, one in self.config.sets.items()}

    # ---------------------------------------------------------------------------------- network, report, checkpoint
    def build(self) -> tuple[Task, nn.Module]:
        """Return the task that the loop runs, which may be this object, and the network."""
        raise NotImplementedError

    def fit(self, run: TrainingRun) -> Any:
        """Train by the project's own loop, if not overridden. Returns None where the training was stopped.

        The result is given to `report` and `write`; its `kept_step` and `kept_metrics` belong to the weights kept.
        """
        fit, context = self.config.fit, self.context
        run.on_row = lambda row: context.on_note(f"{run.path}, {progress_line(row, fit.steps)}")
        task, model = self.build()
        trainer = Trainer(task, model, fit, run, context.accelerator, context.stop, self.summarise)
        return trainer if trainer.fit().is_done else None

    def save(self, model: Any, folder: Path, record: Mapping[str, Any]) -> None:
        """Write the trained weights of a role's network, with record and card."""
        from gnnrag.roles.tuned.checkpoint import save_trained, trained

        facts = {**record, "inputs": self.inputs, "commit": code_version(), "seed": self.config.seed}
        save_trained(folder, model, facts)
        count = sum(weights.numel() for weights in trained(model).values())
        known = {"encoder": getattr(model.config, "base", "none"), "trained parameters": count}
        self.write_card(folder, known | self.more_facts(), facts)

    def more_facts(self) -> dict[str, Any]:
        """Return what the card says of the network, apart from its size."""
        return {}

    def questions_of(self, part: str) -> list[tuple[str, str]]:
        """Return the questions of a part (`train`, `validation`, `report`), each as (set, id)."""
        return [(name, id_) for name, parts in self.parts.items() for id_ in getattr(parts, part)]

    def measure(self, model: Any, asked: Sequence[tuple[str, str]]) -> Report:
        """Return a row (`set`, `id`, `metrics`) for each of these questions."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Measure a share of the validation questions (`Task`)."""
        rows = self.measure(model.eval(), self.questions_of("validation")[part])
        return {f"{row['set']}/{row['id']}": row["metrics"] for row in rows}

    def report(self, fitted: Any) -> tuple[Report, dict[str, Any]]:
        """Measure the kept weights, rounded as they are saved, on the questions to report on.

        Every process gets all rows, and facts for the record of the checkpoint.
        """
        from gnnrag.roles.tuned.checkpoint import round_weights

        round_weights(fitted.bare.eval())
        return self.context.gather(self.measure(fitted.bare, self.questions_of("report")[self.context.share])), {}

    def write(self, fitted: Any, record: Mapping[str, Any], folder: Path) -> None:
        fitted.task.save(fitted.bare, folder, record)

    def sizes(self) -> list[dict[str, Any]]:
        """Return how many questions of each set are in each part, with its `facts_of`, for the card."""
        plain = {name: parts.plain() for name, parts in self.parts.items()}
        return [
            {"set": name, **{part: len(ids) for part, ids in parts.items()}, **self.facts_of(name)}
            for name, parts in plain.items()
        ]

    def facts_of(self, name: str) -> dict[str, Any]:
        """Return what a model card says of a set beside its questions: how many passages, under which licence."""
        one = self.sets[name]
        return {"passages": len(one.data.passages), "licence": one.config.licence}

    def write_card(
        self, folder: Path, facts: Mapping[str, Any], record: Mapping[str, Any], notes: Sequence[str] = ()
    ) -> None:
        """Write a model card: `facts` of the network with the command, the scores of the checkpoint's record, notes."""
        made = {"made by": f"`{self.context.command}`"} if self.context.command else {}
        facts = {**facts, "steps": record["step"], "commit": code_version(), **made}
        notes = [*notes, *self.run.notes]
        text = card_text(self.title, self.summary, facts, self.sizes(), record, notes, self.run.licence)
        write_atomic(folder / "README.md", text)


def chosen_training(kinds: Mapping[str, str], source: str | None, overrides: Sequence[str]) -> type[Training]:
    """Return the training that `kind` names (default: `kinds`' first). Raises ConfigError: unknown kind, or no file."""
    name = str(read_yaml(source, "those of configs/train").get("kind") or "") if source else ""
    for item in overrides:
        key, _, value = item.partition("=")
        name = value if key == "kind" else name
    name = name or next(iter(kinds))
    if name not in kinds:
        raise ConfigError(f"kind={name!r} is unknown. {nearest(name, kinds)}")
    module, _, attribute = kinds[name].partition(":")
    return getattr(import_module(module), attribute)  # type: ignore[no-any-return]


def train(path: Path, training: Training) -> Report | None:
    """Train one fold, report, save `best`; returns a row for each question reported on, None where it was stopped."""
    accelerator = training.context.accelerator
    _refuse_seen(training)
    run: Any = None
    if accelerator.is_main_process:
        run = TrainingRun(path, training.settings, training.inputs, training.run.fresh)
    accelerator.wait_for_everyone()
    run = run or TrainingRun(path, training.settings, training.inputs, is_main=False)
    run.write("folds.json", {name: parts.plain() for name, parts in training.parts.items()})
    shown = {**training.settings, "commit": code_version(), "inputs": training.inputs}
    whole = path.parent if path.name.startswith("fold") else None
    is_tracked = accelerator.is_main_process and training.run.tracking != "off"
    tracker = run.tracker = Tracker(training.run, path, "train", shown, whole) if is_tracked else None
    try:
        fitted = training.fit(run)
        if fitted is None:
            return None
        rows, facts = training.report(fitted)
        rows = [{**row, "fold": training.fold} for row in rows]
        metrics = write_report(path, rows, {}) if accelerator.is_main_process else {}
        record = {"step": fitted.kept_step, "validation": fitted.kept_metrics, **facts, "report": metrics}
        run.save_folder("best", partial(_save, training, fitted, record))
        if tracker:
            tracker.finish({"best_step": fitted.kept_step, "validation": fitted.kept_metrics, **metrics})
        return rows
    finally:
        if tracker:
            tracker.close()  # stopped or failed
        run.close()


def _save(training: Training, fitted: Any, record: Mapping[str, Any], folder: Path) -> None:
    training.write(fitted, record, folder)
    write_seen(folder, training.seen)


def _refuse_seen(training: Training) -> None:
    """Raise ConfigError if a question to report on trains or validates, here or in the checkpoint it starts from."""
    seen = training.seen
    for name, parts in training.parts.items():
        if shaped := [id_ for id_ in parts.report if seen_hash(id_) in seen]:
            raise ConfigError(
                f"set {name}: {len(shaped)} questions to report on, such as {shaped[0]!r}, trained or validated the "
                "checkpoint of `start`, or train or validate in another set; start from a checkpoint with the same "
                "folds and folds.report, or give folds.report=null"
            )
