"""A verifier small enough for tests: an encoder of one or two layers, and decisions that follow a simple rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gnnrag.io import write_jsonl
from gnnrag.training.rows import ShownPassage, VerifierRow, plain_rows

PLACES = ("Kalmar", "Tromso", "Lubeck", "Visby", "Odense", "Bergen", "Turku", "Malmo")
WORDS = ("born", "castle", "film", "harbour", "north", "poet", "shipyard", "song")


def make_encoder(folder: Path, layers: int = 2, seed: int = 0) -> Path:
    """Write a random BERT that reads the words of the toy decisions."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    known = [*(w.lower() for w in PLACES), *WORDS, "where", "was", "in", "the", "is", "a", "of", ".", "|", ";", "?"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *known]
    folder.mkdir(parents=True, exist_ok=True)
    BertTokenizerFast(vocab={word: number for number, word in enumerate(vocabulary)}).save_pretrained(folder)
    torch.manual_seed(seed)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": layers, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, initializer_range=0.2, **shape)
    BertModel(config).save_pretrained(folder)
    return folder


def save_cross_encoder(folder: Path, model: Any, config: Any, facts: dict[str, Any]) -> None:
    """Write a checkpoint of a cross-encoder."""
    from gnnrag.roles.tuned.checkpoint import TunedRecord, write_tuned
    from gnnrag.roles.tuned.verifier import KIND

    model.save_pretrained(str(folder), create_model_card=False)
    write_tuned(folder, TunedRecord("verifier", KIND, {"name": config.base}, asdict(config), facts))


def make_verifier(root: Path) -> Path:
    """Write a random cross-encoder into `root`/best, its base into `root`/encoder."""
    import torch

    from gnnrag.roles.tuned.verifier import Selection
    from gnnrag.training.verifier import CrossEncoderConfig, open_base

    config = CrossEncoderConfig(str(make_encoder(root / "encoder")), 64)
    torch.manual_seed(2)
    model = open_base(config)
    torch.nn.init.normal_(model[0].model.classifier.weight)
    torch.nn.init.normal_(model[0].model.bert.pooler.dense.weight, std=0.2)  # else tanh makes a handful of values
    (root / "best").mkdir()
    facts = {"selection": asdict(Selection(-0.4, 5)), "threshold": -0.4}
    save_cross_encoder(root / "best", model, config, facts)
    return root


def make_rows(count: int = 12, passages: int = 8) -> list[VerifierRow]:
    """Return decisions: two passages of each are right, the one of the question's title and the one that it names."""
    rows = []
    for number in range(count):
        first, second = PLACES[number % 8], PLACES[(number * 3 + 1) % 8]
        second = second if second != first else PLACES[(number + 5) % 8]
        shown, other = [], f"{WORDS[number // 8 % 8]} " if number >= 8 else ""  # equal texts would be one question
        for i in range(passages):
            title = (first, second)[i] if i < 2 else f"{WORDS[(number + i) % 8]} {WORDS[(i * 5) % 8]}"
            text = f"The {WORDS[i % 8]} of {second if i == 0 else 'the north'} is a {WORDS[(i + number) % 8]}."
            score = round(1.0 - ((i * 3 + number) % passages) / passages, 4)
            shown.append(ShownPassage(id=f"p{number}-{i}", title=title, text=text, score=score, cosine=0.1 * (i % 4)))
        right = (f"p{number}-0", f"p{number}-1")
        rows.append(
            VerifierRow(
                id=f"r{number}",
                set="toy",
                question_id=f"q{number}",
                question=f"Where was the {other}poet of {first} born?",
                teacher="oracle",
                passages=tuple(sorted(shown, key=lambda p: -(p.score or 0.0))),
                chain=f"{first} [1]\n{first} -> {second} -> {second} [2]",
                selected=right,
                gold=right,
            )
        )
    return rows


def write_rows(path: Path, rows: Sequence[VerifierRow]) -> Path:
    """Write decisions as collect_traces.py does."""
    write_jsonl(path, plain_rows(rows))
    return path
