"""Training of a language model for a role by TRL and peft: rows, model, trainer, report, adapter."""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch

from gnnrag.config import to_plain
from gnnrag.errors import ArtefactError, ConfigError, DataError
from gnnrag.io import file_digest
from gnnrag.llm.hf import load_model, put_on
from gnnrag.llm.local import find_model
from gnnrag.parts import build, from_settings
from gnnrag.prompts import load_prompt
from gnnrag.roles.tuned.checkpoint import RECORD, TunedRecord, read_tuned, tuned_folder, write_tuned
from gnnrag.session import Session
from gnnrag.training.base import Report, RunContext, arguments
from gnnrag.training.language_rows import (
    AnyRow,
    CorpusRetriever,
    Examples,
    TrainLanguageConfig,
    check_language,
    open_corpus,
    ranked_thoughts,
    reply_pairs,
    reply_scores,
    reward,
    shown,
    task_of,
)
from gnnrag.training.rows import ReaderRow, ThoughtsRow, VerifierRow
from gnnrag.training.sets import RowsTraining
from gnnrag.types import OnProgress

try:
    from datasets import Dataset
    from peft import LoraConfig
    from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
except ImportError as missing:
    raise ConfigError(f"language models are trained by TRL ({missing}): pip install 'gnnrag[language]'") from missing

SUMMARY = (
    "A language model fine-tuned for one role of gnnrag: {role}. Use it with `roles.{role}=tuned "
    "roles.{role}.path=THIS_FOLDER`. It answers the prompt `{prompt}` of gnnrag, and no other."
)
OPTIONS = {"reader": ("abstain",)}  # of prompts
METRICS = {"dpo": "rewards/accuracies", "grpo": "reward"}  # that decide which weights are kept; else the loss


TRAINERS: dict[str, tuple[Any, Any]] = {
    "sft": (SFTTrainer, SFTConfig),
    "dpo": (DPOTrainer, DPOConfig),
    "grpo": (GRPOTrainer, GRPOConfig),
}


