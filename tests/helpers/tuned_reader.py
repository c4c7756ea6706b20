"""A span reader without training, and questions small enough to learn by heart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gnnrag.roles.tuned.checkpoint import save_trained
from gnnrag.roles.tuned.span_items import SpanItem, SpanReaderConfig, WindowMaker, make_item
from gnnrag.roles.tuned.span_network import SpanReader
from gnnrag.training.reader import ReaderQuestion
from gnnrag.types import Passage
from tests.helpers.tiny_encoder import make_tiny_encoder

PASSAGES = (
    Passage("a", "Ada Lovelace", "Ada Lovelace was born in London. Her father was Lord Byron. She died in 1852."),
    Passage("b", "Lord Byron", "Lord Byron was a poet. He died in Missolonghi in 1824. He wrote Don Juan."),
    Passage("c", "Missolonghi", "Missolonghi is a town in western Greece. It has 34,416 inhabitants."),
    Passage("d", "Don Juan", 'Don Juan is a poem of 1819. It was printed by Thomas Davison after "Beppo".'),
)
QUESTIONS = (
    ReaderQuestion(
        "Where did the father of Ada Lovelace die?", ("Missolonghi",), ("a", "b"), ("b",), ("a", "b", "c", "d")
    ),
    ReaderQuestion(
        "How many inhabitants has the town where Lord Byron died?", ("34,416",), ("b", "c"), ("c",), ("c", "b", "d")
    ),
    ReaderQuestion(
        "Who printed the poem by the father of Ada Lovelace?", ("Thomas Davison",), ("a", "b", "d"), ("d",), ("d",)
    ),
    ReaderQuestion("Is Missolonghi in Greece?", ("yes",), ("c",), ("c",), ("c", "a")),
)


def network_config(folder: Path, **more: Any) -> SpanReaderConfig:
    """Return settings of a network on a tiny encoder, which is made where it is missing."""
    base = folder / "base"
    if not base.is_dir():
        make_tiny_encoder(base, [p.content for p in PASSAGES] + [q.text for q in QUESTIONS])
    given: dict[str, Any] = {"base": str(base), "train_layers": 1} | more
    return SpanReaderConfig(**given)


def item_of(config: SpanReaderConfig, question: str, passages: Sequence[Passage]) -> SpanItem:
    """Return the item of a question for a network."""
    return make_item(question, passages, WindowMaker(config))


def make_reader(config: SpanReaderConfig, seed: int = 0) -> SpanReader:
    """Return a random network."""
    torch.manual_seed(seed)
    return SpanReader(config).eval()


def make_span(folder: Path, index: Any = None, sureness: dict[str, Any] | None = None, **more: Any) -> Path:
    """Write a random checkpoint into `folder`/span; its base lies beside it. About 0.2 s."""
    folder.mkdir(parents=True, exist_ok=True)
    config = network_config(folder, **more)
    save_trained(folder / "span", make_reader(config), {"sureness": sureness} if sureness else {})
    return folder / "span"
