"""A language model that trains, under an adapter or whole: supervised on a teacher's replies, and by preference (DPO).

Of two replies to one prompt, the one whose thought retrieves more is to become more probable. Direct preference
optimisation (Rafailov et al. 2023, arXiv 2305.18290) is written out here instead of taken from the library trl: it is
one formula, and so it runs in the one trainer of this project, which shares out to processes and reports like every
other training. The reference is the model that training starts from; its log-probabilities are computed once, before
the first step: no second copy of the model is in memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.nn import functional as F

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.llm.hf import Limits, load_model, put_on
from gnnrag.llm.local import ModelFiles, find_model, kind_of
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.thoughts import thoughts_chat
from gnnrag.roles.tuned.checkpoint import read_tuned, tuned_folder
from gnnrag.session import normalised
from gnnrag.training.language.data import (
    AnyRow,
    Encoder,
    Example,
    PreferenceConfig,
    TrainLanguageConfig,
    asked,
    task_of,
)
from gnnrag.training.loop import Rows
from gnnrag.training.rows import ThoughtsRow

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
    adapter = start if is_adapter else None
    network, tokenizer = load_model(files.base, config.kind, None, str(device), config.model.dtype)
    ends = network.generation_config.eos_token_id
    is_seq2seq = config.kind == "seq2seq"
    encoder = Encoder(
        tokenizer, config.model.context, is_seq2seq, network.config, [ends] if isinstance(ends, int) else ends or []
    )
    network = adapted(network, config, adapter)
    if config.model.checkpointing:
        cast(Any, network).gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        cast(Any, network).enable_input_require_grads()  # else nothing in a block of frozen weights asks for a gradient
    weights = files.base_fingerprint
    base = {"name": name if not Path(name).is_dir() else str(files.base), "weights": weights}
    return LanguageModel(network, tokenizer, is_seq2seq, encoder, files, base)


def _check(config: TrainLanguageConfig, files: ModelFiles, weights: str | None) -> None:
    found = kind_of(files)
    if found != config.kind:
        raise ConfigError(f"kind={config.kind!r}: {files.name} is a {found} model; set kind={found}")
    if weights and weights != files.base_fingerprint:
        raise ArtefactError(f"start={config.start!r} was trained on other weights than {str(files.base)!r} holds")


def adapted(network: Any, config: TrainLanguageConfig, adapter: Path | None) -> nn.Module:
    """Return the model under a trainable adapter: a new one, whose weights follow from the seed, or that of `start`."""
    from peft import LoraConfig, get_peft_model

    if adapter:
        loaded: nn.Module = put_on(network, adapter, "default")
        for name, parameter in loaded.named_parameters():
            parameter.requires_grad_("lora_" in name)
        return loaded
    lora = config.lora
    task = "SEQ_2_SEQ_LM" if config.kind == "seq2seq" else "CAUSAL_LM"
    settings = LoraConfig(
        task_type=task,
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]
        lora_dropout=lora.dropout,
        target_modules=list(lora.targets) or "all-linear",
    )
    try:
        torch.manual_seed(config.seed)
        return get_peft_model(network, settings)
    except ValueError as error:
        raise ConfigError(f"lora.targets={list(lora.targets)}: {' '.join(str(error).split())[:200]}") from error


# ------------------------------------------------------------------------------------------------------------- losses
def supervised_losses(
    model: LanguageModel, network: nn.Module, items: Sequence[Example], device: torch.device
) -> Tensor:
    """Return the mean negative log-probability of each reply's tokens: a long reply weighs no more than a short one.

    Shape (len(items),).
    """
    total, number = model.log_probabilities(network, [(e.prompt, e.reply) for e in items], device)
    return -total / number


SLOTS = ("fast", "slow")


@dataclass(frozen=True)
class Pair:
    """Two replies to one prompt that differ in one thought."""

    row: ThoughtsRow  # where they come from
    # prompt, chosen, rejected: tokens; the replies with their end
    prompt: tuple[int, ...]
    chosen: tuple[int, ...]
    rejected: tuple[int, ...]
    margin: float  # how much more the chosen thought gains
    reference: tuple[float, float] = (0.0, 0.0)  # log-probabilities of the two under the reference


def ranked_texts(row: ThoughtsRow, config: PreferenceConfig) -> list[tuple[str, str, float]]:
    """Return pairs of replies as texts, and by how much the first gains more.

    One thought is exchanged at a time and the other one stays, so that a difference of gains is due to that thought. A
    candidate competes with the teacher's thought of its own kind; one that no kind is known of, with both.
    """
    found, task = [], task_of(row)
    assert isinstance(task, ThoughtsTask)
    for slot in SLOTS:
        own: str | None = getattr(row, slot)
        if not own:
            continue
        gains = {normalised(own): (own, row.gains.get(slot, 0.0))}
        other = normalised(str(getattr(row, "slow" if slot == "fast" else "fast") or ""))
        for candidate in row.candidates:
            if candidate.kind in (slot, *({candidate.kind} - set(SLOTS))) and normalised(candidate.text) != other:
                gains.setdefault(normalised(candidate.text), (candidate.text, candidate.gain))
        queries = list(gains.values())
        best = max(queries, key=lambda query: query[1])
        worse = [(text, best[1] - gain) for text, gain in queries if best[1] - gain >= config.margin - 1e-9]
        for text, margin in sorted(worse, key=lambda query: -query[1])[: config.pairs]:
            better, less = (thoughts_chat(task, _exchanged(row, slot, query))[-1].content for query in (best[0], text))
            found.append((better, less, margin))
    return found


def _exchanged(row: ThoughtsRow, slot: str, text: str) -> Thoughts:
    """Return the teacher's thoughts with another one in a slot."""
    chain = row.source.get("chain")
    return Thoughts(text, row.slow, chain=chain) if slot == "fast" else Thoughts(row.fast, text, chain=chain)


