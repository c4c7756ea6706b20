"""What the tests do with a cluster: submit, look, interrupt, wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SITE = """
python: {python}
environment: ["OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1", "TOKENIZERS_PARALLELISM=false"]
signal_s: {signal_s}
max_running: {max_running}
vllm: {python} {server}
jobs:
  index: {{time: "10", cpus: 1, mem: 500M}}
  evaluate: {{time: "10", cpus: 1, mem: 500M}}
  merge: {{time: "10", cpus: 1, mem: 500M}}
  train: {{time: "20", cpus: 2, mem: 1000M, processes: 2}}
  server: {{time: "10", cpus: 1, mem: 100M}}
"""


class Cluster:
    """A running SLURM.

    Args:
        folder: for all that the tests make.
        variables: what SLURM's commands need.
    """

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        self.environment = {**os.environ, **variables, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        for name in ("SLURM_JOB_ID", "GNNRAG_JOB", "GNNRAG_SETUP", "GNNRAG_HOME"):
            self.environment.pop(name, None)

    def run(self, *command: str, expect: int = 0) -> str:
        """Return what a command prints; fails where it ends with another exit code."""
        done = subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == expect, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def python(self, *command: str, expect: int = 0) -> str:
        """Run a script of the repository."""
        return self.run(sys.executable, *command, expect=expect)

    def site(self, signal_s: int = 60) -> Path:
        """Write a site file."""
        path = self.folder / f"site-{signal_s}.yaml"
        server, cpus = Path(__file__).parent / "fake_vllm.py", max(2, os.cpu_count() or 2)
        path.write_text(SITE.format(python=sys.executable, signal_s=signal_s, max_running=cpus, server=server))
        return path

    def submit(self, name: str, *arguments: str, signal_s: int = 60, expect: int = 0) -> list[dict[str, Any]]:
        """Call `submit.py`; returns the states of its jobs."""
        folder = ["--folder", str(self.folder / name / "jobs"), "--site", str(self.site(signal_s)), "--json"]
        printed = self.python("slurm/submit.py", *arguments, *folder, expect=expect)
        rows: list[dict[str, Any]] = json.loads(printed)
        return rows

    @contextmanager
    def paused(self, id_: str, stop_file: Path) -> Iterator[None]:
        """Halt the steps of a job until its batch script has been signalled, which makes the stop file."""
        self.run("scancel", "--signal=STOP", id_)
        try:
            yield
            wait_for(stop_file.exists, "the signal", 200)
        finally:
            self.run("scancel", "--signal=CONT", id_)

    def restarts(self, id_: str) -> int:
        """Return how often SLURM has started a job again."""
        shown = self.run("scontrol", "show", "job", "-o", id_)
        return int(next(word for word in shown.split() if word.startswith("Restarts=")).removeprefix("Restarts="))

    def id_of(self, job: str, task: int = 0) -> str:
        """Return the number of the newest job with a name, or of a task of it."""
        wanted = f"_{task}" if task else ""
        lines = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%i|%j").splitlines()
        found = [id_ for id_, name in (line.split("|") for line in lines) if name == job and id_.endswith(wanted)]
        return max(found, key=lambda id_: int(id_.split("_")[0]))

    def state(self, id_: str) -> str:
        """Return the state of a job or task."""
        return self.run("squeue", "-h", "-t", "all", "-j", id_, "-o", "%T").strip()

    def end(self, id_: str, seconds: float = 400) -> str:
        """Wait until a job is over; returns its state."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        return wait_for(lambda: next((s for s in over if self.state(id_).startswith(s)), ""), f"job {id_}", seconds)


def wait_for(look: Callable[[], Any], what: str, seconds: float = 120) -> Any:
    """Return the first value of `look()` that is something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: nothing within {seconds:g} s"
        time.sleep(0.3)
    return found


def lines(path: Path) -> int:
    """Return how many lines a file has."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
