"""Trained networks on disk: weights as safetensors, and a JSON record of everything that they depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.files import file_digest, write_json
from gnnrag.gnn.config import GNNConfig, RankerConfig
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.rankers import Ranker
from gnnrag.weights import (
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

RECORD = "config.json"
_FORMAT = 1
_PLAIN = {"revision": None, "query_prefix": "", "document_prefix": ""}  # of encoders, where a record does not say it


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
    save_tensors(folder / WEIGHTS, tensors)
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
