"""Fixtures: a tiny random model, and a server that offers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.tiny_model import ServedModel, make_tiny_model, missing_for_serving, serve


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random chat model."""
    if lacking := missing_for_serving():
        pytest.skip(lacking)
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def served_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    """The tiny model behind `transformers serve`."""
    with serve(tiny_model, tmp_path_factory.mktemp("serve")) as served:
        yield served


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait milliseconds between two tries, not seconds."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
