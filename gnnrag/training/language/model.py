"""A language model that trains: loaded, put under an adapter, and asked how probable replies are."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.llm.folders import ModelFiles, find_model, kind_of
from gnnrag.llm.hf_model import load_model, put_on
from gnnrag.llm.local import Limits
from gnnrag.roles.tuned.checkpoint import read_tuned, tuned_folder
from gnnrag.training.language.data import Encoder, Example, TrainLanguageConfig

Sequences = Sequence[tuple[Sequence[int], Sequence[int]]]  # prompt and reply


@dataclass
class LanguageModel:
    """A loaded model."""

    network: nn.Module  # what trains: a peft model, or the bare model with all weights
    tokenizer: Any  # its tokenizer
    is_seq2seq: bool  # whether it has an encoder
    encoder: Encoder  # from conversations to tokens
    files: ModelFiles  # the base on disk
    # Name and digest of the weights it was made from, for the record
    base: dict[str, Any] = field(default_factory=dict)

    @property
    def pad(self) -> int:
        """Token that fills up rows."""
        pad = self.tokenizer.pad_token_id
        return int(self.encoder.end if pad is None else pad)

    @cached_property
    def _accepted(self) -> frozenset[str]:
        """Which optional arguments the architecture takes."""
        bare = getattr(self.network, "get_base_model", lambda: self.network)()
        return frozenset(inspect.signature(bare.forward).parameters)

    def log_probabilities(self, network: nn.Module, rows: Sequences, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each reply given its prompt, and its number of tokens.

        Rows are filled up on the left, as they are for generation, so that the replies stand at the end and only their
        part of the vocabulary's logits is computed.

        Returns:
            Two tensors of shape (len(rows),), in float32.
        """
        longest = max(len(reply) for _, reply in rows)
        labels = torch.tensor([[-100] * (longest - len(r)) + list(r) for _, r in rows], device=device)
        if self.is_seq2seq:
            labels = torch.tensor([list(r) + [-100] * (longest - len(r)) for _, r in rows], device=device)
        inputs = [list(p) if self.is_seq2seq else [*p, *r] for p, r in rows]
        width = max(map(len, inputs))
        ids = torch.tensor([[self.pad] * (width - len(row)) + row for row in inputs], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in inputs], device=device)
        if self.is_seq2seq:
            logits = network(input_ids=ids, attention_mask=mask, labels=labels).logits
        else:
            more: dict[str, Any] = {"use_cache": False}
            if "position_ids" in self._accepted:
                more["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
            if "logits_to_keep" in self._accepted:
                more["logits_to_keep"] = longest + 1
            logits = network(input_ids=ids, attention_mask=mask, **more).logits[:, -longest - 1 : -1]
        losses = F.cross_entropy(logits.float().transpose(1, 2), labels, ignore_index=-100, reduction="none")
        return -losses.sum(-1), (labels != -100).sum(-1)

    def scored(self, examples: Sequence[Example], device: torch.device, limits: Limits) -> list[float]:
        """Return the mean log-probability of a token of each example's reply, computed in batches."""
        found: list[float] = []
        for rows in in_batches([[(e.prompt, e.reply)] for e in examples], limits):
            total, number = self.log_probabilities(self.network, rows, device)
            found += (total / number).tolist()
        return found


def in_batches(items: Iterable[Sequences], limits: Limits) -> Iterator[list[Any]]:
    """Yield the rows of several items together, in their order; those of one item are never parted.

    Args:
        items: prompts and replies of each.
        limits: of a batch, its `rows` counted in items. One item always makes a batch.
    """
    batch: list[Any] = []
    count = 0
    for item in items:
        together = [*batch, *item]
        width = max(len(prompt) for prompt, _ in together) + max(len(reply) for _, reply in together)
        if count and (count == limits.rows or len(together) * width > limits.tokens):
            yield batch
            together, count = list(item), 0
        batch, count = together, count + 1
    if batch:
        yield batch


def open_language_model(config: TrainLanguageConfig, role: str, device: torch.device) -> LanguageModel:
    """Load the base, and put the new adapter or that of `start` on it.

    Raises:
        ConfigError: no such model, or one of another kind.
        ArtefactError: `start` is no checkpoint of this role and kind, or damaged.
    """
    start = tuned_folder(config.start) if config.start else None
    record = read_tuned(start, role, (config.kind,)) if start else None
    is_adapter = start is not None and (start / "adapter_config.json").is_file()
    name = str(record.base.get("name") or "") if record and is_adapter else str(start or config.model.base)
    if config.model.base and record and is_adapter:
        name = config.model.base
    files = find_model(name, None, "hf")
    _check(config, files, record.base.get("weights") if record and is_adapter else None)
    is_full = config.model.train == "full"
    dtype = "float32" if is_full else config.model.dtype  # `dtype` is that of frozen weights
    adapter = start if is_adapter else None
    network, tokenizer = load_model(files.base, config.kind, adapter if is_full else None, str(device), dtype)
    ends = network.generation_config.eos_token_id
    is_seq2seq = config.kind == "seq2seq"
    encoder = Encoder(
        tokenizer, config.model, is_seq2seq, network.config, [ends] if isinstance(ends, int) else ends or []
    )
    if not is_full:
        network = _adapted(network, config, adapter)
    if config.model.checkpointing:
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if not is_full:
            network.enable_input_require_grads()  # else nothing in a block of frozen weights asks for a gradient
    weights = files.base_fingerprint
    base = {"name": name if not Path(name).is_dir() else str(files.base), "weights": weights}
    return LanguageModel(network, tokenizer, is_seq2seq, encoder, files, base)


def _check(config: TrainLanguageConfig, files: ModelFiles, weights: str | None) -> None:
    found = kind_of(files)
    if found != config.kind:
        raise ConfigError(f"kind={config.kind!r}: {files.name} is a {found} model; set kind={found}")
    if weights and weights != files.base_fingerprint:
        raise ArtefactError(f"start={config.start!r} was trained on other weights than {str(files.base)!r} holds")


def _adapted(network: Any, config: TrainLanguageConfig, adapter: Path | None) -> nn.Module:
    """Return the model under a trainable adapter: a new one, whose weights follow from the seed, or that of `start`."""
    from peft import LoraConfig, get_peft_model

    if adapter:
        put_on_check = put_on(network, adapter, "default")  # refuses what does not fit
        for parameter_name, parameter in put_on_check.named_parameters():
            parameter.requires_grad_("lora_" in parameter_name)
        return put_on_check
    lora = config.lora
    task = "SEQ_2_SEQ_LM" if config.kind == "seq2seq" else "CAUSAL_LM"
    settings = LoraConfig(
        task_type=task,
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]
        lora_dropout=lora.dropout,
        target_modules=list(lora.targets) or "all-linear",
        use_rslora=lora.rslora,
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(config.seed)
            return get_peft_model(network, settings)
    except ValueError as error:
        raise ConfigError(f"lora.targets={list(lora.targets)}: {' '.join(str(error).split())[:200]}") from error
