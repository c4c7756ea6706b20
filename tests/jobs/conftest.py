"""What every test of jobs has: a cache of resolved settings of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("resolved")
    monkeypatch.setattr("gnnrag.cluster.grid.CACHE", folder)
    return folder
