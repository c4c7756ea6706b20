"""The verifier as a small model trained here: a cross-encoder, or a language model fine-tuned on the prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn

from gnnrag.batching import MicroBatcher, Worker
from gnnrag.config import Share
from gnnrag.devices import device_named, pass_rows
from gnnrag.index.index import Index
from gnnrag.io import digest, interpreting, read_settings
from gnnrag.parts import part
from gnnrag.roles.base import Role, Verdict, VerifierTask
from gnnrag.roles.tuned.chain_verifier import CHAIN, ChainVerifier
from gnnrag.roles.tuned.checkpoint import (
    LANGUAGE_KINDS,
    TunedRecord,
    TunedRole,
    load_encoder,
    load_tokenizer,
    load_trained,
    save_trained,
)
from gnnrag.roles.tuned.pair_features import FEATURES, Reading, Shown, features_of
from gnnrag.session import Session

KIND = "cross_encoder"


@dataclass(frozen=True)
class Selection:
    """How scores become a selection; learned on validation, and part of a checkpoint's record."""

    threshold: float = 0.5  # least probability
    max_selected: int = 5  # at most so many, the most probable
    # scale, shift: probability = sigmoid(scale * logit + shift)
    scale: float = 1.0
    shift: float = 0.0

    def chances(self, logits: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return calibrated probabilities, same length, float64."""
        values = np.clip(self.scale * np.asarray(logits, dtype=np.float64) + self.shift, -60.0, 60.0)
        return 1.0 / (1.0 + np.exp(-values))

    def places(self, logits: Sequence[float] | np.ndarray) -> list[int]:
        """Return the places that are selected, ascending. Of equal scores the earlier one is taken."""
        return chosen(self.chances(logits), self.threshold, self.max_selected)


def chosen(chances: np.ndarray, threshold: float, max_selected: int) -> list[int]:
    """Return the places of at most `max_selected` chances that reach the threshold, ascending."""
    order = np.argsort(-chances, kind="stable")[:max_selected]
    return sorted(int(i) for i in order if chances[i] >= threshold and not np.isnan(chances[i]))


@dataclass
class CrossEncoderConfig:
    """The network; a checkpoint names all of it."""

    base: str = "embedded"  # the encoder: the embedded MiniLM, a folder, or a name on the Hugging Face hub
    text: bool = True  # read question, chain and passage; false: the features alone decide
    max_tokens: Annotated[int, Ge(16)] = 192  # of a pair; the longer part of it is cut first
    pooling: Literal["mean", "cls"] = "mean"  # of the encoder's last layer
    hidden: Annotated[int, Ge(1)] = 64  # width of the layer that joins text and features
    feature_hidden: Annotated[int, Ge(1)] = 16  # width of the layer that reads the features alone
    train_layers: Annotated[int, Ge(0)] | None = 2  # top layers that are trained; null: the whole encoder
    encoder_rate: float = 0.01  # learning rate of the encoder, as a share of that of the head (fit.lr)


@dataclass(frozen=True)
class PairBatch:
    """Pairs, ready for the network."""

    features: Tensor  # (batch, features) float32
    # tokens, mask, types: (batch, length) int64; None where no text is read
    tokens: Tensor | None = None
    mask: Tensor | None = None
    types: Tensor | None = None


class CrossEncoder(nn.Module):
    """logit = f(features) + g(text, features); g starts at zero: the encoder learns what the features cannot tell."""

    def __init__(self, config: CrossEncoderConfig) -> None:
        super().__init__()
        self.config, count = config, len(FEATURES)
        self.encoder: Any = None
        self.by_features = nn.Sequential(
            nn.Linear(count, config.feature_hidden), nn.Tanh(), nn.Linear(config.feature_hidden, 1, bias=False)
        )
        if config.text:
            self.encoder, width = load_encoder(config.base, config.train_layers)
            self.norm = nn.LayerNorm(width)
            self.join = nn.Linear(width + count, config.hidden)
            self.out = nn.Linear(config.hidden, 1, bias=False)
            nn.init.zeros_(self.out.weight)

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
        return self.by_features(features).squeeze(1).float()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return what is trained, the encoder at a rate of its own."""
        own = [p for name, p in self.named_parameters() if p.requires_grad and not name.startswith("encoder.")]
        groups: list[dict[str, Any]] = [{"params": own}]
        if self.encoder is not None and (rest := [p for p in self.encoder.parameters() if p.requires_grad]):
            groups.append({"params": rest, "scale": self.config.encoder_rate})
        return groups


def save_cross_encoder(folder: Path, model: CrossEncoder, facts: dict[str, Any]) -> None:
    """Write a checkpoint: trained weights and record."""
    save_trained(folder, model, TunedRecord("verifier", KIND, facts=facts))


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
        return features_of(Reading(shown), list(FEATURES))

    def pairs(self, shown: Shown, features: np.ndarray, places: Sequence[int]) -> list[Pair]:
        """Return the pairs of some passages, by place.

        The chain follows the question as a text of its own, `|` between: not every tokenizer knows a second separator.
        """
        if self._tokenizer is None:
            return [Pair((), (), features[i]) for i in places]
        chain = " ; ".join(line.strip() for line in shown.chain.splitlines() if line.strip())
        left = f"{shown.question} | {chain}" if shown.chain else shown.question
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
        features = np.zeros((rows, len(FEATURES)), dtype=np.float32)
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
    """Scores pairs with a network in evaluation mode, each as if alone."""

    def __init__(self, model: CrossEncoder, maker: PairMaker) -> None:
        self.model, self.maker = model, maker
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
class TunedVerifier(TunedRole):
    """Selects the passages that support the chain, as it learned from a teacher."""

    # Of chains alone:
    beam: Annotated[int, Ge(1)] | None = None  # chains that are followed at once; null: as in training
    next_hop: Annotated[float, Ge(0)] | None = None  # weight of the next-hop encoder; null: as in training, 0: without
    encoder: str | None = None  # checkpoint of that encoder; null: the one that ships
    # Of both:
    max_selected: Annotated[int, Ge(1)] | None = None  # most passages that are selected; null: as in training
    device: str = "auto"  # where the network runs: a GPU where there is one; cpu, cuda, cuda:1, ...
    # Of cross-encoders alone:
    threshold: Share | None = None  # least probability of a selected passage; null: as learned on validation
    read: Annotated[int, Ge(0)] | None = None  # passages whose text is read; null: as in training, 0: all
    batch_size: Annotated[int, Ge(1)] = 256  # pairs that are scored together, of all questions in flight

    role: ClassVar[str] = "verifier"
    kinds: ClassVar[tuple[str, ...]] = (KIND, CHAIN, *LANGUAGE_KINDS)
    reads = ("embeddings",)

    def open(self, folder: Path, record: TunedRecord) -> Role[VerifierTask, Verdict]:
        """Return the cross-encoder's or the chain's part."""
        cls = ChainVerifier if record.kind == CHAIN else CrossEncoderVerifier
        return cls(self.index, folder, record, self)


class CrossEncoderVerifier(Role[VerifierTask, Verdict]):
    """Selects passages by their scores; pairs of all questions in flight are scored together."""

    def __init__(self, index: Index, folder: Path, record: TunedRecord, settings: TunedVerifier) -> None:
        self.index = index
        model = load_cross_encoder(folder, record, settings.base).to(device_named(settings.device, "verifier.device"))
        self._maker = PairMaker(model.config)
        self._scorer = PairScorer(model, self._maker)
        with interpreting(folder, "train again with this version"):
            self.selection = Selection(**record.facts["selection"])
            self.read = settings.read if settings.read is not None else record.facts["read"]
        given: dict[str, Any] = {"threshold": settings.threshold, "max_selected": settings.max_selected}
        self.selection = replace(self.selection, **{name: v for name, v in given.items() if v is not None})
        self._batcher = MicroBatcher(self._scorer, settings.batch_size)
        self._worker = Worker()  # features and cosines: the event loop goes on meanwhile
        how = [self.selection.threshold, self.selection.max_selected, self.read]
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
