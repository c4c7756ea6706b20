"""Models of strangers: pickled weights, weights that are no numbers, and records of another form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag.common.records import load_tensors, save_tensors
from gnnrag.config import EmbedderConfig
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.embedder import SentenceEmbedder
from gnnrag.llm.folders import ModelFiles, find_model, kind_of
from gnnrag.roles.tuned.checkpoint import load_encoder
from tests.helpers.each import each
from tests.helpers.tiny_encoder import make_tiny_encoder


class Payload:
    """What a pickle of it does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def only_pickled(folder: Path) -> Path:
    """Turn the weights of a model into a pickle that would leave a file `owned`."""
    make_tiny_encoder(folder, ["Ada wrote notes."])
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Payload(folder / "owned")}, folder / "pytorch_model.bin")
    return folder


def test_pickled_encoders_are_refused_with_the_fix(tmp_path: Path) -> None:
    folder = only_pickled(tmp_path)
    with pytest.raises(ArtefactError, match=r"cannot be loaded .*an encoder with \*\.safetensors.*save it again"):
        SentenceEmbedder(EmbedderConfig(model=str(folder), backend="torch")).encode(["Ada"])
    with pytest.raises(ConfigError, match=r"network.base=.* cannot be loaded"):
        load_encoder(str(folder), None)
    assert not (folder / "owned").exists()


class Broken(SentenceEmbedder):
    """Gives NaN for every text of three letters."""

    def __init__(self) -> None:
        super().__init__(EmbedderConfig(model="no/model", backend="torch", batch_size=4))

    def _load(self) -> None:
        self._tokenise = lambda texts: [[len(text)] for text in texts]
        self._forward = lambda tokens, mask: np.where(tokens[:, :1] == 3, np.nan, 1.0).astype(np.float32)


def test_vectors_that_are_no_numbers_are_refused() -> None:
    assert Broken().encode(["a", "ab"]).tolist() == [[1.0], [1.0]]
    for is_query in (False, True):
        with pytest.raises(ArtefactError, match=r"index.embedder.model='no/model' gives vectors with NaN"):
            Broken().encode(["a", "abc"], is_query=is_query)


@each("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(number: float, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_tensors(path, {"a": torch.ones(2), "count": torch.tensor([3])})
    assert set(load_tensors(path)) == {"a", "count"}
    save_tensors(path, {"a": torch.ones(2), "b": torch.tensor([[1.0, number]])})
    with pytest.raises(ArtefactError, match=r"model.safetensors: tensor 'b' holds NaN or Infinity"):
        load_tensors(path)


@each("record", [{"r": "many"}, {"r": 8, "rank_pattern": [1]}, {"r": 8, "rank_pattern": {"a": None}}])
def test_ranks_that_are_none_are_named(record: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"adapter_config\.json: r and rank_pattern must be whole numbers"):
        _ = ModelFiles(tmp_path, tmp_path, "m").rank


@each("named", [[["A"]], [{}], "LlamaForCausalLM", 3, None])
def test_architectures_that_are_no_names_are_refused(named: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": named}))
    with pytest.raises(ConfigError, match=r"is a \(none named\)"):
        kind_of(ModelFiles(tmp_path, None, "m"))


def test_a_config_that_is_nested_beyond_all_measure_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"config.json cannot be read: nested too deeply"):
        find_model(str(tmp_path), None, "hf")
