"""Trained networks on disk: weights as safetensors, and a JSON record of everything that they depend on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.files import file_digest, write_atomic, write_json
from gnnrag.gnn.config import GNNConfig, RankerConfig
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.rankers import Ranker

RECORD, WEIGHTS = "config.json", "model.safetensors"
_FORMAT = 1
T = TypeVar("T")


@dataclass
class Checkpoint:
    """A network with what it was trained for.

    Attributes:
        model: the network.
        ranker: how its scores of entities become scores of passages, where it propagates over entities.
        encoder: what its text vectors are: name, weights, normalised, query and document prefixes. A network with other
            vectors than its own runs, and ranks at random.
        facts: anything else worth recording: fingerprints of the training graphs, threshold, steps, scores.
    """

    model: QueryGNN
    ranker: Ranker | None = None
    encoder: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

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
    write_atomic(folder / WEIGHTS, save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}))
    write_json(folder / RECORD, {**checkpoint.record, "weights_sha256": file_digest(folder / WEIGHTS)})


def load_checkpoint(folder: Path, expected: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a checkpoint.

    Args:
        folder: where `save_checkpoint` wrote it.
        expected: the part of the record that must agree, such as `{"encoder": {...}, "network": {"features": [...]}}`.

    Raises:
        ArtefactError: a file is missing, cut short or damaged, or the record differs from `expected`, or the weights
            from the record. The message names the first difference.
    """
    record = _read_record(folder)
    if problem := difference(record, expected or {}):
        raise ArtefactError(f"{folder / RECORD}: {problem}; use a checkpoint trained with these settings, or train one")
    path = folder / WEIGHTS
    if not path.is_file() or file_digest(path) != record["weights_sha256"]:
        state = "is cut short or was changed since it was saved" if path.is_file() else "is missing"
        raise ArtefactError(f"{path} {state}; copy the checkpoint again")
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise ArtefactError(f"{path} is no safetensors file ({error}); copy the checkpoint again") from error
    try:
        model = QueryGNN(_settings(GNNConfig, record["network"], folder), int(record["encoder"]["size"]))
        ranker = Ranker(_settings(RankerConfig, record["ranker"], folder)) if record["ranker"] else None
    except ConfigError as error:
        raise ArtefactError(f"{folder / RECORD}: {error}") from error
    fill(_tensors(model, ranker), tensors, path)
    encoder = {name: value for name, value in record["encoder"].items() if name != "size"}
    return Checkpoint(model.eval(), ranker, encoder, record["facts"])


def difference(found: Any, expected: Any, name: str = "") -> str:
    """Return the first difference of a record from what is expected of it, or an empty string.

    Mappings are compared by the keys of `expected`, in order; everything else must be equal.
    """
    if isinstance(expected, Mapping):
        for key, value in expected.items():
            inner = found.get(key) if isinstance(found, Mapping) else None
            if problem := difference(inner, value, f"{name}.{key}" if name else str(key)):
                return problem
        return ""
    return "" if found == expected else f"{name} is {found!r}, needed is {expected!r}"


def fill(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path) -> None:
    """Copy weights into a network. Raises ArtefactError naming the first tensor that is missing, odd or superfluous."""
    for name, tensor in wanted.items():
        if name not in given:
            raise ArtefactError(f"{path}: tensor {name!r} is missing; the checkpoint is of another architecture")
        if given[name].shape != tensor.shape:
            shapes = f"{tuple(given[name].shape)}, needed is {tuple(tensor.shape)}"
            raise ArtefactError(f"{path}: tensor {name!r} has shape {shapes}; it is of another architecture")
    if superfluous := sorted(set(given) - set(wanted)):
        raise ArtefactError(
            f"{path}: tensor {superfluous[0]!r} has no place; the checkpoint is of another architecture"
        )
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(given[name])


def _tensors(model: nn.Module, ranker: nn.Module | None) -> dict[str, Tensor]:
    named = dict(model.state_dict())
    return named | ({f"ranker.{k}": v for k, v in ranker.state_dict().items()} if ranker else {})


def _read_record(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    try:
        record = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ArtefactError(f"{path} is missing; gnn.checkpoint must name a folder that training wrote") from error
    except ValueError as error:
        raise ArtefactError(f"{path} is no JSON ({error}); copy the checkpoint again") from error
    kinds: dict[str, Any] = {
        "network": dict,
        "encoder": dict,
        "facts": dict,
        "weights_sha256": str,
        "ranker": (dict, type(None)),
    }
    for name, kind in kinds.items():
        if not isinstance(record, dict) or name not in record or not isinstance(record[name], kind):
            raise ArtefactError(f"{path}: {name} is missing or of the wrong type; copy the checkpoint again")
    if record.get("format") != _FORMAT or not isinstance(record["encoder"].get("size"), int):
        raise ArtefactError(f"{path}: format {record.get('format')!r} or encoder size cannot be read; train again")
    return record


def _settings(kind: type[T], values: dict[str, Any], folder: Path) -> T:
    try:
        return cast(T, OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(kind), values)))
    except OmegaConfBaseException as error:
        problem = str(error).splitlines()[0]
        raise ArtefactError(f"{folder / RECORD}: {problem}; the checkpoint is of another version") from error
