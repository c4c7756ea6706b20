"""Batch scripts without SLURM: its commands, and Python, are replaced by what a test says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIP_FLAGS = 'while [[ "$1" == --* ]]; do shift; done'
FAKES = {
    "scontrol": """case "$*" in
  "show hostnames"*) printf 'node1\\nnode2\\n' ;; "show config") echo "RequeueExit = (null)" ;;
  "show job"*) echo "JobId=7 JobState=${STATE:-RUNNING}" ;; requeue*) echo "$*" >>"$OUT/requeued"; exit 0 ;; esac""",
    "srun": 'echo "srun $*" >>"$OUT/ran"',
    "sleep": "exit 0",
}
NOTE = 'echo "python $*" >>"$OUT/ran"'


def batch(
    folder: Path, name: str, arguments: Sequence[str], python: str, fakes: Mapping[str, str] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a batch script.

    Args:
        folder: for the job and the commands.
        name: of the script.
        arguments: of the script.
        python: what Python does, in bash.
        fakes: what other commands do, instead of `FAKES`.
        more: environment; FLAGS are those of `srun` that a site has.
    """
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for command, code in {**FAKES, **(fakes or {}), "python": python}.items():
        (tools / command).write_text(f"#!/bin/bash\n{code}\n")
        (tools / command).chmod(0o755)
    (folder / "setup.sh").write_text(f"python=({tools}/python)\nsrun_flags=(${{FLAGS:-}})\n")
    own = {"GNNRAG_HOME": str(ROOT), "GNNRAG_JOB": str(folder / "job"), "GNNRAG_SETUP": str(folder / "setup.sh"),
           "SLURM_JOB_ID": "7", "OUT": str(folder), "PATH": f"{tools}:{os.environ['PATH']}"}  # fmt: skip
    return subprocess.run(
        ["bash", str(ROOT / "slurm" / name), *arguments], env={**os.environ, **own, **more}, cwd=folder,
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
