"""Training of a language model for a role: checkpoints (adapters, merged models), and the plan of a fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from gnnrag.common.files import copy_file, file_digest, read_json, remove, write_atomic
from gnnrag.config import to_plain
from gnnrag.errors import DataError
from gnnrag.gnn.sampling import Draws
from gnnrag.llm.hf_model import load_model
from gnnrag.roles.tuned.checkpoint import RECORD, TunedRecord, tuned_folder, write_tuned
from gnnrag.run.rundir import commit
from gnnrag.run.trained import read_seen
from gnnrag.training.base import Kind, OnIndex, Plan, Report, Surroundings, gathered, score_rows
from gnnrag.training.config import Parts
from gnnrag.training.gnn import sizes
from gnnrag.training.language.data import (
    AnyRow,
    RoleRows,
    TrainLanguageConfig,
    check_language,
    encoded,
    limited,
    read_role,
)
from gnnrag.training.language.losses import LanguageTask, PreferenceTask, SupervisedTask, make_pairs, with_reference
from gnnrag.training.language.model import LanguageModel, open_language_model
from gnnrag.training.language.validation import Gains, Judge, default_metric, limits_of, open_gain
from gnnrag.training.loop import Task, Trainer
from gnnrag.training.report import Card

TITLES = {"verifier": "Verifier", "thoughts": "Thought generator"}
SUMMARY = (
    "A language model fine-tuned for one role of gnnrag: {role}. Use it with `roles.{role}=tuned "
    "roles.{role}.path=THIS_FOLDER`. It answers the prompt `{prompt}` of gnnrag, and no other."
)


@dataclass
class Saver:
    """Writes checkpoints of a training.

    Attributes:
        config: its settings.
        data: its rows.
        parts: which questions train, validate and report.
        model: what trains.
        command: the command line, for the card.
    """

    config: TrainLanguageConfig
    data: RoleRows
    parts: Mapping[str, Parts]
    model: LanguageModel
    command: str = ""

    def __call__(self, network: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, tokenizer, record and card. Once the report is in, the form is that of `run.export`."""
        is_last = "report" in record
        if is_last and self.config.run.export == "merged":
            self.merged(network, folder, record)
            return
        self._weights(network, folder)
        self._describe(folder, record, self.form)

    @property
    def form(self) -> str:
        """What a checkpoint holds: `adapter` or `full`."""
        return "full" if self.config.model.train == "full" else "adapter"

    def merged(self, network: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write a model of its own: the base, loaded anew in its precision, with the adapter added to its weights.

        The network that trains stays as it is.
        """
        if self.form == "full":
            self._weights(network, folder)
        else:
            adapter = folder / "adapter"  # of no use once it is in the weights
            adapter.mkdir()
            self._weights(network, adapter)
            dtype = "float32" if self.config.model.dtype == "auto" else self.config.model.dtype
            whole, _ = load_model(self.model.files.base, self.config.kind, adapter, "cpu", self._dtype(dtype))
            remove(adapter, folder)
            self._whole(whole, folder)
        self._describe(folder, record, "merged")

    def _dtype(self, default: str) -> str:
        """Return the precision that the base was saved in."""
        found = read_json(self.model.files.base / "config.json")
        name = str(found.get("dtype") or found.get("torch_dtype") or default)
        return name if name in ("float32", "bfloat16", "float16") else default

    def _weights(self, network: Any, folder: Path) -> None:
        if self.form == "full":
            self._whole(network, folder)
            return
        settings = network.peft_config["default"]
        settings.base_model_name_or_path = self.model.base["name"]
        network.save_pretrained(folder, safe_serialization=True, save_embedding_layers=False)
        self.model.tokenizer.save_pretrained(folder)

    def _whole(self, network: Any, folder: Path) -> None:
        """Write all weights, with what the base says of generation: in training, sampling settings are left out."""
        network.save_pretrained(folder, safe_serialization=True)
        self.model.tokenizer.save_pretrained(folder)
        own = self.model.files.base / "generation_config.json"
        if own.is_file():
            copy_file(own, folder / own.name)

    def _describe(self, folder: Path, record: Mapping[str, Any], form: str) -> None:
        config, prompt, role = self.config, self.data.prompt, self.data.role
        prompted = {**self.data.settings, "max_tokens": config.judging.tokens}
        if config.data.prompt:  # a file of one's own comes along, so that the folder is complete
            own = Path(config.data.prompt)
            prompted["prompt"] = own.name
            if own.suffix in (".yaml", ".yml"):
                copy_file(own, folder / own.name)
        settings = {
            "form": form,
            "chat": config.model.chat,
            "template_options": dict(config.model.template_options),
            # An encoder with relative positions reads more than its tokenizer says, and has been trained to.
            "context": config.model.context if config.kind == "seq2seq" else None,
            "prompted": prompted,
        }
        facts = {
            **record,
            "prompts": {prompt.name: prompt.digest},
            "rows": self.data.digests,
            "dropped": dict(self.data.dropped),
            "stage": config.stage,
            "training": to_plain(config),
            "commit": commit(),
        }
        card = self._card(record, form)
        write_atomic(folder / "README.md", card.render())
        write_tuned(folder, TunedRecord(role, config.kind, self.model.base, settings, facts))

    def _card(self, record: Mapping[str, Any], form: str) -> Card:
        config, role = self.config, self.data.role
        teachers = sorted({row.teacher for row in self.data.rows if row.teacher})
        facts = {
            "base": Path(self.model.base["name"]).name if form == "adapter" else self.model.files.name,
            "form": form,
            "stage": config.stage,
            "teacher": ", ".join(teachers) or "not stated",
            "prompt": f"{self.data.prompt.name}, digest {self.data.prompt.digest[:12]}",
            "trained parameters": sum(p.numel() for p in self.model.network.parameters() if p.requires_grad),
            "steps": record["step"],
            "commit": commit(),
        }
        facts |= {"made by": f"`{self.command}`"} if self.command else {}
        rows = [
            {**row, "licence": config.corpora[row["set"]].licence if row["set"] in config.corpora else ""}
            for row in sizes(self.parts)
        ]
        dropped = tuple(f"Rows left out, {reason}: {count}" for reason, count in sorted(self.data.dropped.items()))
        notes = (*config.run.notes, *dropped)
        summary = SUMMARY.format(role=role, prompt=self.data.prompt.name)
        return Card(TITLES[role], summary, facts, tuple(rows), score_rows(record), notes, config.run.licence)


COLUMNS = {
    "verifier": ("precision", "recall", "f1", "parse_failure", "likelihood"),
    "thoughts": ("gain", "found", "complete", "agrees", "parse_failure", "likelihood"),
}


@dataclass
class LanguagePlan(Plan):
    """Training of a language model on the rows of the questions outside of a fold; see `Plan`.

    Args:
        config: settings.
        data: the rows of the role.
        gains: what measures thoughts, or None.
        fold: the one reported on.
        around: processes, and the command for the card.
    """

    config: TrainLanguageConfig
    data: RoleRows
    gains: Gains | None
    fold: int | None
    around: Surroundings

    def __post_init__(self) -> None:
        """Divide the questions."""
        config = self.config
        self.fit, self.run = config.fit, config.run
        self._parts = self.data.split(config, self.fold)
        self.settings = {**to_plain(config), "role": self.data.role, "fold": self.fold}
        self.parts = {name: one.plain() for name, one in self._parts.items()}
        self.inputs = {"rows": self.data.digests, "prompt": self.data.prompt.digest}
        if self.gains:
            self.inputs["corpora"] = {name: one.inputs for name, one in self.gains.corpora.items()}
        if config.start:
            self.inputs["start"] = file_digest(tuned_folder(config.start) / RECORD)

    @property
    def seen(self) -> frozenset[str]:
        """See `Plan`; the checkpoint that it starts from has seen questions, too."""
        start = read_seen(tuned_folder(self.config.start)) if self.config.start else None
        return super().seen | (start or frozenset())

    def rows(self, part: str) -> list[AnyRow]:
        """Return the rows of a part."""
        return self.data.of(self._parts, part)

    def build(self) -> tuple[Task, nn.Module]:
        """See `Plan`."""
        config, data = self.config, self.data
        device = self.around.accelerator.device
        model = open_language_model(config, data.role, device)
        judge = Judge(data.role, data.prompt_name, model, config.judging, self.gains)
        saver = Saver(config, data, self._parts, model, self.around.command)
        data.dropped.clear()
        validation = [r for r in limited(self.rows("validation"), config.judging.rows) if _is_measured(r, self.gains)]
        items = self._items(model)
        if data.dropped:
            dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(data.dropped.items()))
            self.around.on_note(f"training rows left out: {dropped}")
        by_set: dict[str, list[Any]] = {name: [] for name in self._parts}
        for item in items:
            by_set[item.row.set].append(item)
        counts = {name: len(mine) for name, mine in by_set.items()}
        draws = Draws(counts, config.fit.batch_size, config.fit.steps, config.seed)
        metric = config.judging.metric or default_metric(data.role, config.corpora)
        self._saver = saver
        rest = (model, by_set, draws, judge, validation, saver, metric, config.seed)
        if config.stage == "sft":
            self._task: LanguageTask = SupervisedTask(*rest)
        else:
            self._task = PreferenceTask(config.preference, self._pairs(model, validation), *rest)
        return self._task, model.network

    def _items(self, model: LanguageModel) -> Sequence[Any]:
        """Return what training draws from. Raises DataError where there is nothing."""
        rows, prompt, encoder = self.rows("train"), self.data.prompt_name, model.encoder
        note = partial(_count, self.data.dropped)
        is_sft = self.config.stage == "sft"
        found = encoded(rows, prompt, encoder, note) if is_sft else self._pairs(model, rows, note)
        if not found:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.data.dropped.items())
            raise DataError(", ".join(self.config.data.rows), f"nothing to train on among {len(rows)} rows ({reasons})")
        return found

    def _pairs(
        self, model: LanguageModel, rows: Sequence[AnyRow], note: Callable[[str], None] = lambda _: None
    ) -> list[Any]:
        """Return the pairs of rows with what the reference says of them."""
        config = self.config
        pairs = make_pairs(rows, self.data.prompt_name, model.encoder, config.preference, note)
        inputs = {"base": model.base, "start": self.inputs.get("start"), "precision": config.fit.precision}
        inputs |= {"dtype": config.model.dtype, "device": self.around.accelerator.device.type}
        limits = replace(limits_of(config.judging), rows=config.fit.micro_batch or config.judging.batch)
        return with_reference(
            pairs, model, config.preference, Path(config.cache), inputs, self.around.accelerator, limits
        )

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """See `Plan`."""
        accelerator = trainer.accelerator
        rows = [row for row in self.rows("report") if _is_measured(row, self.gains)]
        mine = rows[accelerator.process_index :: accelerator.num_processes]
        found = self._task.judge.measure(mine, accelerator.device)
        report = [
            {"set": row.set, "id": row.id, "question_id": row.question_id, "metrics": found[row.id]} for row in mine
        ]
        return gathered(accelerator, report), {}

    def exports(self, trainer: Trainer, record: Mapping[str, Any]) -> Mapping[str, Callable[[Path], None]]:
        """See `Plan`; the merged model, where both forms are asked for."""
        if self.config.run.export != "both":
            return {}
        return {"merged": partial(self._saver.merged, trainer.bare, record=record)}


def _is_measured(row: AnyRow, gains: Gains | None) -> bool:
    """Whether something can be said of a reply to a row: the teacher's is known, or what queries bring."""
    return bool(row.messages) or (gains is not None and row.set in gains.corpora)


def _count(counter: Counter[str], reason: str) -> None:
    counter[reason] += 1


def open_language(
    role: str, config: TrainLanguageConfig, around: Surroundings, on_index: OnIndex
) -> Callable[[int | None], Plan]:
    """Return what makes the plan of a fold; see `gnnrag.training.base.Kind`.

    Raises:
        ConfigError: settings out of range. DataError: rows that cannot be read.
    """
    check_language(config, role)
    data = read_role(role, config.data.rows, config.data.prompt or "")
    corpora: Mapping[str, Any] = config.corpora if role == "thoughts" else {}
    gains = Gains({name: open_gain(name, one, on_index) for name, one in corpora.items()}) if corpora else None
    return lambda fold: LanguagePlan(config, replace(data, dropped=Counter()), gains, fold, around)


def _kind(role: str, kind: str) -> Kind:
    return Kind(TrainLanguageConfig, partial(open_language, role), COLUMNS[role], f"{role}-{kind}")


THOUGHTS_CAUSAL, THOUGHTS_SEQ2SEQ = _kind("thoughts", "causal"), _kind("thoughts", "seq2seq")
VERIFIER_CAUSAL, VERIFIER_SEQ2SEQ = _kind("verifier", "causal"), _kind("verifier", "seq2seq")