class LanguageTraining(RowsTraining):
    """Training of a language model for a role: supervised (stage `sft`), by preferences (`dpo`) or rewards (`grpo`).

    Its data are the sets of rows, and by set the retriever that rates thoughts.
    """

    role: ClassVar[str]
    schema = TrainLanguageConfig
    config: TrainLanguageConfig

    def __init__(self, config: TrainLanguageConfig, data: Any, fold: int | None, context: RunContext) -> None:
        self.corpora: Mapping[str, CorpusRetriever] = data[1]
        super().__init__(config, data[0], fold, context)
        self.prompt = load_prompt(config.prompt or self.role, *OPTIONS.get(self.role, ()))
        self.summary = SUMMARY.format(role=self.role, prompt=self.prompt.name)  # type: ignore[misc]
        self.start = tuned_folder(config.start) if config.start else None
        self.before = read_tuned(self.start, self.role, (config.kind,)) if self.start else None
        corpora = {name: one.inputs for name, one in self.corpora.items()}
        start = file_digest(self.start / RECORD) if self.start else None
        self.inputs = {"rows": self.inputs, "prompt": self.prompt.digest, "corpora": corpora, "start": start}

    @classmethod
    def open(cls, config: TrainLanguageConfig, on_index: OnProgress) -> Any:
        check_language(config, cls.role)
        sets = super().open(config, on_index)
        corpora = config.corpora if cls.role == "thoughts" else {}
        return sets, {name: open_corpus(name, one, on_index) for name, one in corpora.items()}

    @cached_property
    def _base(self) -> tuple[Path, dict[str, Any]]:
        """The folder of the base, and what the record says of it."""
        start, record = self.config.start, self.before
        name = self.config.model.base or (str(record.base.get("name")) if record else "")
        files = find_model(name)
        weights = files.base_fingerprint
        if record and record.base.get("weights") != weights:
            raise ArtefactError(f"start={start!r} was trained on other weights than {str(files.base)!r} holds")
        return files.base, {"name": str(files.base) if Path(name).is_dir() else name, "weights": weights}

    def keep(self, trainer: Any, folder: Path) -> None:
        config, prompt, base = self.config, self.prompt, self._base[1]
        model = self.context.accelerator.unwrap_model(trainer.model)
        model.peft_config["default"].base_model_name_or_path = base["name"]
        model.save_pretrained(folder, selected_adapters=["default"], save_embedding_layers=False)
        self.chats.tokenizer.save_pretrained(folder)
        rows = [row for one in self.sets.values() for row in one.examples]
        prompted: dict[str, Any] = {"max_tokens": config.reply_tokens}
        prompted |= dict.fromkeys(OPTIONS.get(self.role, ()), True)
        if self.role == "verifier":  # is shown no more passages at once than in its training
            prompted["window"] = max(len(shown(row)) for row in rows)
        if config.prompt:  # a file of one's own comes along, so that the folder is complete
            own = Path(config.prompt)
            prompted["prompt"] = own.name
            if own.suffix in (".yaml", ".yml"):
                shutil.copyfile(own, folder / own.name)
        facts = {
            "prompts": {prompt.name: prompt.digest},
            "stage": config.stage,
            "teachers": ", ".join(sorted({row.teacher for row in rows if row.teacher})) or "not stated",
            "rows left out": self.left_out,
            "training": to_plain(config),
        }
        write_tuned(folder, TunedRecord(self.role, config.kind, base, {"prompted": prompted}, facts))

    def trainer(self, folder: Path) -> Any:
        """Return the trainer of the stage. Raises DataError where there is nothing to train on."""
        config, (base, _), device = self.config, self._base, str(self.context.accelerator.device)
        network, tokenizer = load_model(base, device, config.model.dtype)
        self.chats = examples = Examples(network, tokenizer, config)
        ranked = ranked_thoughts(self.by_id, self.corpora) if config.stage == "dpo" else {}

        def examples_of(name: str, row: Any) -> list[dict[str, Any]]:
            corpus = self.corpora.get(name)
            if config.stage == "sft":
                return examples.supervised(row)
            if config.stage == "grpo":
                return examples.drawn(name, row, corpus)
            rivals = ranked.get((name, row.question_id), {})
            return examples.compared(row, reply_pairs(row, rivals, corpus, config) if corpus else [])

        rows = self.named_rows("validation")
        most = len(rows) if config.validation is None else config.validation
        drawn = random.Random(config.seed).sample(rows, min(most, len(rows)))
        validation = [example for name, row in drawn for example in examples_of(name, row)]
        examples.dropped.clear()  # only training rows are reported as left out
        training = [example for name, row in self.named_rows("train") for example in examples_of(name, row)]
        self.left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(examples.dropped.items()))
        if not training:
            raise DataError(", ".join(self.sets), f"nothing to train on (rows left out: {self.left_out or 'none'})")
        if self.left_out:
            self.context.on_note(f"training rows left out: {self.left_out}")
        cls, settings = TRAINERS[config.stage]
        low_rank = {"task_type": "CAUSAL_LM", "target_modules": "all-linear"}
        lora: LoraConfig = from_settings(LoraConfig, low_rank | config.lora, "lora")
        metric = METRICS.get(config.stage, "loss") if validation else None
        own: dict[str, Any] = {"bf16": torch.cuda.is_available(), "save_strategy": "steps"}
        # What is too long is left out, not cut.
        own |= {"max_completion_length": config.reply_tokens} if config.stage == "grpo" else {"max_length": None}
        args = arguments(settings, folder, config, metric, own)
        more: dict[str, Any] = {"reward_funcs": self.reward} if config.stage == "grpo" else {}
        try:
            if self.start:
                network = put_on(network, self.start, "default", is_trainable=True)
            else:
                more["peft_config"] = lora
            return cls(
                model=network,
                args=args,
                train_dataset=Dataset.from_list(training),
                eval_dataset=Dataset.from_list(validation) if validation else None,
                processing_class=tokenizer,
                **more,
            )
        except ValueError as error:
            raise ConfigError(f"trainer, lora: {' '.join(str(error).split())[:300]}") from error

    def reward(
        self, completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], row: Sequence[Any], **_: Any
    ) -> list[float]:
        """Return the reward of each reply of a batch, for the trainer."""
        worth = []
        for turns, tokens, (name, id_) in zip(completions, completion_ids, row, strict=True):
            one, is_whole = self.by_id[name, id_], tokens[-1] in self.chats.ends
            worth.append(reward(one, turns[0]["content"], is_whole, self.corpora[name]))
        return worth

    @cached_property
    def by_id(self) -> dict[tuple[str, str], Any]:
        return {(name, row.id): row for name, one in self.sets.items() for row in one.examples}

    def report(self) -> tuple[Report, dict[str, Any]]:
        """Ask the role that was trained, each process its share of the fold's rows, and measure what it says."""
        gc.collect()
        torch.cuda.empty_cache()  # of the trainer
        rows = self.named_rows("report")[self.context.share]
        metrics = asyncio.run(self._measure(rows)) if rows else []
        report = [
            {"set": name, "id": row.id, "question_id": row.question_id, "metrics": one}
            for (name, row), one in zip(rows, metrics, strict=True)
        ]
        return self.context.gather(report), {}

    async def _measure(self, rows: Sequence[tuple[str, AnyRow]]) -> list[dict[str, float]]:
        llm = {"device": str(self.context.accelerator.device), "dtype": self.config.model.dtype}
        settings = {"path": str(self.best), "llm_settings": llm | self.config.llm_settings}
        role = build("role", {"name": f"{self.role}.tuned", **settings})

        async def one(name: str, row: AnyRow) -> dict[str, float]:
            session = Session(row.question_id)
            scores = reply_scores(row, await role(task_of(row), session), self.corpora.get(name))
            return {**scores, "parse_failure": float(session.by_role[self.role]["parse_failure"] > 0)}

        try:
            return list(await asyncio.gather(*(one(name, row) for name, row in rows)))
        finally:
            await role.close()


class VerifierLanguageTraining(LanguageTraining):
    role, row, prefix, title = "verifier", VerifierRow, "verifier-causal", "Verifier"


class ReaderLanguageTraining(LanguageTraining):
    role, row, prefix, title = "reader", ReaderRow, "reader-causal", "Reader"


class ThoughtsCausalTraining(LanguageTraining):
    role, row, prefix, title = "thoughts", ThoughtsRow, "thoughts-causal", "Thought generator"
