"""One training, whatever is trained: data, trainer, report, checkpoint."""

from __future__ import annotations

import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from huggingface_hub import ModelCard, ModelCardData
from transformers import PrinterCallback

from gnnrag import __version__
from gnnrag.config import TrackingConfig, read_yaml, to_plain
from gnnrag.errors import ConfigError, nearest
from gnnrag.io import digest, read_json, write_folder, write_json
from gnnrag.roles.tuned.checkpoint import RECORD
from gnnrag.run.rundir import claimed, code_version, read_seen, seen_hash, seen_in, write_seen
from gnnrag.run.tracking import Tracker
from gnnrag.training.config import Parts, divide
from gnnrag.training.hf_trainer import CHECKPOINTS, FITTED, IGNORED, TRAINED, RunCallback, newest_checkpoint
from gnnrag.training.report import Report, write_report
from gnnrag.types import OnProgress

CARD = Path(__file__).parent / "card.md.jinja"


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


class Training(ABC):
    """One training, which reports on the questions of `fold` (None: of none). Folds share `data`, as `open` made it."""

    schema: ClassVar[type[Any]]  # dataclass of all settings, a `TrainConfig`
    title: ClassVar[str]  # of the model card
    summary: ClassVar[str]  # the first paragraph of the card
    prefix: ClassVar[str]  # of the names of runs
    record: ClassVar[str] = RECORD  # file of the checkpoint's record, which has `facts`
    settings: Mapping[str, Any]  # resolved, as plain data, the fold among them
    inputs: Mapping[str, Any]  # fingerprints of what is read
    sets: Mapping[str, Any]  # what was opened, by name

    def __init__(self, config: Any, data: Any, fold: int | None, context: RunContext) -> None:
        self.config, self.sets, self.fold, self.context = config, data, fold, context
        self.run = config.run
        self.inputs = {name: one.inputs for name, one in self.sets.items()}
        self.settings = {**to_plain(config), "fold": fold}
        self.parts = self.divide()  # questions that train, validate and report, by set

    # ------------------------------------------------------------------------------------------ settings and data
    @classmethod
    def run_name(cls, config: Any) -> str:
        kept = {key: value for key, value in to_plain(config).items() if key != "run"}
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

    def questions_of(self, part: str) -> list[tuple[str, str]]:
        """Return the questions of a part (`train`, `validation`, `report`), each as (set, id)."""
        return [(name, id_) for name, parts in self.parts.items() for id_ in getattr(parts, part)]

    # -------------------------------------------------------------------------------- training, report, checkpoint
    @abstractmethod
    def trainer(self, folder: Path, callback: RunCallback) -> Any:
        """Return the trainer, whose checkpoints go into a folder. Raises DataError where nothing can be learned."""

    @abstractmethod
    def keep(self, trainer: Any, folder: Path) -> dict[str, Any]:
        """Write the kept weights of a trainer with their record; returns what the card says of the network."""

    def fit(self, callback: RunCallback) -> dict[str, Any] | None:
        """Train from the newest whole checkpoint, and write `best` and `fitted.json`; None where it was stopped.

        Where the training had ended before, its `fitted.json` is returned.
        """
        path, accelerator = callback.path, self.context.accelerator
        self.best = path / "best"
        if (path / FITTED).is_file() and self.best.is_dir():
            return read_json(path / FITTED)  # type: ignore[no-any-return]
        trainer = self.trainer(path / CHECKPOINTS, callback)
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=newest_checkpoint(path / CHECKPOINTS))
        if callback.is_stopped:
            return None
        state = trainer.state
        best = trainer.args.load_best_model_at_end and state.best_model_checkpoint
        step = int(best.rpartition("-")[2]) if best else state.global_step
        metrics = {
            name[5:]: value
            for row in state.log_history
            if row["step"] == step
            for name, value in row.items()
            if name.startswith("eval_") and not name.endswith(IGNORED)
        }
        fitted: dict[str, Any] = {"step": step, "validation": metrics}
        if accelerator.is_main_process:
            write_json(path / FITTED, fitted | {"card": write_folder(self.best, partial(self.keep, trainer))})
        accelerator.wait_for_everyone()
        return read_json(path / FITTED)  # type: ignore[no-any-return]

    @abstractmethod
    def report(self) -> tuple[Report, dict[str, Any]]:
        """Measure the kept weights, as they are saved, on the questions to report on.

        Every process gets all rows, and facts for the record of the checkpoint.
        """

    def finish(self, card: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Write the facts of a training beside the kept weights, the questions that shaped them, and the card."""
        record = read_json(self.best / self.record)
        write_json(self.best / self.record, record | {"facts": record["facts"] | facts})
        write_seen(self.best, self.seen)
        made = {"made by": f"`{self.context.command}`"} if self.context.command else {}
        shown = {**card, "steps": facts["step"], "commit": code_version(), **made}
        own = {"title": self.title, "summary": self.summary, "notes": self.run.notes, "licence": self.run.licence}
        data = ModelCardData(library_name="gnnrag")
        sets = [
            {"set": name, **{part: len(ids) for part, ids in parts.plain().items()}, **self.facts_of(name)}
            for name, parts in self.parts.items()
        ]
        made_card = ModelCard.from_template(data, str(CARD), facts=shown, sets=sets, record=facts, **own)
        made_card.save(self.best / "README.md")

    def facts_of(self, name: str) -> dict[str, Any]:
        """Return what a model card says of a set beside its questions: how many passages, under which licence."""
        one = self.sets[name]
        return {"passages": len(one.data.passages), "licence": one.config.licence}


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
            metrics, card = write_report(path, rows, {}), fitted.pop("card")
            made = {"inputs": inputs, "commit": commit, "seed": training.config.seed}
            training.finish(card, {**fitted, **facts, "report": metrics, **made})
            tracker.finish({**fitted, **metrics})
        return rows
