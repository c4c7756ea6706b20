r"""Join sets into one corpus, with questions of two and three hops composed of their single ones.

    python inference/compose_questions.py out=runs/joined \\
        sets=[../shared/data/squad,../shared/data/2wiki-train,../shared/data/hotpotqa-train]

A name in one question gives way to another question whose answer it is, as people composed MuSiQue. The folder is a set
like any other (data.path=runs/joined data.split=train). Settings: gnnrag/training/joining.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from inference.start import start

if __name__ == "__main__":
    start("inference.compose_questions", "--help")

from collections.abc import Sequence

from gnnrag.config import load_config
from gnnrag.training.joining import JoinConfig, join_sets
from inference.console import split_arguments


def main(arguments: Sequence[str]) -> int:
    """Write the folder; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = load_config(JoinConfig, source, overrides)
    print(", ".join(f"{number} {name}" for name, number in join_sets(config).items()))
    print(config.out)
    return 0
