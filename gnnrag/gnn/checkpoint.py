"""Save, load and start models: ours, and checkpoints that GFM-RAG released."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.gnn import GNNConfig, RankerConfig
from gnnrag.gnn.model import QueryGNN
from gnnrag.io import (
    WEIGHTS,
    difference,
    fill,
    load_tensors,
    read_object,
    read_record,
    read_settings,
    save_tensors,
    write_json,
)

# Their names (without the prefix `entity_model.`) and ours.
_RENAMED = {
    "ent_mlp": "node_mlp",
    "early_fuse_mlp.0": "early_in",
    "early_fuse_mlp.2": "early_out",
    "predict_mlp.0": "head_in",
    "predict_mlp.2": "head_out",
    "mlp.0": "head_in",
    "mlp.2": "head_out",
}


def load_released(path: Path, aggregate: str = "sum", shortcut: bool = True) -> QueryGNN:
    """Read a `model.pth` of gfm-rag (`{"model": state dict}`, or the state dict itself) without running its code.

    Width, depth, norm and fusion follow from the tensors; `aggregate` (but for pna) and `shortcut` leave no mark in
    them and must be those of training. The network gets `upstream_direction`, as the released kernel sends messages
    against edges. ArtefactError for no file, or no state dict of these models; names the first tensor that differs.
    """
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the reader raises several unrelated types
        raise ArtefactError(
            f"{path} cannot be read as released weights ({str(error).strip().splitlines()[:1]})"
        ) from error
    state = held.get("model", held) if isinstance(held, dict) else None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ArtefactError(f"{path} holds no state dict; expected a mapping of names to tensors under 'model'")
    return import_released(state, path, aggregate, shortcut)


def import_released(state: Mapping[str, Tensor], path: Path, aggregate: str = "sum", shortcut: bool = True) -> QueryGNN:
    """Build the network that a released state dict is of; see `load_released`."""
    names = {name.removeprefix("entity_model."): tensor for name, tensor in state.items()}
    late = "predict_mlp.0.weight" in names
    renamed = {}
    for name, tensor in names.items():
        part, _, kind = name.rpartition(".")
        if late and part in ("mlp.0", "mlp.2"):  # the head that late fusion replaced
            continue
        renamed[f"{_RENAMED.get(part, part)}.{kind}"] = tensor
    for name in ("rel_mlp.weight", "question_mlp.weight", "head_in.weight", "layers.0.linear.weight"):
        if name not in renamed or renamed[name].dim() != 2:
            raise ArtefactError(f"{path}: tensor {name!r} is missing; these are no weights of GFM-RAG or G-reasoner")
    d, text_size = renamed["rel_mlp.weight"].shape
    early, text = "early_in.weight" in renamed, "node_mlp.weight" in renamed
    layers = 1 + max(int(found[1]) for name in renamed if (found := re.match(r"layers\.(\d+)\.", name)))
    parts = renamed["head_in.weight"].shape[1] // d - (2 if late else 1)
    config = GNNConfig(
        mode="node" if text else "entity",
        dim=d,
        layers=layers,
        aggregate=aggregate,  # type: ignore[arg-type]  # one of them: its tensors were found
        shortcut=shortcut,
        norm="layers.0.layer_norm.weight" in renamed,
        concat_hidden=parts == layers and layers > 1,
        fusion="both" if early and late else "early" if early else "late" if late else "none",
        node_text=text,
        seed_weight=not text,
        upstream_direction=True,
    )
    model = QueryGNN(config, text_size)
    fill(model.state_dict(), renamed, path)
    return model.eval()


RECORD = "config.json"


@dataclass
class Checkpoint:
    """A network with what it was trained for; with text vectors of another `encoder` it runs, and ranks at random."""

    model: QueryGNN
    ranker: RankerConfig | None = None  # of networks over entities
    encoder: dict[str, Any] = field(default_factory=dict)  # model, weights, query prefix
    facts: dict[str, Any] = field(default_factory=dict)  # fingerprints of training graphs, threshold, steps, scores


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write weights, then the record."""
    save_tensors(folder / WEIGHTS, checkpoint.model.state_dict())
    record = {
        "network": asdict(checkpoint.model.config),
        "ranker": asdict(checkpoint.ranker) if checkpoint.ranker else None,
        "encoder": {**checkpoint.encoder, "size": checkpoint.model.text_size},
        "facts": checkpoint.facts,
    }
    write_json(folder / RECORD, record)


def load_checkpoint(folder: Path, expected: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a checkpoint; `expected` is the part of the record that must agree, such as `{"encoder": {...}}`.

    Raises ArtefactError that names the first difference: files missing or damaged, another record than expected, or
    weights of another network.
    """
    kinds = {"network": dict, "encoder": dict, "facts": dict, "ranker": (dict, type(None))}
    path = folder / RECORD
    record = read_record(path, kinds, "gnn.checkpoint must name a folder that training wrote")
    if problem := difference(record, expected or {}):
        raise ArtefactError(f"{path}: {problem}; use a checkpoint trained with these settings, or train one")
    ranker = read_settings(RankerConfig, record["ranker"], path) if record["ranker"] else None
    try:
        model = QueryGNN(read_settings(GNNConfig, record["network"], path), record["encoder"]["size"])
    except ConfigError as error:
        raise ArtefactError(f"{path}: {error}") from error
    fill(model.state_dict(), load_tensors(folder / WEIGHTS), folder / WEIGHTS)
    encoder = {name: value for name, value in record["encoder"].items() if name != "size"}
    return Checkpoint(model.eval(), ranker, encoder, record["facts"])


RELEASED = "model.pth"


def start_from(model: QueryGNN, folder: Path, encoder: Mapping[str, Any], embedder: str) -> None:
    """Give a network the weights of a checkpoint.

    `folder` is what `save_checkpoint` wrote, or holds the `model.pth` and `config.json` of gfm-rag. `encoder` is the
    `encoder_record` of the embedder in use, and `embedder` its name or folder, all that gfm-rag's record says of its
    own. Raises ArtefactError for damage, or another architecture or embedder; names the first difference.
    """
    path = folder / RECORD
    if (folder / RELEASED).is_file():
        # What the tensors cannot tell, the record may.
        record = read_object(path)
        section = record.get("model_config") or {}
        stated = section.get("entity_model", section)
        aggregate = str(stated.get("aggregate_func", model.config.aggregate))
        shortcut = str(stated.get("short_cut", model.config.shortcut)).lower() in ("true", "yes")
        start = load_released(folder / RELEASED, aggregate, shortcut)
        section = record.get("text_emb_model_config") or {}
        named = Path(str(section.get("text_emb_model_name") or section.get("model_name_or_path") or "")).name
        if named and named != Path(embedder).name:
            raise ArtefactError(
                f"{path}: trained with the embedder {named!r}, the index has {embedder!r}; give a folder or model of "
                "that name as index.embedder.model"
            )
    else:
        start = load_checkpoint(folder, {"encoder": encoder}).model
    free = {"link_vectors": model.config.link_vectors}  # where questions start does not decide the weights
    if problem := difference({**asdict(start.config), **free}, asdict(model.config), "gnn"):
        raise ArtefactError(f"{path}: {problem}; give the settings of the checkpoint that start= names")
    if start.text_size != model.text_size:
        raise ArtefactError(f"{path}: text vectors of length {start.text_size}, the index has {model.text_size}")
    model.load_state_dict(start.state_dict())
