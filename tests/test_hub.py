"""Parts and indexes come from a hub over HTTP as they are there, and settings name them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gnnrag
from gnnrag.errors import ConfigError
from gnnrag.gnn import GNNConfig
from gnnrag.gnn.checkpoint import Checkpoint, save_checkpoint
from gnnrag.gnn.model import QueryGNN
from gnnrag.index.embedder import HashEmbedder, encoder_record
from gnnrag.run.rundir import read_predictions
from tests.helpers.hub_server import HubServer, serving
from tests.helpers.indexes import REPOSITORY


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[HubServer, dict[str, str]]]:
    with serving() as server:
        hub = {"HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "hf")}
        yield server, {**os.environ, **hub, "HF_HUB_OFFLINE": "", "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_a_part_and_an_index_come_over_http_and_a_run_names_them(
    served: tuple[HubServer, dict[str, str]], tmp_path: Path
) -> None:
    server, environment = served

    def run(*words: str, code: int = 0) -> str:
        line = [sys.executable, "-m", "gnnrag.cli.app", *words]
        done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def python(expression: str) -> str:
        line = [sys.executable, "-c", f"import gnnrag; print(gnnrag.{expression})"]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    network = tmp_path / "network"
    model = QueryGNN(GNNConfig(dim=8, layers=1), HashEmbedder.dim)
    save_checkpoint(network, Checkpoint(model, None, encoder_record(HashEmbedder()), {}))
    revision = server.push("us/gnn", network)
    folder = Path(python(f"from_pretrained('us/gnn', revision={revision!r})").strip())
    assert folder.name == f"us--gnn@{revision}"
    assert all((folder / file.name).read_bytes() == file.read_bytes() for file in network.iterdir())

    asked = [
        "evaluate", f"data.path={REPOSITORY / 'data/sample'}", "data.limit=2", "retriever=gfm", "method=single",
        "index.embedder.model=hash", "index.text.language=blank:en",
    ]  # fmt: skip
    run(*asked, "run.name=local", "index.path=index", f"gnn.checkpoint={network}")
    server.push("us/index", tmp_path / "index")
    run(*asked, "run.name=pulled", "index.path=hub:us/index", f"gnn.checkpoint=hub:us/gnn@{revision}")
    local, pulled = ([row.ranking for row in read_predictions(tmp_path / "runs" / n)] for n in ("local", "pulled"))
    assert local == pulled
    assert revision in (tmp_path / "runs/pulled/config.yaml").read_text(), "a record says which revision it was"
    assert "us/none" in run(*asked, "gnn.checkpoint=hub:us/none", code=2)


@pytest.mark.parametrize("repo", ["us/gnn/x", "us/gnn@main", ""])
def test_wrong_names(repo: str) -> None:
    with pytest.raises(ConfigError, match="hub: "):
        gnnrag.from_pretrained(repo)
