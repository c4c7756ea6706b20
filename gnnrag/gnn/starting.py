"""What a training starts from: an earlier checkpoint, or a folder that gfm-rag released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError
from gnnrag.files import read_json
from gnnrag.gnn.checkpoint import RECORD, load_checkpoint
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.released import load_released
from gnnrag.weights import difference

RELEASED = "model.pth"


def start_from(model: QueryGNN, folder: Path, encoder: Mapping[str, Any], embedder: str) -> None:
    """Give a network the weights of a checkpoint; its ranker only those of the same ranker.

    Args:
        model: the network, as the settings say.
        folder: what `save_checkpoint` wrote, or the `model.pth` and `config.json` of gfm-rag.
        encoder: the record of the embedder in use, as `encoder_record` makes it.
        embedder: its name or folder, which is all that a released folder says of its own.

    Raises:
        ArtefactError: damage, or another architecture or embedder; names the first difference.
    """
    if (folder / RELEASED).is_file():
        _start_from_released(model, folder, embedder)
        return
    found = load_checkpoint(folder, {"encoder": encoder})
    _same_network(model, found.model, folder / RECORD)
    weights = dict(found.model.state_dict())
    ranker = getattr(model, "ranker", None)
    if ranker is not None and found.ranker is not None and found.ranker.config == ranker.config:
        weights |= {f"ranker.{name}": value for name, value in found.ranker.state_dict().items()}
    model.load_state_dict(weights, strict=False)


def _same_network(model: QueryGNN, other: QueryGNN, path: Path) -> None:
    """Compare what decides the weights; where questions start is free."""
    free = {"link_vectors": model.config.link_vectors}
    problem = difference({**asdict(other.config), **free}, asdict(model.config), "gnn")
    if problem:
        raise ArtefactError(f"{path}: {problem}; give the settings of the checkpoint that start= names")
    if other.text_size != model.text_size:
        raise ArtefactError(
            f"{path}: text vectors of length {other.text_size}, the index has {model.text_size}; use its embedder"
        )


def _start_from_released(model: QueryGNN, folder: Path, embedder: str) -> None:
    record = _released_record(folder / RECORD)
    _same_as_stated(model, record, folder / RECORD)
    released = load_released(folder / RELEASED, model.config.aggregate, model.config.shortcut)
    _same_network(model, released, folder / RELEASED)
    if (named := _released_encoder(record)) and named != _last(embedder):
        raise ArtefactError(
            f"{folder / RECORD}: trained with the embedder {named!r}, the index has {embedder!r}; give "
            "a folder or model of that name as index.embedder.model"
        )
    model.load_state_dict(released.state_dict(), strict=False)


def _released_record(path: Path) -> Mapping[str, Any]:
    """Return gfm-rag's record; nothing where it has none."""
    try:
        record = read_json(path)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ArtefactError(f"{path} is no JSON ({error}); copy the checkpoint again") from error
    return record if isinstance(record, dict) else {}


def _same_as_stated(model: QueryGNN, record: Mapping[str, Any], path: Path) -> None:
    """Compare with what the record says of settings that the tensors cannot tell."""
    section = record.get("model_config")
    inner = section.get("entity_model", section) if isinstance(section, dict) else None
    stated = inner if isinstance(inner, dict) else {}
    for theirs, ours in (("aggregate_func", "aggregate"), ("short_cut", "shortcut")):
        have = getattr(model.config, ours)
        if theirs in stated and stated[theirs] not in (have, str(have).lower()):
            raise ArtefactError(f"{path}: {theirs} is {stated[theirs]!r}; give gnn.{ours}={stated[theirs]}")


def _released_encoder(record: Mapping[str, Any]) -> str:
    """Return the last part of the embedder's name in gfm-rag's record, or nothing where it has none."""
    section = record.get("text_emb_model_config")
    name = section.get("text_emb_model_name") or section.get("model_name_or_path") if isinstance(section, dict) else ""
    return _last(str(name or ""))


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