def make_pairs(
    rows: Sequence[AnyRow],
    prompt: str,
    encoder: Encoder,
    config: PreferenceConfig,
    note: Callable[[str], None] = lambda reason: None,
) -> list[Pair]:
    """Return the pairs of rows of thoughts; `note` is told why a row gives none. `prompt` as in `encoded`."""
    found = []
    for row in rows:
        assert isinstance(row, ThoughtsRow)
        texts = ranked_texts(row, config)
        if not texts:
            note("without a pair of replies")
            continue
        tokens = encoder.prompt(asked(row, prompt))
        for better, worse, margin in texts:
            chosen, rejected = encoder.reply(better), encoder.reply(worse)
            if encoder.fits(tokens, chosen, rejected):
                found.append(Pair(row, tokens, chosen, rejected, margin))
            else:
                note("too long")
    return found


def rewards(policy: Tensor, reference: Tensor) -> Tensor:
    """Return how much further the chosen reply has risen over the reference than the rejected one. Shape (n,).

    Both are (n, 2) log-probabilities of chosen and rejected replies. The loss of a pair is -log sigma(beta times this),
    equation 7.
    """
    ratio = policy - reference
    return ratio[:, 0] - ratio[:, 1]


def preference_losses(
    model: LanguageModel, network: nn.Module, items: Sequence[Pair], config: PreferenceConfig, device: torch.device
) -> Tensor:
    """Return the loss of each pair. Shape (len(items),)."""
    policy = pair_scores(model, network, items, device)
    reference = torch.tensor([pair.reference for pair in items], device=device)
    losses = -F.logsigmoid(config.beta * rewards(policy, reference))
    if config.sft:  # alone, DPO may lower both replies, so long as the rejected one falls further
        lengths = torch.tensor([len(pair.chosen) for pair in items], device=device)
        losses = losses - config.sft * policy[:, 0] / lengths
    return losses


def preference_metrics(
    model: LanguageModel, pairs: Sequence[Pair], config: PreferenceConfig, device: torch.device, limits: Limits
) -> Rows:
    """Return `order` (share of pairs whose chosen reply has risen more) and `reward` of each row, by its id."""
    policy = batch_scores(model, pairs, device, limits)
    reference = torch.tensor([pair.reference for pair in pairs]).reshape(-1, 2)
    differences: dict[str, list[float]] = {}
    for pair, value in zip(pairs, rewards(policy, reference).tolist(), strict=True):
        differences.setdefault(pair.row.id, []).append(value)
    return {
        id_: {
            "order": sum(value > 0 for value in values) / len(values),
            "reward": config.beta * sum(values) / len(values),
        }
        for id_, values in differences.items()
    }


def pair_scores(model: LanguageModel, network: nn.Module, pairs: Sequence[Pair], device: torch.device) -> Tensor:
    """Return the log-probabilities of chosen and rejected replies, from one pass over both. Shape (len(pairs), 2)."""
    rows = [(p.prompt, p.chosen) for p in pairs] + [(p.prompt, p.rejected) for p in pairs]
    total, _ = model.log_probabilities(network, rows, device)
    return torch.stack(total.chunk(2), dim=1)


def batch_scores(model: LanguageModel, pairs: Sequence[Pair], device: torch.device, limits: Limits) -> Tensor:
    """Return what `pair_scores` does, computed in batches (`rows` counts pairs), on the CPU. Shape (len(pairs), 2)."""
    found = [torch.zeros(0)]
    for rows in in_batches([[(p.prompt, p.chosen), (p.prompt, p.rejected)] for p in pairs], limits):
        found.append(model.log_probabilities(model.network, rows, device)[0].cpu())
    return torch.cat(found).reshape(-1, 2)


def with_reference(pairs: Sequence[Pair], model: LanguageModel, accelerator: Accelerator, limits: Limits) -> list[Pair]:
    """Return pairs with the log-probabilities of the reference: the model as it is now."""
    model.network.eval()
    own = range(accelerator.process_index, len(pairs), accelerator.num_processes)
    with torch.inference_mode(), accelerator.autocast():
        scores = batch_scores(model, [pairs[i] for i in own], accelerator.device, limits).tolist()
    rows = list(zip(own, scores, strict=True))
    every = gather_object(rows) if accelerator.num_processes > 1 else rows
    values = [value for _, value in sorted(every)]
    return [replace(pair, reference=(value[0], value[1])) for pair, value in zip(pairs, values, strict=True)]
