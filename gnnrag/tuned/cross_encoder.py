"""A cross-encoder that judges passages: an encoder reads (question and chain, passage), a head adds pair features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gnnrag.errors import ConfigError, nearest
from gnnrag.tuned.encoder import STORES, load_encoder, load_trained, save_trained
from gnnrag.tuned.folder import TunedRecord
from gnnrag.tuned.pair_features import FEATURES
from gnnrag.weights import read_settings

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
    """Pairs, ready for the network.

    Attributes:
        features: (batch, features) float32.
        tokens, mask, types: (batch, length) int64; None where no text is read.
    """

    features: Tensor
    tokens: Tensor | None = None
    mask: Tensor | None = None
    types: Tensor | None = None


class CrossEncoder(nn.Module):
    """logit = f(features) + g(text, features): what the features say, corrected by who has read the text.

    g starts at zero, so that the encoder learns what the features cannot tell.

    Args:
        config: see `CrossEncoderConfig`.

    Raises:
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
        logits = self.judge(batch.features)
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

    def judge(self, features: Tensor) -> Tensor:
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
    """Return a network of the features."""
    if not count:
        return _Nothing()
    if not hidden:
        return nn.Linear(count, 1, bias=False)
    return nn.Sequential(nn.Linear(count, hidden), nn.Tanh(), nn.Linear(hidden, 1, bias=False))


def save_cross_encoder(
    folder: Path, model: CrossEncoder, role: str, settings: Mapping[str, Any], facts: Mapping[str, Any]
) -> None:
    """Write a checkpoint: trained weights and record.

    Args:
        folder: where to.
        model: the network.
        role: that it is for.
        settings: of the network, as plain data.
        facts: anything else.
    """
    save_trained(folder, model, TunedRecord(role, KIND, {}, dict(settings), dict(facts)))


def load_cross_encoder(folder: Path, record: TunedRecord, base: str | None = None) -> CrossEncoder:
    """Load a checkpoint.

    Args:
        folder: its own folder.
        record: read from it.
        base: where the encoder lies now, if not where it was trained.

    Raises:
        ArtefactError: damaged, of another architecture, or made from another base.
    """
    config = read_settings(CrossEncoderConfig, record.settings, folder)
    return load_trained(folder, record, CrossEncoder, config, base)
