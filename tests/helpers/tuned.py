"""Tiny checkpoints of every kind of every tuned role, without training: random weights, made offline."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gnnrag.index.index import Index
from gnnrag.parts import find_class
from gnnrag.prompts import load_prompt
from gnnrag.roles.tuned.checkpoint import RECORD, TunedRecord, tuned_folder, write_tuned
from tests.helpers.names import ROLES, forms
from tests.helpers.parts import CORPUS
from tests.helpers.tiny_encoder import make_tiny_encoder
from tests.helpers.tiny_model import make_tiny_model
from tests.helpers.toy_verifier import save_cross_encoder

Maker = Callable[..., None]


def base_of(run: Path) -> str:
    """Return the encoder that a checkpoint was made on: whoever opens it names it, unless it is the embedded one."""
    try:
        return json.loads((tuned_folder(run) / RECORD).read_text("utf-8"))["settings"].get("base", "embedded")
    except (OSError, ValueError):  # damaged on purpose
        return "embedded"


def make_cross_encoder(folder: Path, index: Index) -> None:
    """Write a verifier that reads each passage with a tiny encoder."""
    import torch

    from gnnrag.roles.tuned.verifier import Selection
    from gnnrag.training.verifier import CrossEncoderConfig, open_base

    torch.manual_seed(5)
    config = CrossEncoderConfig(str(_encoder(folder)), 64)
    model = open_base(config)
    _shake(model)
    save_cross_encoder(folder, model, config, {"selection": asdict(Selection(-0.3))})


def make_chain(folder: Path, index: Index) -> None:
    """Write a verifier of chains of three passages; it reads no text."""
    import torch

    from gnnrag.roles.tuned.chain_verifier import ChainConfig, ChainScorer
    from gnnrag.roles.tuned.checkpoint import save_trained

    torch.manual_seed(5)
    config = ChainConfig(hidden=4, length=3)
    model = ChainScorer(config)
    _shake(model)
    save_trained(folder, model, {})


def make_span(folder: Path, index: Index) -> None:
    """Write a reader on a tiny encoder."""
    import torch

    from gnnrag.roles.tuned.checkpoint import save_trained
    from gnnrag.roles.tuned.span_items import SpanReaderConfig
    from gnnrag.roles.tuned.span_network import SpanReader

    torch.manual_seed(5)
    config = SpanReaderConfig(base=str(_encoder(folder)), train_layers=0, text_tokens=64)
    model = SpanReader(config)
    _shake(model)
    save_trained(folder, model, {})


def make_causal(folder: Path, role: str) -> None:
    """Write a merged language model: its replies are noise."""
    make_tiny_model(folder, lively=True)
    _language_record(folder, role, "causal")


def _language_record(folder: Path, role: str, kind: str) -> None:
    prompt = load_prompt(role, *["abstain"] * (role == "reader"))
    settings = {"prompted": {"max_tokens": 8, **({"abstain": True} if role == "reader" else {})}}
    write_tuned(folder, TunedRecord(role, kind, {}, settings, {"prompts": {prompt.name: prompt.digest}}))


def _encoder(folder: Path) -> Path:
    """Return the tiny encoder beside a checkpoint, made where it is missing."""
    base = folder.with_name(f"{folder.name}-base")
    return base if base.exists() else make_tiny_encoder(base, [passage.content for passage in CORPUS])


def _shake(model: Any) -> None:
    """Give random values to trained weights that begin at zero."""
    import torch

    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not name.startswith("encoder."):
                weight.add_(0.3 * torch.randn_like(weight))


NETWORKS: Mapping[tuple[str, str], Maker] = {
    ("verifier", "cross_encoder"): make_cross_encoder,
    ("verifier", "chain"): make_chain,
    ("reader", "span"): make_span,
}
LANGUAGE: Mapping[str, Maker] = {"causal": make_causal}


def kinds() -> list[tuple[str, str]]:
    """Return role and kind of every checkpoint that a registered role accepts."""
    found = [(role, find_class("role", f"{role}.tuned")) for role in ROLES if "tuned" in forms(role)]
    return [(role, kind) for role, cls in found for kind in cls.kinds]


def make_tuned(folder: Path, role: str, kind: str, index: Index) -> Path:
    """Write a tiny checkpoint.

    Args:
        folder: where to; one that is there stays as it is.
        role: that it is for.
        kind: of model.
        index: an index whose embedder it is to fit.
    """
    if not folder.exists():
        folder.mkdir(parents=True)
        if kind in LANGUAGE:
            LANGUAGE[kind](folder, role)
        else:
            NETWORKS[role, kind](folder, index)
    return folder
