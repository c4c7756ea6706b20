"""The site of docs/ builds without a warning, anchors and API reference included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "WARNING -" not in done.stderr, done.stderr
    reference = (tmp_path / "site/reference/index.html").read_text("utf-8")
    assert all(name in reference for name in ("Index.build", "stream", "push_to_hub", "retrieve"))
    pages = {p.stem for p in (ROOT / "docs").glob("*.md")} - {"README"}
    assert pages <= {p.parent.name for p in (tmp_path / "site").rglob("index.html")}
