"""Train what answers a question from passages, without a language model.

    accelerate launch training/train_reader.py configs/train/reader_spans.yaml
    accelerate launch training/train_reader.py configs/train/reader.yaml

The first teaches an encoder where answers stand; the second ranks what it finds beside what the rules find. With
`kind=causal` or `kind=seq2seq` (`reader_causal.yaml`) a language model learns to answer instead. Settings follow as
key=value. The same command again continues a run that was cut off. `cross=true` trains once for each fold and reports
on all questions. The last line printed is the run directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `accelerate launch` puts only this folder there

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("training.train_reader")

from collections.abc import Sequence

from gnnrag.cli.training import run_training


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    return run_training("train_reader.py", arguments)
