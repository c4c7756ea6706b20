"""Checkpoints of language models: adapters, merged models, their records and cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from gnnrag.common.files import copy_file, read_json, remove, write_atomic
from gnnrag.config import to_plain
from gnnrag.fit.card import Card
from gnnrag.fit.folds import Parts
from gnnrag.fit.gnn_sets import sizes
from gnnrag.fit.language_config import TrainLanguageConfig
from gnnrag.fit.language_data import RoleRows
from gnnrag.fit.language_model import LanguageModel
from gnnrag.fit.training import score_rows
from gnnrag.llm.hf_model import load_model
from gnnrag.run.rundir import commit
from gnnrag.tuned.folder import TunedRecord, write_tuned

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
