"""Checkpoints of tuned thoughts that nobody trained."""

from __future__ import annotations

from pathlib import Path

import torch

from gnnrag.gnn.features import encoder_record
from gnnrag.index.index import Index
from gnnrag.roles.tuned.thoughts import FEATURES, Selector, SelectorConfig, save_selector


def make_selector(folder: Path, index: Index, is_guess: bool = False) -> Path:
    """Write a selector with random weights that asks for something at every decision."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(1)
        model = Selector(SelectorConfig(hidden=4, is_guess=is_guess, candidates=30, features=list(FEATURES)))
    torch.nn.init.constant_(model.none.bias, -10.0)
    folder.mkdir(parents=True, exist_ok=True)
    base = {**encoder_record(index.embedder), "name": index.config.embedder.model}
    save_selector(folder, model, base, {})
    return folder
