"""Save, load and start models: ours, and checkpoints that GFM-RAG released."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gnnrag.common.files import file_digest, open_regular, read_json, write_json
from gnnrag.common.records import (
    LARGEST,
    WEIGHTS,
    check_shapes,
    difference,
    fill,
    load_tensors,
    read_record,
    read_settings,
    save_tensors,
)
from gnnrag.errors import ArtefactError, ConfigError, GnnragError
from gnnrag.gnn import GNNConfig, RankerConfig
from gnnrag.gnn.model import QueryGNN, Ranker

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
        with open_regular(path) as file:
            held = torch.load(file, map_location="cpu", weights_only=True)
    except GnnragError:
        raise
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
    of_pna = renamed["layers.0.linear.weight"].shape[1] == 13 * d
    if of_pna != (aggregate == "pna"):
        told = "of aggregate pna" if of_pna else "not of aggregate pna"
        raise ArtefactError(
            f"{path}: its tensors are {told}, and gnn.aggregate={aggregate!r}; give that of the weights"
        )
    config = GNNConfig(
        mode="node" if text else "entity",
        dim=d,
        layers=layers,
        aggregate=aggregate,
        shortcut=shortcut,
        norm="layers.0.layer_norm.weight" in renamed,
        concat_hidden=parts == layers and layers > 1,
        fusion={(True, True): "both", (True, False): "early", (False, True): "late"}.get((early, late), "none"),
        node_text=text,
        seed_weight=not text,
        upstream_direction=True,
    )
    model = QueryGNN(config, text_size)
    fill(model.state_dict(), renamed, path)
    return model.eval()


RECORD = "config.json"
_FORMAT = 1
_PLAIN = {"revision": None, "query_prefix": "", "document_prefix": ""}  # of encoders, where a record does not say it


@dataclass
class Checkpoint:
    """A network with what it was trained for; with text vectors of another `encoder` it runs, and ranks at random."""

    model: QueryGNN
    ranker: Ranker | None = None  # of networks over entities
    encoder: dict[str, Any] = field(default_factory=dict)  # name, weights, normalised, query and document prefixes
    facts: dict[str, Any] = field(default_factory=dict)  # fingerprints of training graphs, threshold, steps, scores

    @property
    def record(self) -> dict[str, Any]:
        """What the JSON file says, the digest of the weights left out."""
        return {
            "format": _FORMAT,
            "network": asdict(self.model.config),
            "ranker": asdict(self.ranker.config) if self.ranker else None,
            "encoder": {**self.encoder, "size": self.model.text_size},
            "facts": self.facts,
        }


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint. The record, which names the digest of the weights, comes last: a kill leaves no half."""
    tensors = _tensors(checkpoint.model, checkpoint.ranker)
    save_tensors(folder / WEIGHTS, tensors)
    write_json(folder / RECORD, {**checkpoint.record, "weights_sha256": file_digest(folder / WEIGHTS)})


def load_checkpoint(folder: Path, expected: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a checkpoint; `expected` is the part of the record that must agree, such as `{"encoder": {...}}`.

    Raises ArtefactError that names the first difference: files missing, cut short or damaged, another record than
    expected, or weights that are not those of the record.
    """
    record = _read_record(folder)
    if problem := difference({**record, "encoder": {**_PLAIN, **record["encoder"]}}, expected or {}):
        raise ArtefactError(f"{folder / RECORD}: {problem}; use a checkpoint trained with these settings, or train one")
    path = folder / WEIGHTS
    if not path.is_file() or file_digest(path) != record["weights_sha256"]:
        state = "is cut short or was changed since it was saved" if path.is_file() else "is missing"
        raise ArtefactError(f"{path} {state}; copy the checkpoint again")
    tensors = load_tensors(path)
    try:
        network = read_settings(GNNConfig, record["network"], folder / RECORD)
        ranking = read_settings(RankerConfig, record["ranker"], folder / RECORD) if record["ranker"] else None
        if network.layers > len(tensors):
            raise ConfigError(f"network.layers={network.layers}: there are {len(tensors)} tensors")
        with torch.device("meta"):  # the shapes alone: they decide how much memory the network takes
            check_shapes(_tensors(*_build(network, ranking, record)), tensors, path)
        model, ranker = _build(network, ranking, record)
    except ConfigError as error:
        raise ArtefactError(f"{folder / RECORD}: {error}") from error
    fill(_tensors(model, ranker), tensors, path)
    encoder = {name: value for name, value in record["encoder"].items() if name != "size"}
    return Checkpoint(model.eval(), ranker, encoder, record["facts"])


def _build(
    network: GNNConfig, ranking: RankerConfig | None, record: Mapping[str, Any]
) -> tuple[QueryGNN, Ranker | None]:
    return QueryGNN(network, record["encoder"]["size"]), Ranker(ranking) if ranking else None


def _tensors(model: nn.Module, ranker: nn.Module | None) -> dict[str, Tensor]:
    named = dict(model.state_dict())
    return named | ({f"ranker.{k}": v for k, v in ranker.state_dict().items()} if ranker else {})


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and 0 < value <= LARGEST


def _read_record(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    kinds = {"network": dict, "encoder": dict, "facts": dict, "weights_sha256": str, "ranker": (dict, type(None))}
    record = read_record(path, kinds, "gnn.checkpoint must name a folder that training wrote")
    if record.get("format") != _FORMAT or not _is_size(record["encoder"].get("size")):
        raise ArtefactError(f"{path}: format {record.get('format')!r} or encoder size cannot be read; train again")
    return record


RELEASED = "model.pth"


def start_from(model: QueryGNN, folder: Path, encoder: Mapping[str, Any], embedder: str) -> None:
    """Give a network the weights of a checkpoint; its ranker only those of the same ranker.

    `folder` is what `save_checkpoint` wrote, or holds the `model.pth` and `config.json` of gfm-rag. `encoder` is the
    `encoder_record` of the embedder in use, and `embedder` its name or folder, all that gfm-rag's record says of its
    own. Raises ArtefactError for damage, or another architecture or embedder; names the first difference.
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
