"""Print how far a task of a job has come, as one word: the batch scripts compare it between two starts.

python slurm/progress.py runs/jobs/JOB TASK
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("slurm.progress")

from collections.abc import Sequence

from gnnrag.cluster.job import progress, read_job
from gnnrag.errors import GnnragError


def main(arguments: Sequence[str]) -> int:
    """Print; returns the exit code."""
    if len(arguments) != 2 or not arguments[1].isdigit():
        raise GnnragError("usage: python slurm/progress.py runs/jobs/JOB TASK")
    print(progress(read_job(arguments[0]), int(arguments[1])))
    return 0
