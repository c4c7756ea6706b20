"""What training a language model or an encoder takes of a GPU's memory, counted without a GPU and without weights.

The model is built on the meta device from its sizes, given tensors that have shapes and no storage, and taken through
the very losses of training, forward and backward; what is live at each operation is summed. In bytes of one process:

    weights + gradients (4 each trained) + AdamW (8 each trained) + DDP's copy of gradients + most that is live besides

with every row of a micro-batch as long as the context, and its reply `judging.tokens` long; logits and what the loss
makes of them in float32 are among the last. The kernels are a CPU's, but for what a GPU was seen to do otherwise
(`as_on_gpu`): on one H200 the peaks were within 5% (docs/training.md). Blocks leave gaps, hence the reserve.
"""

from __future__ import annotations

import math
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import yaml  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from gnnrag.common.files import read_json
from gnnrag.errors import ConfigError
from gnnrag.roles.tuned.checkpoint import set_dropout
from gnnrag.training.language.data import Example, TrainLanguageConfig
from gnnrag.training.language.losses import LanguageModel, Pair, adapted, preference_losses, supervised_losses
from gnnrag.training.language.policy import Draw, policy_losses
from gnnrag.training.verifier_data import TrainVerifierConfig

GIB = 2**30
Row = tuple[tuple[int, ...], tuple[int, ...]]  # tokens of a prompt and of its reply
RESERVE = 0.1  # share of the memory left to CUDA, its libraries and the gaps between blocks
_DEPTHS = ("num_hidden_layers", "num_layers", "num_decoder_layers")
_TRACED = (2, 3)  # layers: the first may differ, all others are alike, so that two depths give any
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_FLOATS = ("softmax", "layer_norm")  # of these models' functions, what autocast computes in float32 on a GPU alone
_PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Memory:
    """What one process needs, in bytes where nothing else is said."""

    weights: dict[str, int]  # of the model, by type
    trained: int  # parameters that are trained, a number
    gradients: int
    optimiser: int  # AdamW's two means in float32, and a step count for each tensor
    buckets: int  # DDP's copy of the gradients; 0 with one process
    step: int  # most that is live besides, while a micro-batch goes forward and backward
    validation: int  # the same while replies are scored and generated, their keys and values included

    @property
    def total(self) -> int:
        """Return the most that is needed at any time."""
        fixed = sum(self.weights.values()) + self.gradients + self.optimiser + self.buckets
        return fixed + max(self.step, self.validation)


