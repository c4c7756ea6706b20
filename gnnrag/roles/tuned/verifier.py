"""The verifier as a small model trained here: a cross-encoder, or a language model fine-tuned on the prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from gnnrag.common.devices import device_named, pass_rows
from gnnrag.common.files import digest
from gnnrag.common.records import read_settings
from gnnrag.common.waiting import MicroBatcher, Worker
from gnnrag.errors import ArtefactError, ConfigError, nearest
from gnnrag.index.index import Index
from gnnrag.parts import part
from gnnrag.roles.base import Role, Verdict, VerifierTask
from gnnrag.roles.tuned.chain_verifier import CHAIN, ChainOptions, ChainVerifier
from gnnrag.roles.tuned.checkpoint import (
    LANGUAGE_KINDS,
    STORES,
    LanguageRole,
    LanguageRoleConfig,
    TunedRecord,
    load_encoder,
    load_tokenizer,
    load_trained,
    open_language_role,
    read_tuned,
    role_folder,
    save_trained,
)
from gnnrag.roles.tuned.pair_features import FEATURES, Shown, pair_features
from gnnrag.roles.tuned.selection import Selection
from gnnrag.session import Session

KIND = "cross_encoder"
POOLINGS = ("mean", "cls")


@dataclass
class CrossEncoderConfig:
    """The network; a checkpoint names all of it."""

    base: str = "embedded"  # the encoder: the embedded MiniLM, a folder, or a name on the Hugging Face hub
    text: bool = True  # read question, chain and passage; false: the features alone decide
    chain: bool = True  # the chain is read, too
    features: list[str] = field(default_factory=lambda: list(FEATURES))  # of `pair_features`; []: the text alone
    max_tokens: int = 192  # of a pair; the longer part of it is cut first
    pooling: str = "mean"  # of the encoder's last layer: mean or cls
    hidden: int = 64  # width of the layer that joins text and features
    feature_hidden: int = 16  # width of the layer that reads the features alone; 0: a weighted sum
    train_layers: int | None = 2  # top layers that are trained; null: the whole encoder
    dropout: float = 0.0  # in the encoder; above 0, the number of processes makes a difference
    encoder_rate: float = 0.01  # learning rate of the encoder, as a share of that of the head (fit.lr)
    gradient_checkpointing: bool = False  # half the memory for a third more time
    store: str = "fp16"  # precision of the weights in a checkpoint: fp16 or fp32


def check_cross_encoder(config: CrossEncoderConfig) -> None:
    """Raise ConfigError where a setting is out of range."""
    for name in config.features:
        if name not in FEATURES:
            raise ConfigError(f"network.features: {name!r} is unknown. {nearest(name, FEATURES)}")
    if not config.text and not config.features:
        raise ConfigError("network.text=false with network.features=[]: nothing is left to judge by")
    for key, allowed in (("pooling", POOLINGS), ("store", tuple(STORES))):
        if (value := getattr(config, key)) not in allowed:
            raise ConfigError(f"network.{key}={value!r}: allowed are {', '.join(allowed)}")
    for key, least in (("max_tokens", 16), ("hidden", 1), ("feature_hidden", 0), ("train_layers", 0)):
        if (value := getattr(config, key)) is not None and value < least:
            raise ConfigError(f"network.{key}={value}: must be at least {least}")
    if not 0 <= config.dropout < 1:
        raise ConfigError(f"network.dropout={config.dropout}: must be at least 0 and below 1")


@dataclass(frozen=True)
class PairBatch:
    """Pairs, ready for the network."""

    features: Tensor  # (batch, features) float32
    # tokens, mask, types: (batch, length) int64; None where no text is read
    tokens: Tensor | None = None
    mask: Tensor | None = None
    types: Tensor | None = None


class CrossEncoder(nn.Module):
    """logit = f(features) + g(text, features); g starts at zero: the encoder learns what the features cannot tell.

    ConfigError: the base is not there, or a setting is out of range.
    """

    def __init__(self, config: CrossEncoderConfig) -> None:
        super().__init__()
        check_cross_encoder(config)
        self.config = config
        count = len(config.features)
        self.encoder, width = None, 0
        if config.text:
            self.encoder, width = load_encoder(
                config.base, config.train_layers, config.dropout, config.gradient_checkpointing
            )
        self.by_features = _feature_head(count, config.feature_hidden)
        if config.text:
            self.norm = nn.LayerNorm(width)
            self.join = nn.Linear(width + count, config.hidden)
            self.out = nn.Linear(config.hidden, 1, bias=False)
            nn.init.zeros_(self.out.weight)
        # Losses over lists do not know it: calibration then finds it. Trained where pairs are judged alone.
        self.shift = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, batch: PairBatch) -> Tensor:
        """Return logits. Shape (batch,)."""
        logits = self.by_features_alone(batch.features)
        if self.encoder is None:
            return logits
        inputs = {"input_ids": batch.tokens, "attention_mask": batch.mask}
        if batch.types is not None:
            inputs["token_type_ids"] = batch.types
        hidden = self.encoder(**inputs).last_hidden_state  # (batch, length, width)
        if self.config.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            assert batch.mask is not None
            weights = batch.mask.unsqueeze(2).to(hidden.dtype)
            pooled = (hidden * weights).sum(1) / weights.sum(1)
        joined = torch.cat([self.norm(pooled.float()), batch.features], dim=1)
        return logits + self.out(nn.functional.gelu(self.join(joined))).squeeze(1).float()

    def by_features_alone(self, features: Tensor) -> Tensor:
        """Return what the features alone say. Shape (batch,)."""
        return self.by_features(features).squeeze(1).float() + self.shift

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return what is trained, the encoder at a rate of its own."""
        own = [p for name, p in self.named_parameters() if p.requires_grad and not name.startswith("encoder.")]
        groups: list[dict[str, Any]] = [{"params": own}]
        if self.encoder is not None and (rest := [p for p in self.encoder.parameters() if p.requires_grad]):
            groups.append({"params": rest, "scale": self.config.encoder_rate})
        return groups


