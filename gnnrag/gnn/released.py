"""Weights released with GFM-RAG and G-reasoner, read into our network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from gnnrag.errors import ArtefactError, GnnragError
from gnnrag.files import open_regular
from gnnrag.gnn.config import GNNConfig
from gnnrag.gnn.model import QueryGNN
from gnnrag.weights import fill

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

    Width, depth, norm and fusion follow from the tensors. Released weights were trained by a kernel that sends messages
    against the edges, so the network gets `upstream_direction`.

    Args:
        path: the file.
        aggregate: that the weights were trained with: sum, mean, max, min and shortcuts leave no mark in the tensors.
            The defaults are those of the released configurations.
        shortcut: whether they were trained with residual connections.

    Raises:
        ArtefactError: no such file, or no state dict of these models; names the first tensor that does not fit.
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