def language_memory(config: TrainLanguageConfig, devices: int) -> Memory:
    """Return what training with these settings needs of each of `devices` GPUs. ConfigError: an unknown base."""
    sizes, rows = base_sizes(config.model.base), micro_batch(config, devices)
    shapes, together = fullest(config)
    written = max(1, min(config.judging.batch, config.judging.batch_tokens // sum(shapes)))
    plain = replace(config, stage="sft")

    def losses(network: Any, config: TrainLanguageConfig, count: int) -> Tensor:
        prompt, reply = [(1,) * n for n in shapes]
        return stage_losses(config, network, [(prompt, reply)] * count, torch.device("cpu"))

    passes = [partial(losses, config=one, count=n) for one, n in ((config, rows), (config, together), (plain, written))]
    found = _traced(sizes, partial(language_network, config), passes, config.fit.precision)
    weights = {name: count * _BYTES[name] for name, count in found.counts.items()}
    cache = _cached_bytes(sizes, config.kind) * written * sum(shapes) * _BYTES[_frozen(config)]
    # An encoder is done before there are keys and values of the decoder.
    writing = max(found.writing, cache) if config.kind == "seq2seq" else found.writing + cache
    return _memory(weights, found, devices, max(found.scoring, writing))


def fullest(config: TrainLanguageConfig) -> tuple[tuple[int, int], int]:
    """Return the tokens of the longest prompt and reply, and how many items of that length are scored together.

    Raises ConfigError where the reply leaves no room for a prompt.
    """
    context = config.model.context or int(base_sizes(config.model.base).get("max_position_embeddings", 512))
    reply = config.judging.tokens
    prompt = context if config.kind == "seq2seq" else context - reply
    if prompt < 1:
        raise ConfigError(f"model.context={context} has no room beside judging.tokens={reply}")
    together = max(1, min(config.judging.batch, config.judging.batch_tokens // context))
    if config.stage == "grpo":  # its items are groups of replies; validation scores single ones
        together = math.ceil(together / config.policy.group)
    return (prompt, reply), together


def language_network(config: TrainLanguageConfig, depth: int | None = None, device: str = "meta") -> nn.Module:
    """Return the network that trains, of `depth` layers where that is given: without weights, or with random ones."""
    dtype = "float32" if config.model.train == "full" else _frozen(config)
    network = made(base_sizes(config.model.base), config.kind, depth, dtype, device)
    if config.model.train != "full":
        with torch.device(device):
            network = adapted(network, config, None)
    if config.model.checkpointing:
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # type: ignore[operator]
        if config.model.train != "full":
            network.enable_input_require_grads()  # type: ignore[operator]
    return network


def stage_losses(config: TrainLanguageConfig, network: Any, rows: Sequence[Row], device: torch.device) -> Tensor:
    """Return the losses of prompts and replies, given as tokens, by the stage's own function; each row is an item."""
    model = LanguageModel(network, SimpleNamespace(pad_token_id=0), config.kind == "seq2seq", None, None)  # type: ignore[arg-type]
    if config.stage == "dpo":
        pairs = [Pair(None, prompt, reply, reply, 1.0) for prompt, reply in rows]  # type: ignore[arg-type]
        return preference_losses(model, network, pairs, config.preference, device)
    if config.stage == "grpo":
        groups = [[Draw(prompt, reply, 1.0)] * config.policy.group for prompt, reply in rows]
        return policy_losses(model, network, groups, config.policy, device)
    return supervised_losses(model, network, [Example(None, *row) for row in rows], device)  # type: ignore[arg-type]


def encoder_memory(config: TrainVerifierConfig, devices: int) -> Memory:
    """Return the same of a cross-encoder whose lists are all full; its heads, a thousandth of it, are left out."""
    sizes, network = base_sizes(config.network.base), config.network
    rows = micro_batch(config, devices) * config.ranking.max_pairs

    def build(depth: int | None) -> nn.Module:
        encoder: Any = made(sizes, "encoder", depth, "float32", dropout=network.dropout)
        if network.train_layers is not None:
            raise ConfigError("network.train_layers: only null, all of the encoder, is counted")
        if network.gradient_checkpointing:
            encoder.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return encoder  # type: ignore[no-any-return]

    def losses(encoder: Any) -> Tensor:
        ids = torch.ones(rows, network.max_tokens, dtype=torch.long)
        hidden: Tensor = encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        return (hidden[:, 0] if network.pooling == "cls" else hidden.mean(1)).float().sum(1)

    found = _traced(sizes, build, [losses], config.fit.precision)
    return _memory({name: count * _BYTES[name] for name, count in found.counts.items()}, found, devices, 0)


def micro_batch(config: Any, devices: int) -> int:
    """Return how many items one process takes forward together."""
    share = math.ceil(config.fit.batch_size / devices)
    return min(config.fit.micro_batch or share, share)


def check_fits(memory: Memory, devices: int, gib: float) -> None:
    """Raise ConfigError where a training does not fit `gib` GiB less `RESERVE`."""
    room = gib * (1 - RESERVE)
    if memory.total > room * GIB:
        each = f"each of {devices} GPUs" if devices > 1 else "the GPU"
        raise ConfigError(
            f"{memory.total / GIB:.1f} GiB do not fit {each}: gpu_gib={gib:g} less {RESERVE:.0%} leaves {room:.1f}; "
            "halve fit.micro_batch, or compute activations again (model.checkpointing=true, of an encoder "
            "network.gradient_checkpointing=true)"
        )


def base_sizes(name: str) -> dict[str, Any]:
    """Return the sizes of a base: of a folder's config.json, or those known here. Raises ConfigError for others."""
    if (settings := Path(name).expanduser() / "config.json").is_file() and name:
        return dict(read_json(settings))
    known = yaml.safe_load((files("gnnrag.training.language") / "bases.yaml").read_text("utf-8"))
    if (plain := name.partition("@")[0]) in known:
        return dict(known[plain])
    given = f"{name!r} is no folder with a config.json and not known here" if name else "is not given"
    raise ConfigError(f"base {given}; give model.base=BASE, a folder or one of {', '.join(known)}")


# ---------------------------------------------------------------------------------------------------------- tracing
@dataclass(frozen=True)
class _Found:
    """What a model was found to need: parameters by type, trained ones, tensors of these, bytes."""

    counts: Counter[str]
    trained: int
    tensors: int
    step: int
    scoring: int = 0
    writing: int = 0


class Peak(TorchDispatchMode):
    """Sums the bytes of the tensors made inside that are still held, and keeps the largest sum as `most`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._held: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count what it made."""
        before = {t.untyped_storage()._cdata for t in tree_iter((args, kwargs)) if isinstance(t, Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in before:
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._held:
            return
        self._held.add(storage._cdata)
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._drop, storage._cdata, storage.nbytes())

    def _drop(self, key: int, size: int) -> None:
        self._held.discard(key)
        self.now -= size


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Let what a CPU does unlike a GPU be done as there: dropout, and what autocast leaves to float32."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(F, "dropout", _dropout))
        own = partial(_attention, F.scaled_dot_product_attention)
        stack.enter_context(patch.object(F, "scaled_dot_product_attention", own))
        for name in _FLOATS:
            stack.enter_context(patch.object(F, name, partial(_in_float32, getattr(F, name))))
        yield


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Keep a byte of each number for the backward pass; a CPU keeps four."""
    return torch.native_dropout(x, p, True)[0] if training and p else x


def _attention(function: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
    """Attend; in inference step by step in float32, where each head has a mask of its own (T5's), as on an H200."""
    mask = how.get("attn_mask")
    if mask is None or mask.dim() < 4 or mask.shape[1] == 1 or torch.is_grad_enabled():
        return function(q, k, v, **how)
    with torch.autocast("cpu", enabled=False):
        scores = (q.float() @ k.float().transpose(-1, -2)).add_(mask)
        return (scores.softmax(-1) @ v.float()).to(v.dtype)


def _in_float32(function: Callable[..., Tensor], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return function(x.float() if torch.is_autocast_enabled("cpu") else x, *args, **kwargs)


def step_bytes(network: nn.Module, losses: Callable[[Any], Tensor], precision: str) -> int:
    """Return the most that is live, besides weights and gradients, in a forward and backward pass of `losses`."""
    network.train()
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    with Peak() as peak, as_on_gpu():
        with _autocast(precision):
            rows = losses(network)
        rows.sum().backward()  # type: ignore[no-untyped-call]
    return peak.most


def _autocast(precision: str) -> Any:
    return torch.autocast("cpu", _PRECISIONS[precision]) if precision in _PRECISIONS else nullcontext()


def _traced(
    sizes: dict[str, Any],
    build: Callable[[int | None], nn.Module],
    passes: Sequence[Callable[[Any], Tensor]],
    precision: str,
) -> _Found:
    """Return what a model needs, of all its depth, from two of few layers; `passes`: training, scoring, writing."""
    with warnings.catch_warnings():  # transformers renames what peft calls
        warnings.simplefilter("ignore", FutureWarning)
        return _whole(sizes, build, partial(_at, passes=passes, precision=precision))


def _whole(
    sizes: dict[str, Any], build: Callable[[int | None], nn.Module], at: Callable[[nn.Module], _Found]
) -> _Found:
    depths = {sizes[key] for key in _DEPTHS if key in sizes}
    depth = max(depths)
    if len(depths) > 1 or depth <= _TRACED[1]:
        return at(build(None))
    low, high = [at(build(few)) for few in _TRACED]

    def of(a: int, b: int) -> int:
        return a + (b - a) * (depth - _TRACED[0])

    counts = Counter({name: of(low.counts[name], high.counts[name]) for name in high.counts})
    names = ("trained", "tensors", "step", "scoring", "writing")
    return _Found(counts, *(of(getattr(low, name), getattr(high, name)) for name in names))


def _at(network: nn.Module, passes: Sequence[Callable[[Any], Tensor]], precision: str) -> _Found:
    parameters = list(network.parameters())
    trained = [p for p in parameters if p.requires_grad]
    counts: Counter[str] = Counter()
    for p in parameters:
        counts[str(p.dtype).removeprefix("torch.")] += p.numel()
    with FakeTensorMode():
        _filled(network)
        found = [step_bytes(network, passes[0], precision)]
        network.eval()
        for score, how in zip(passes[1:], (precision, "no"), strict=False):  # replies are written without autocast
            with torch.no_grad(), Peak() as peak, as_on_gpu(), _autocast(how):
                score(network)
            found.append(peak.most)
    return _Found(counts, sum(p.numel() for p in trained), len(trained), *found)


def _filled(network: nn.Module) -> None:
    """Put tensors of the mode in force, which seem to be a CPU's, in the place of those on the meta device."""
    made: dict[int, Tensor] = {}
    for module in network.modules():
        for place in (module._parameters, module._buffers):
            for name, old in place.items():
                if old is None:
                    continue
                if id(old) not in made:
                    new = torch.empty(old.shape, dtype=old.dtype, device="cpu")
                    is_parameter = isinstance(old, nn.Parameter)
                    made[id(old)] = nn.Parameter(new, requires_grad=old.requires_grad) if is_parameter else new
                place[name] = made[id(old)]  # type: ignore[assignment]


def made(
    sizes: dict[str, Any],
    kind: str,
    depth: int | None,
    dtype: str,
    device: str = "meta",
    dropout: float | None = None,
) -> nn.Module:
    """Return a model of `depth` layers where that is given: without weights, on another device with random ones."""
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    sizes = dict(sizes)
    if depth is not None:
        sizes |= {key: depth for key in _DEPTHS if key in sizes}
        if isinstance(sizes.get("layer_types"), list):
            sizes["layer_types"] = sizes["layer_types"][:depth]
    try:
        settings = AutoConfig.for_model(**sizes)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"model_type {sizes.get('model_type')!r} is not known to transformers: {error}") from error
    if dropout is not None:
        set_dropout(settings, dropout)
    cls = {"causal": AutoModelForCausalLM, "seq2seq": AutoModelForSeq2SeqLM, "encoder": AutoModel}[kind]
    with torch.device(device):
        model: Any = cls.from_config(settings, dtype=getattr(torch, dtype))
    head: Any = model.get_output_embeddings() if kind != "encoder" else None
    if sizes.get("tie_word_embeddings") is False and head.weight is model.get_input_embeddings().weight:
        head.weight = nn.Parameter(head.weight.detach().clone())  # transformers parts T5's only with their weights
    return model  # type: ignore[no-any-return]


def _frozen(config: TrainLanguageConfig) -> str:
    return "bfloat16" if config.model.dtype == "auto" else config.model.dtype


def _cached_bytes(sizes: dict[str, Any], kind: str) -> int:
    """Return how many numbers generation keeps of a token: keys and values of each layer."""
    if kind == "seq2seq":
        return 2 * int(sizes["num_decoder_layers"]) * int(sizes["num_heads"]) * int(sizes["d_kv"])
    heads = int(sizes["num_attention_heads"])
    width = int(sizes.get("head_dim") or sizes["hidden_size"] // heads)
    return 2 * int(sizes["num_hidden_layers"]) * int(sizes.get("num_key_value_heads") or heads) * width


def _memory(weights: dict[str, int], found: _Found, devices: int, validation: int) -> Memory:
    gradients = 4 * found.trained
    optimiser = 8 * found.trained + 4 * found.tensors
    return Memory(weights, found.trained, gradients, optimiser, gradients if devices > 1 else 0, found.step, validation)


COUNTS: dict[str, Sequence[Any]] = {
    "causal": (TrainLanguageConfig, language_memory),
    "seq2seq": (TrainLanguageConfig, language_memory),
    "cross_encoder": (TrainVerifierConfig, encoder_memory),
}
