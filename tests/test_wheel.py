"""What `pip install` gives: one package, with sample and settings, that works away from a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYTHON = """
import sys, gnnrag
from pathlib import Path
from gnnrag import Index
assert Path(gnnrag.__file__).is_relative_to(sys.argv[1]), gnnrag.__file__
index = Index.build("papers", settings={"index.embedder.model": "hash", "index.text.language": "blank:en"})
answer = index.ask("Who directed the film Solaris?", method="bdtr", retriever="chg")
print(answer.text, [c.place for c in answer.citations])
"""


@pytest.mark.slow
def test_the_wheel_works_away_from_the_clone(tmp_path: Path) -> None:
    source, target, away = (tmp_path / name for name in ("source", "target", "away"))
    shutil.copytree(ROOT / "gnnrag", source / "gnnrag", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"gnnrag"}
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", target, wheel], check=True)
    shutil.rmtree(source)

    (away / "papers").mkdir(parents=True)
    (away / "papers" / "solaris.txt").write_text("Solaris is a film of 1972. Solaris was directed by Andrei Tarkovsky.")
    environment = {**os.environ, "PYTHONPATH": str(target), "HF_HUB_OFFLINE": "1"}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=away, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert str(ROOT) not in done.stdout + done.stderr
        return done.stdout

    assert run(sys.executable, "-c", PYTHON, str(target)).startswith("Andrei Tarkovsky ['solaris.txt")
    gnnrag = (sys.executable, str(target / "bin" / "gnnrag"))
    hashed = ("index.embedder.model=hash", "index.text.language=blank:en")
    assert run(*gnnrag, "ask", "Who directed the film Solaris?", "data.path=papers", *hashed).startswith(
        "Answer: Andrei"
    )
    assert "Recall@5" in run(*gnnrag, "evaluate", "method=single", "retriever=bm25", "data.limit=5", *hashed)
    assert not any(str(ROOT) in path.read_text("utf-8", "ignore") for path in away.rglob("*.json*"))
