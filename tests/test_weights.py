"""Weights are never unpickled, and what is no number is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.embedder import SentenceEmbedder
from gnnrag.index_config import EmbedderConfig
from gnnrag.io import load_tensors, save_tensors
from gnnrag.roles.tuned.checkpoint import load_encoder
from tests.helpers.tiny_encoder import make_tiny_encoder


class Payload:
    """What a pickle of it does: it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_pickled_encoders_are_refused_with_the_fix(tmp_path: Path) -> None:
    make_tiny_encoder(tmp_path, ["Ada wrote notes."])
    (tmp_path / "model.safetensors").unlink()
    torch.save({"weight": Payload(tmp_path / "owned")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ArtefactError, match="safetensors"):
        SentenceEmbedder(EmbedderConfig(model=str(tmp_path), backend="torch")).encode(["Ada"])
    with pytest.raises(ConfigError, match=r"network.base="):
        load_encoder(str(tmp_path), None)
    assert not (tmp_path / "owned").exists()


class Broken(SentenceEmbedder):
    """Gives NaN for every text of three letters."""

    query_prefix = ""

    def __init__(self) -> None:
        super().__init__(EmbedderConfig(model="no/model", backend="torch", batch_size=4))

        self._tokenise = lambda texts: [[len(text)] for text in texts]
        self._forward = lambda tokens, mask: np.where(tokens[:, :1] == 3, np.nan, 1.0).astype(np.float32)
        self._pad = 0


@pytest.mark.parametrize("is_query", [False, True])
def test_vectors_that_are_no_numbers_are_refused(is_query: bool) -> None:
    assert Broken().encode(["a", "ab"]).tolist() == [[1.0], [1.0]]
    with pytest.raises(ArtefactError, match=r"index.embedder.model='no/model'"):
        Broken().encode(["a", "abc"], is_query=is_query)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(number: float, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_tensors(path, {"w": torch.tensor([1.0, number])})
    with pytest.raises(ArtefactError, match=r"model\.safetensors"):
        load_tensors(path)
