"""What docs/serving.md shows, executed from the first block to the last in an empty folder."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(python|bash|yaml)\n(.*?)^```", re.S | re.M)


@pytest.mark.slow
def test_the_guide_runs(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bin_, work = tmp_path / "bin", tmp_path / "work"
    bin_.mkdir()
    work.mkdir()
    for name, command in (
        ("gnnrag", f'{sys.executable} -m gnnrag.cli.app "$@"'),
        ("python", f'{sys.executable} "$@"'),
    ):
        (bin_ / name).write_text(f"#!/bin/sh\nexec {command}\n")
        (bin_ / name).chmod(0o755)
    script = ["set -e"]
    for language, block in BLOCK.findall((ROOT / "docs/serving.md").read_text("utf-8").replace("8765", str(port))):
        if language == "yaml":
            assert len(yaml.safe_load(block)["tokens"]) == 2
        else:
            script.append(block if language == "bash" else f"python - <<'END'\n{block}\nEND")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{bin_}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    whole = "trap 'kill %1' EXIT\n" + "\n".join(script)
    done = subprocess.run(["bash", "-c", whole], cwd=work, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    wanted = ["'papers/bdtr'", "Zavrazhye [1] [2]", "#/papers/passage/solaris.txt%231"]
    for told in (*wanted, "event: answer", '"e:Andrei Tarkovsky"', '"job":'):
        assert told in done.stdout, f"{told}\n{done.stdout}"
    assert '"error":{' not in done.stdout.replace(" ", "")
