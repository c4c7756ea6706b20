"""The notebooks, executed in an empty folder; they are kept without outputs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def test_notebooks_are_kept_without_outputs() -> None:
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    preprocessors = pytest.importorskip("nbconvert.preprocessors")
    command = tmp_path / "bin/gnnrag"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gnnrag.cli.app "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    work = tmp_path / path.stem
    work.mkdir()
    book = nbformat.read(path, 4)
    preprocessors.ExecutePreprocessor(timeout=300, kernel_name="python3").preprocess(
        book, {"metadata": {"path": str(work)}}
    )
    shown = json.dumps(book)
    assert "text/html" in shown, "answers show themselves"
    assert "embeddings: 100%" in shown or path.stem != "own_documents", "a build shows how far it is"