class _Nothing(nn.Module):
    """What no features say: 0. Shape (batch, 1)."""

    def forward(self, features: Tensor) -> Tensor:
        """Return zeros."""
        return features.new_zeros(len(features), 1)


def _feature_head(count: int, hidden: int) -> nn.Module:
    if not count:
        return _Nothing()
    if not hidden:
        return nn.Linear(count, 1, bias=False)
    return nn.Sequential(nn.Linear(count, hidden), nn.Tanh(), nn.Linear(hidden, 1, bias=False))


def save_cross_encoder(
    folder: Path, model: CrossEncoder, role: str, settings: Mapping[str, Any], facts: Mapping[str, Any]
) -> None:
    """Write a checkpoint: trained weights and record."""
    save_trained(folder, model, TunedRecord(role, KIND, {}, dict(settings), dict(facts)))


def load_cross_encoder(folder: Path, record: TunedRecord, base: str | None = None) -> CrossEncoder:
    """Load a checkpoint; ArtefactError where it is damaged, of another architecture, or made from another base."""
    config = read_settings(CrossEncoderConfig, record.settings, folder)
    return load_trained(folder, record, CrossEncoder, config, base)


BUCKET = 32  # token lengths are padded to multiples of this
ROWS = 16, 128  # pairs of a forward pass, on a CPU and on a GPU; with fewer, the rest is filled up


@dataclass(frozen=True, eq=False)
class Pair:
    """A passage as the network sees it: tokens with their types (0 question and chain, 1 passage), and features."""

    tokens: tuple[int, ...]
    types: tuple[int, ...]
    features: np.ndarray  # (features,) float32


class PairMaker:
    """Makes pairs."""

    def __init__(self, config: CrossEncoderConfig) -> None:
        self.config = config
        self._tokenizer: Any = None
        if config.text:
            self._tokenizer = load_tokenizer(config.base)

    @property
    def pad(self) -> int:
        """Token that fills up."""
        return 0 if self._tokenizer is None else self._tokenizer.pad_token_id or 0

    def features(self, shown: Shown) -> np.ndarray:
        """Return the features of all passages. Shape (passages, features)."""
        return pair_features(shown, self.config.features)

    def pairs(self, shown: Shown, features: np.ndarray, places: Sequence[int]) -> list[Pair]:
        """Return the pairs of some passages, by place.

        The chain follows the question as a text of its own, `|` between: not every tokenizer knows a second separator.
        """
        if self._tokenizer is None:
            return [Pair((), (), features[i]) for i in places]
        chain = " ; ".join(line.strip() for line in shown.chain.splitlines() if line.strip())
        left = f"{shown.question} | {chain}" if self.config.chain and shown.chain else shown.question
        passages = [shown.passages[i] for i in places]
        right = [f"{p.title}. {p.text}" if p.title else p.text for p in passages]
        found = self._tokenizer(
            [left] * len(right), right, truncation="longest_first", max_length=self.config.max_tokens
        )
        types = found.get("token_type_ids") or [[0] * len(ids) for ids in found["input_ids"]]
        rows = zip(found["input_ids"], types, places, strict=True)
        return [Pair(tuple(ids), tuple(kinds), features[i]) for ids, kinds, i in rows]

    def batch(self, pairs: Sequence[Pair], rows: int, device: torch.device | str, has_types: bool) -> PairBatch:
        """Return pairs padded to the next multiple of `BUCKET`, filled up to `rows`."""
        features = np.zeros((rows, len(self.config.features)), dtype=np.float32)
        for row, pair in zip(features, pairs, strict=False):
            row[:] = pair.features
        given = torch.from_numpy(features).to(device)
        if self._tokenizer is None:
            return PairBatch(given)
        length = padded(max(len(p.tokens) for p in pairs))
        tokens = np.full((rows, length), self.pad, dtype=np.int64)
        mask, types = np.zeros_like(tokens), np.zeros_like(tokens)
        mask[:, 0] = 1  # filler rows must not divide by zero
        for r, pair in enumerate(pairs):
            size = len(pair.tokens)
            tokens[r, :size], mask[r, :size], types[r, :size] = pair.tokens, 1, pair.types
        made = [torch.from_numpy(part).to(device) for part in (tokens, mask, types)]
        return PairBatch(given, made[0], made[1], made[2] if has_types else None)


