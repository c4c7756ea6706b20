"""What docs/python.md shows, executed from the first block to the last in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.S | re.M)


@pytest.mark.slow
def test_the_guide_runs(tmp_path: Path) -> None:
    command = tmp_path / "bin" / "gnnrag"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gnnrag.cli.command "$@"\n')
    command.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    path = f"{command.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "HF_HUB_OFFLINE": "1"}
    said = []
    before = ""  # the blocks of Python so far belong together; what they said is told once
    for language, block in BLOCK.findall((ROOT / "docs/python.md").read_text("utf-8")):
        if language == "python":
            before += block
            continue
        for run in ([sys.executable, "-c", before], ["bash", "-ec", block]):
            done = subprocess.run(run, cwd=work, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{run[-1]}\n{done.stdout}\n{done.stderr}"
            said.append(done.stdout)
        before = ""
    told = "\n".join(said)
    for expected in (
        "Zavrazhye",
        "Where did Andrei Tarkovsky die? Paris",
        "stalker.txt#1",
        "('Andrei Tarkovsky', 'Paris')",
        "bdtr 1.0 1.0",
        "Answer: Andrei Tarkovsky",
    ):
        assert expected in told, f"{expected}\n{told}"
    assert (work / "runs/page.html").is_file() and (work / "graph.graphml").is_file()
