"""A next-hop encoder that nobody trained, on a tiny base, and an index by the same base."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from gnnrag.index.index import Index, build_index
from gnnrag.index_config import EmbedderConfig
from gnnrag.roles.tuned.checkpoint import save_trained
from gnnrag.roles.tuned.thoughts import NextHopConfig, NextHopEncoder
from tests.helpers.indexes import HASH
from tests.helpers.parts import CORPUS
from tests.helpers.tiny_encoder import make_tiny_encoder

QUESTIONS = ("Where was the director of Copper Road born?", "Who was born in Tromso?", "What is it?")


def make_base(folder: Path, seed: int = 0) -> Path:
    """Write a base encoder."""
    return make_tiny_encoder(folder, [passage.content for passage in CORPUS], seed)


def index_by(base: Path, folder: Path) -> Index:
    """Return an index of the inline corpus with the vectors of a base."""
    settings = replace(HASH, embedder=EmbedderConfig(model=str(base), backend="torch"))
    build_index(folder, CORPUS, settings, ("embeddings", "lexical", "hierarchy"))
    return Index(folder, settings)


def make_network(base: Path, shaken: float = 0.0, **settings: object) -> NextHopEncoder:
    """Return a network as training begins with it, or with its adapter moved by noise."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = NextHopEncoder(NextHopConfig(base=str(base), rank=2, **settings)).eval()  # type: ignore[arg-type]
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.add_(shaken * torch.randn_like(weight))
    return model


def make_next_hop(folder: Path, base: Path, shaken: float = 0.2) -> Path:
    """Write a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    save_trained(folder, make_network(base, shaken), {"step": 0})
    return folder