class PairScorer:
    """Scores pairs with a network in evaluation mode, each as if alone; `f32`, or `bf16` where the processor has it."""

    def __init__(self, model: CrossEncoder, maker: PairMaker, precision: str = "f32") -> None:
        self.model, self.maker, self.precision = model, maker, precision
        self.device = next(model.parameters()).device
        self.has_types, self.rows = has_types(model), pass_rows(self.device, *ROWS)

    @torch.inference_mode()
    def __call__(self, pairs: Sequence[Pair]) -> list[float]:
        """Return the logit of each pair. All forward passes of one length have the same shape."""
        buckets: dict[int, list[int]] = defaultdict(list)
        for i, pair in enumerate(pairs):
            buckets[padded(len(pair.tokens))].append(i)
        out = [0.0] * len(pairs)
        for _, members in sorted(buckets.items()):
            for start in range(0, len(members), self.rows):
                chunk = members[start : start + self.rows]
                batch = self.maker.batch([pairs[i] for i in chunk], self.rows, self.device, self.has_types)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                    logits = self.model(batch)
                for i, logit in zip(chunk, logits.float().tolist(), strict=False):
                    out[i] = logit
        return out

    @torch.inference_mode()
    def by_features(self, features: np.ndarray) -> np.ndarray:
        """Return what the features alone say, for each passage by itself. Shape (passages,)."""
        size = pass_rows(self.device, 1, self.rows)
        found: list[float] = []
        for start in range(0, len(features), size):
            rows = np.zeros((size, features.shape[1]), np.float32)
            count = len(part := features[start : start + size])
            rows[:count] = part
            found += self.model.by_features_alone(torch.from_numpy(rows).to(self.device)).tolist()[:count]
        return np.array(found)


def score_shown(scorer: PairScorer, shown: Shown, read: int | None, features: np.ndarray) -> np.ndarray:
    """Return the logits of all passages of a task. Shape (passages,), float64; see `best_to_read`."""
    places, rough = best_to_read(scorer, features, read)
    return merged(rough, places, scorer(scorer.maker.pairs(shown, features, places)))


def best_to_read(scorer: PairScorer, features: np.ndarray, read: int | None) -> tuple[list[int], np.ndarray]:
    """Return places of the passages whose text is read, and the score of all by features (passages, features) alone.

    These are the best `read` by the features (by the pool where there are none); None: all.
    """
    rough = scorer.by_features(features)
    order = np.argsort(-rough, kind="stable")
    return sorted(order[: len(rough) if read is None else read].tolist()), rough


def merged(rough: np.ndarray, places: Sequence[int], logits: Sequence[float]) -> np.ndarray:
    """Return all logits: those of texts that were read; what was not read stands below, as the features have it."""
    out = np.array(rough, dtype=np.float64)
    if len(places) < len(out):
        rest = np.ones(len(out), dtype=bool)
        rest[list(places)] = False
        out[rest] = np.minimum(out[rest], min(logits, default=0.0))
    out[list(places)] = logits
    return out


def has_types(model: CrossEncoder) -> bool:
    """Whether the encoder tells question and passage apart by token types."""
    return model.encoder is not None and getattr(model.encoder.config, "type_vocab_size", 0) > 1


