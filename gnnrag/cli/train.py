"""Train a part that methods and retrievers take, from a config.

    gnnrag train gnn configs/train/gnn_sample.yaml run.name=mine       the graph network (retriever=gfm)
    gnnrag train verifier configs/train/verifier.yaml                  which passages support a chain
    gnnrag train thoughts configs/train/thoughts_default.yaml          what to search for next
    gnnrag train reader configs/train/reader.yaml                      the answer
    gnnrag train encoder configs/train/encoder.yaml                    passages one hop away

Settings follow as key=value. The same command again continues a run that was cut off. This is one process; on several
GPUs or nodes: accelerate launch training/train_verifier.py CONFIG, in a clone. The last line printed is the run
directory: give it as `roles.verifier.path=DIR roles.verifier=tuned`, or `gnn.checkpoint=DIR`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnnrag.errors import GnnragError, nearest
from gnnrag.registry import TRAININGS

KINDS = {script.removeprefix("train_").removesuffix(".py"): script for script in TRAININGS}


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    kind, *rest = arguments or ("",)
    if kind not in KINDS:
        raise GnnragError(f"train {kind}: give what is to be trained. {nearest(kind, KINDS)} See gnnrag train --help.")
    from gnnrag.cli.training import run_training

    return run_training(KINDS[kind], rest)
