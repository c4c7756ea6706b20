"""From what a verifier is shown to batches of pairs, and to scores that no other pair in the batch can change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnrag.tuned.cross_encoder import CrossEncoder, CrossEncoderConfig, PairBatch
from gnnrag.tuned.encoder import load_tokenizer
from gnnrag.tuned.pair_features import Shown, pair_features

BUCKET = 32  # token lengths are padded to multiples of this
ROWS = 16  # pairs of a forward pass; with fewer, the rest is filled up


@dataclass(frozen=True, eq=False)
class Pair:
    """A passage as the network sees it: tokens with their types (0 question and chain, 1 passage), and features."""

    tokens: tuple[int, ...]
    types: tuple[int, ...]
    features: np.ndarray  # (features,) float32


class PairMaker:
    """Makes pairs.

    Args:
        config: of the network.
    """

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

        The chain follows the question as a text of its own, `|` between: every tokenizer knows that, not every one a
        second separator.
        """
        if self._tokenizer is None:
            return [Pair((), (), features[i]) for i in places]
        left = f"{shown.question} | {_one_line(shown.chain)}" if self.config.chain and shown.chain else shown.question
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
    """Scores pairs with a network, each as if it were alone.

    Args:
        model: the network, in evaluation mode, where it is to compute.
        maker: of its pairs.
        precision: `f32`, or `bf16` where the processor has it.
    """

    def __init__(self, model: CrossEncoder, maker: PairMaker, precision: str = "f32") -> None:
        self.model, self.maker, self.precision = model, maker, precision
        self.device = next(model.parameters()).device
        self.has_types = has_types(model)

    @torch.inference_mode()
    def __call__(self, pairs: Sequence[Pair]) -> list[float]:
        """Return the logit of each pair. All forward passes of one length have the same shape."""
        buckets: dict[int, list[int]] = defaultdict(list)
        for i, pair in enumerate(pairs):
            buckets[padded(len(pair.tokens))].append(i)
        out = [0.0] * len(pairs)
        for _, members in sorted(buckets.items()):
            for start in range(0, len(members), ROWS):
                chunk = members[start : start + ROWS]
                batch = self.maker.batch([pairs[i] for i in chunk], ROWS, self.device, self.has_types)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                    logits = self.model(batch)
                for i, logit in zip(chunk, logits.float().tolist(), strict=False):
                    out[i] = logit
        return out

    @torch.inference_mode()
    def by_features(self, features: np.ndarray) -> np.ndarray:
        """Return what the features alone say, for each passage by itself. Shape (passages,)."""
        rows = [torch.from_numpy(row[None]).to(self.device) for row in features]
        return np.array([float(self.model.judge(row)) for row in rows])


def score_shown(scorer: PairScorer, shown: Shown, read: int | None, features: np.ndarray) -> np.ndarray:
    """Return the logits of all passages of a task. Shape (passages,), float64; see `best_to_read`."""
    places, rough = best_to_read(scorer, features, read)
    return merged(rough, places, scorer(scorer.maker.pairs(shown, features, places)))


def best_to_read(scorer: PairScorer, features: np.ndarray, read: int | None) -> tuple[list[int], np.ndarray]:
    """Return the places of the passages whose text is read, and what the features alone say of all passages.

    Args:
        scorer: of the pairs.
        features: (passages, features).
        read: how many, the best by the features (by the pool where there are none); None: all.
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


def _one_line(chain: str) -> str:
    return " ; ".join(line.strip() for line in chain.splitlines() if line.strip())
