r"""Join sets into one corpus, with questions of two and three hops composed of their single ones.

    gnnrag compose-questions out=runs/joined \\
        sets=[../shared/data/squad,../shared/data/2wiki-train,../shared/data/hotpotqa-train]

A name in one question gives way to another question whose answer it is, as people composed MuSiQue. The folder is a set
like any other (data.path=runs/joined data.split=train). Settings: gnnrag/training/joining.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnnrag.cli.console import split_arguments
from gnnrag.config import load_config
from gnnrag.training.joining import JoinConfig, join_sets


def main(arguments: Sequence[str]) -> int:
    """Write the folder; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = load_config(JoinConfig, source, overrides)
    print(", ".join(f"{number} {name}" for name, number in join_sets(config).items()))
    print(config.out)
    return 0
