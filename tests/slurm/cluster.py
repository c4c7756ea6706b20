"""What the tests do with a cluster: submit, look, interrupt, wait."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SITE = f"""
max_running: {os.cpu_count()}
setup: |
  python={sys.executable}
  export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
sbatch:
  all: [--time=20, --mem=500M]
  train: [--ntasks=2, --mem=1000M]
"""


class Cluster:
    """A running SLURM; `folder` is for all that the tests make, `variables` are what SLURM's commands need."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        self.environment = {**os.environ, **variables, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        (folder / "site.yaml").write_text(SITE)

    def run(self, *command: str) -> str:
        """Return what a command prints; fails where it ends with another exit code than 0."""
        done = subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def submit(self, *arguments: str) -> str:
        """Call `submit.py`; returns what it prints."""
        places = ("--folder", str(self.folder / "jobs"), "--site", str(self.folder / "site.yaml"))
        return self.run(sys.executable, "slurm/submit.py", *arguments, *places)

    def jobs(self, *flags: str) -> list[tuple[str, str]]:
        """Return number and name of the jobs and tasks of arrays in the queue."""
        lines = self.run("squeue", "-h", "-r", "-o", "%i %j", *flags).splitlines()
        return [(line.split()[0], line.split()[1]) for line in lines]

    def running(self, kind: str) -> str:
        """Return the number of a job of a kind that runs, if any."""
        return next((id_ for id_, name in self.jobs("-t", "R") if name.endswith(kind)), "")

    @contextmanager
    def halted(self, id_: str) -> Iterator[None]:
        """Halt the steps of a job, so that it does not end while it is signalled."""
        self.run("scancel", "--signal=STOP", id_)
        try:
            yield
        finally:
            self.run("scancel", "--signal=CONT", id_)

    def restarts(self, id_: str) -> int:
        """Return how often SLURM has started a job again."""
        shown = self.run("scontrol", "show", "job", "-o", id_)
        return int(next(word for word in shown.split() if word.startswith("Restarts=")).removeprefix("Restarts="))

    def end(self, seconds: float = 900) -> None:
        """Wait until nothing is in the queue."""
        wait_for(lambda: not self.jobs(), "the end of all jobs", seconds)


def wait_for(look: Callable[[], Any], what: str, seconds: float = 200) -> Any:
    """Return the first value of `look()` that is something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: nothing within {seconds:g} s"
        time.sleep(0.3)
    return found


def lines(path: Path) -> int:
    """Return how many lines a file has."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
