"""Training of a language model for a role: rows, model, losses, validation, and its checkpoints and exports."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gnnrag.config import to_plain
from gnnrag.errors import DataError
from gnnrag.io import file_digest, read_json, remove
from gnnrag.llm.hf import load_model
from gnnrag.roles.tuned.checkpoint import RECORD, TunedRecord, tuned_folder, write_tuned
from gnnrag.run.rundir import code_version, read_seen
from gnnrag.training.base import RunContext, Training
from gnnrag.training.config import Parts
from gnnrag.training.language.data import (
    AnyRow,
    RoleRows,
    TrainLanguageConfig,
    check_language,
    encoded,
    limited,
    read_role,
)
from gnnrag.training.language.losses import (
    make_pairs,
    open_language_model,
    preference_losses,
    preference_metrics,
    supervised_losses,
    with_reference,
)
from gnnrag.training.language.policy import drawn, policy_losses, rewarded
from gnnrag.training.language.validation import (
    CorpusGain,
    TrainingBackend,
    Validator,
    default_metric,
    limits_of,
    open_gain,
)
from gnnrag.training.loop import Rows, Trainer
from gnnrag.training.report import Card, Report
from gnnrag.types import OnProgress

TITLES = {"verifier": "Verifier", "thoughts": "Thought generator", "reader": "Reader"}
SUMMARY = (
    "A language model fine-tuned for one role of gnnrag: {role}. Use it with `roles.{role}=tuned "
    "roles.{role}.path=THIS_FOLDER`. It answers the prompt `{prompt}` of gnnrag, and no other."
)


class LanguageTraining(Training):
    """Training of a language model on a role's rows: supervised, by preferences (stage `dpo`) or rewards (`grpo`).

    Its data are the rows, and what measures thoughts by set. Also the loop's task.
    """

    role: ClassVar[str]
    schema = TrainLanguageConfig
    config: TrainLanguageConfig

    def __init__(self, config: TrainLanguageConfig, data: Any, fold: int | None, context: RunContext) -> None:
        self.rows: RoleRows = replace(data[0], dropped=Counter())
        self.corpora: Mapping[str, CorpusGain] = data[1]
        super().__init__(config, data, fold, context)
        self.metric = config.judging.metric or default_metric(self.role, config.corpora)
        self.settings = {**to_plain(config), "role": self.role, "fold": fold}
        inputs: dict[str, Any] = {"rows": self.rows.digests, "prompt": self.rows.prompt.digest}
        if self.corpora:
            inputs["corpora"] = {name: one.inputs for name, one in self.corpora.items()}
        if config.start:
            inputs["start"] = file_digest(tuned_folder(config.start) / RECORD)
        self.inputs = inputs
        self._step = 0

    @classmethod
    def open(cls, config: TrainLanguageConfig, context: RunContext, on_index: OnProgress) -> Any:
        """Read the rows, and open what measures thoughts."""
        check_language(config, cls.role)
        rows = read_role(cls.role, config.data.rows, config.data.prompt or "")
        corpora = config.corpora if cls.role == "thoughts" else {}
        return rows, {name: open_gain(name, one, on_index) for name, one in corpora.items()}

    def divide(self) -> dict[str, Parts]:
        """Divide the questions by folds, or as the rows say."""
        return self.rows.split(self.config, self.fold)

    @property
    def seen(self) -> frozenset[str]:
        """Those of the checkpoint that it starts from, too."""
        start = read_seen(tuned_folder(self.config.start)) if self.config.start else None
        return super().seen | (start or frozenset())

    def shares(self) -> dict[str, float]:
        """All sets alike."""
        return {}

    # --------------------------------------------------------------------------------------------- model and batches
    def build(self) -> tuple[LanguageTraining, nn.Module]:
        """Load the model, and encode what training draws from. Raises DataError where there is nothing."""
        config, rows = self.config, self.rows
        self.model = open_language_model(config, self.role, self.context.accelerator.device)
        self.validator = Validator(self.role, rows.prompt_name, self.model, config.judging, self.corpora)
        rows.dropped.clear()
        validation = limited(rows.of(self.parts, "validation"), config.judging.rows)
        self.validation = [row for row in validation if self._is_measured(row)]
        items = self._items()
        if rows.dropped:
            dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(rows.dropped.items()))
            self.context.on_note(f"training rows left out: {dropped}")
        self.items: dict[str, list[Any]] = {name: [] for name in self.parts}
        for item in items:
            self.items[item.row.set].append(item)
        self.places = self.draws(self.items)
        self.pairs = self._pairs(self.validation) if config.stage == "dpo" else []
        return self, self.model.network

    def _is_measured(self, row: AnyRow) -> bool:
        """Whether something can be said of a reply: the teacher's is known, or what queries bring."""
        return bool(row.messages) or row.set in self.corpora

    def _items(self) -> Sequence[Any]:
        rows, dropped = self.rows.of(self.parts, "train"), self.rows.dropped
        if self.config.stage == "dpo":
            items: Sequence[Any] = self._pairs(rows, partial(_count, dropped))
        elif self.config.stage == "grpo":
            tokens, note = self.config.judging.tokens, partial(_count, dropped)
            items = rewarded(rows, self.rows.prompt_name, self.model.encoder, self.corpora, tokens, note)
        else:
            items = encoded(rows, self.rows.prompt_name, self.model.encoder, partial(_count, dropped))
        if not items:
            reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
            raise DataError(", ".join(self.config.data.rows), f"nothing to train on among {len(rows)} rows ({reasons})")
        return items

    def _pairs(self, rows: Sequence[AnyRow], note: Callable[[str], None] = lambda _: None) -> list[Any]:
        """Return the pairs of rows with what the reference says of them."""
        config, accelerator = self.config, self.context.accelerator
        pairs = make_pairs(rows, self.rows.prompt_name, self.model.encoder, config.preference, note)
        limits = replace(limits_of(config.judging), rows=config.fit.micro_batch or config.judging.batch)
        return with_reference(pairs, self.model, accelerator, limits)

    def batch(self, step: int) -> list[Any]:
        """Return the items of a step."""
        self._step = step
        return [self.items[name][place] for name, place in self.places[step]]

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return one loss for each item. Shape (len(items),)."""
        if self.config.stage == "grpo":
            policy, backend = self.config.policy, TrainingBackend(self.model, self.config.judging)
            place = [self.config.seed, self._step]
            groups = drawn(items, self.rows.prompt_name, backend, self.corpora, policy, place)
            return policy_losses(self.model, model, groups, policy, device)
        if self.config.stage == "dpo":
            return preference_losses(self.model, model, items, self.config.preference, device)
        return supervised_losses(self.model, model, items, device)

    # ------------------------------------------------------------------------------------------ validation and report
    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Return the metrics of each validation row of `part`, by id; of preferences also how often they are right."""
        rows = self.validation[part]
        metrics = self.validator.measure(rows, device)
        if self.config.stage == "dpo":
            ids, limits = {row.id for row in rows}, limits_of(self.config.judging)
            pairs = [pair for pair in self.pairs if pair.row.id in ids]
            for id_, more in preference_metrics(self.model, pairs, self.config.preference, device, limits).items():
                metrics[id_] |= more
        return metrics

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """Measure the rows of the fold, each process its share."""
        rows = [row for row in self.rows.of(self.parts, "report") if self._is_measured(row)][self.context.share]
        metrics = self.validator.measure(rows, self.context.accelerator.device)
        report = [
            {"set": row.set, "id": row.id, "question_id": row.question_id, "metrics": metrics[row.id]} for row in rows
        ]
        return self.context.gather(report), {}

    # ---------------------------------------------------------------------------------------- checkpoints and exports
    def save(self, network: Any, folder: Path, record: Mapping[str, Any]) -> None:
        """Write adapter, tokenizer, record and card."""
        self._adapter(network, folder)
        self._describe(folder, record, "adapter")

    def folders(self, fitted: Any, record: Mapping[str, Any]) -> Mapping[str, Callable[[Path], None]]:
        """Write the merged model, too, where both forms are asked for."""
        merged = {"merged": partial(self.merge, fitted.bare, record=record)}
        return {**(merged if self.config.run.export == "both" else {}), **super().folders(fitted, record)}

    def merge(self, network: Any, folder: Path, record: Mapping[str, Any]) -> None:
        """Write a model of its own: the base, loaded anew in its precision, with the adapter added to its weights."""
        base = self.model.files.base
        adapter = folder / "adapter"  # of no use once it is in the weights
        adapter.mkdir()
        self._adapter(network, adapter)
        settings = read_json(base / "config.json")
        dtype = str(settings.get("dtype") or settings.get("torch_dtype") or "float32")
        whole, _ = load_model(base, self.config.kind, adapter, "cpu", dtype)
        remove(adapter)
        whole.save_pretrained(folder, safe_serialization=True)
        self.model.tokenizer.save_pretrained(folder)
        # What the base says of generation: in training, sampling settings are left out.
        if (base / "generation_config.json").is_file():
            shutil.copyfile(base / "generation_config.json", folder / "generation_config.json")
        self._describe(folder, record, "merged")

    def _adapter(self, network: Any, folder: Path) -> None:
        network.peft_config["default"].base_model_name_or_path = self.model.base["name"]
        network.save_pretrained(folder, safe_serialization=True, save_embedding_layers=False)
        self.model.tokenizer.save_pretrained(folder)

    def _describe(self, folder: Path, record: Mapping[str, Any], form: str) -> None:
        config, prompt = self.config, self.rows.prompt
        prompted = {**self.rows.settings, "max_tokens": config.judging.tokens}
        if config.data.prompt:  # a file of one's own comes along, so that the folder is complete
            own = Path(config.data.prompt)
            prompted["prompt"] = own.name
            if own.suffix in (".yaml", ".yml"):
                shutil.copyfile(own, folder / own.name)
        settings = {
            "form": form,
            # An encoder with relative positions reads more than its tokenizer says, and has been trained to.
            "context": config.model.context if config.kind == "seq2seq" else None,
            "prompted": prompted,
        }
        facts = {
            **record,
            "prompts": {prompt.name: prompt.digest},
            "rows": self.rows.digests,
            "dropped": dict(self.rows.dropped),
            "stage": config.stage,
            "training": to_plain(config),
            "commit": code_version(),
        }
        self._card(folder, record, form)
        write_tuned(folder, TunedRecord(self.role, config.kind, self.model.base, settings, facts))

    def _card(self, folder: Path, record: Mapping[str, Any], form: str) -> None:
        config, prompt = self.config, self.rows.prompt
        teachers = sorted({row.teacher for row in self.rows.rows if row.teacher})
        facts = {
            "base": Path(self.model.base["name"]).name if form == "adapter" else self.model.files.name,
            "form": form,
            "stage": config.stage,
            "teacher": ", ".join(teachers) or "not stated",
            "prompt": f"{prompt.name}, digest {prompt.digest[:12]}",
            "trained parameters": sum(p.numel() for p in self.model.network.parameters() if p.requires_grad),
        }
        licences = {name: one.licence for name, one in config.corpora.items()}
        data = self.sizes(licence=lambda name: licences.get(name, ""))
        dropped = [f"Rows left out, {reason}: {count}" for reason, count in sorted(self.rows.dropped.items())]
        summary = SUMMARY.format(role=self.role, prompt=prompt.name)
        self.write_card(folder, Card(TITLES[self.role], summary, facts, data, notes=dropped), record)


def _count(counter: Counter[str], reason: str) -> None:
    counter[reason] += 1


class VerifierLanguageTraining(LanguageTraining):
    """A language model that reads the listwise prompt of the verifier."""

    role, prefix = "verifier", "verifier-causal"
    columns = ("precision", "recall", "f1", "parse_failure", "likelihood")


class ReaderLanguageTraining(LanguageTraining):
    """A causal language model that answers briefly, with the passages that it rests on."""

    role, prefix = "reader", "reader-causal"
    columns = ("em", "f1", "cited", "abstained", "parse_failure", "likelihood")


class ThoughtsCausalTraining(LanguageTraining):
    """A causal language model that writes the next queries."""

    role, prefix = "thoughts", "thoughts-causal"
    columns = ("gain", "found", "complete", "agrees", "parse_failure", "likelihood")


class ThoughtsSeq2SeqTraining(ThoughtsCausalTraining):
    """The same by a model with an encoder."""

    prefix = "thoughts-seq2seq"
