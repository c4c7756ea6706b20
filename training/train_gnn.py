"""Train the graph network.

    accelerate launch training/train_gnn.py configs/train/gnn_2wiki.yaml
    ACCELERATE_USE_CPU=true torchrun --nproc_per_node 2 training/train_gnn.py configs/train/gnn_2wiki.yaml

Settings follow as key=value. The same command again continues a run that was cut off. `cross=true` trains once for each
fold and reports on all questions. The last line printed is the run directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `accelerate launch` puts only this folder there

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("training.train_gnn")

from collections.abc import Sequence

from gnnrag.cli.training import run_training


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    return run_training("train_gnn.py", arguments)