def padded(length: int) -> int:
    """Return a length as it is padded to."""
    return -(-max(length, 1) // BUCKET) * BUCKET


# ----------------------------------------------------------------------------------------------------------- the role
@part("role", "verifier.tuned")
class TunedVerifier(LanguageRoleConfig, Role[VerifierTask, Verdict]):
    """Selects the passages that support the chain, as it learned from a teacher.

    ConfigError: no checkpoint is named and none ships. ArtefactError: a damaged checkpoint, one of another role, kind
    or architecture, or another base.
    """

    # The first three are of chains alone, `max_selected` of them, too, the rest not.
    beam: Annotated[int, Field(ge=1)] | None = None  # chains that are followed at once; null: as in training
    next_hop: Annotated[float, Field(ge=0)] | None = None  # weight of what the next-hop encoder expects; null: likewise
    encoder: str | None = None  # checkpoint of that encoder; null: the one that ships
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None  # least probability; null: as learned on validation
    max_selected: Annotated[int, Field(ge=1)] | None = None  # most passages, by their own scores; null: as in training
    read: Annotated[int, Field(ge=0)] | None = None  # passages whose text is read, the best by features; 0: all
    batch_size: Annotated[int, Field(ge=1)] = 256  # pairs that are scored together, of all questions in flight
    device: str = "auto"  # where the network runs: a GPU where there is one; cpu, cuda, cuda:1, ...
    precision: Literal["f32", "bf16"] = "f32"  # bf16 is faster where the processor has it; scores then differ slightly

    kinds = (KIND, CHAIN, *LANGUAGE_KINDS)
    reads = ("embeddings",)

    def setup(self) -> None:
        folder = role_folder("verifier", self.path)
        record = read_tuned(folder, "verifier", self.kinds)
        self._does: LanguageRole | CrossEncoderVerifier | ChainVerifier
        if record.kind == KIND:
            self._does = CrossEncoderVerifier(self.index, folder, record, self)
        elif record.kind == CHAIN:
            how = (self.max_selected, self.beam, self.next_hop, self.encoder, self.base, self.device)
            self._does = ChainVerifier(self.index, folder, record, ChainOptions(*how))
        else:
            self._does = open_language_role(folder, record, "verifier", self)
        self.fingerprint, self.prompters = self._does.fingerprint, self._does.prompters

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        return await self._does(task, session)

    async def close(self) -> None:
        await self._does.close()


class CrossEncoderVerifier(Role[VerifierTask, Verdict]):
    """The cross-encoder's part of `TunedVerifier`: pairs of all questions in flight are scored together."""

    def __init__(self, index: Index, folder: Path, record: TunedRecord, config: TunedVerifier) -> None:
        self.index = index
        model = load_cross_encoder(folder, record, config.base).to(device_named(config.device, "verifier.device"))
        self._maker = PairMaker(model.config)
        self._scorer = PairScorer(model, self._maker, config.precision)
        try:
            self.selection = Selection(**record.facts["selection"])
            self.read = config.read if config.read is not None else record.facts["read"]
        except (KeyError, TypeError) as error:
            raise ArtefactError(f"{folder}: the record lacks {error}; train again with this version") from error
        given: dict[str, Any] = {"threshold": config.threshold, "max_selected": config.max_selected}
        self.selection = replace(self.selection, **{name: v for name, v in given.items() if v is not None})
        self._batcher = MicroBatcher(self._scorer, config.batch_size)
        self._worker = Worker()  # features and cosines: the event loop goes on meanwhile
        how = [self.selection.threshold, self.selection.max_selected, self.read, config.precision]
        self.fingerprint = digest([record.fingerprint, record.base.get("weights"), record.facts["selection"], how])

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        """Return the selected ids in the order shown."""
        if not task.passages:
            return Verdict()
        logits = await self.score(task)
        session.record("verifier_scores", logits=[round(float(v), 4) for v in logits])
        return Verdict(tuple(task.passages[i].id for i in self.selection.places(logits)))

    async def score(self, task: VerifierTask) -> np.ndarray:
        """Return the logit of each passage. Shape (passages,), float64."""
        rough, places, pairs = await self._worker(lambda: self._prepared(task))
        return merged(rough, places, await self._batcher.results(pairs))

    def _prepared(self, task: VerifierTask) -> tuple[Any, Any, Any]:
        """Return what the features alone say, which passages are read, and their pairs."""
        cosines, support = self._cosines(task), frozenset(task.chain.support)
        shown = Shown(task.question.text, task.chain.text, task.passages, task.scores, cosines, support)
        features = self._maker.features(shown)
        places, rough = best_to_read(self._scorer, features, self.read or None)
        return rough, places, self._maker.pairs(shown, features, places)

    def _cosines(self, task: VerifierTask) -> list[float]:
        """Return the cosine of the question and each passage; none where the index lacks one of them."""
        position = self.index.position
        if any(p.id not in position for p in task.passages):
            return []
        vector = self.index.embedder.encode([task.question.text], is_query=True)[0]
        return [float(self.index.passage_vectors[position[p.id]] @ vector) for p in task.passages]

    async def close(self) -> None:
        """Let the thread end."""
        self._batcher.close()
