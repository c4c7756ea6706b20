"""Train what writes the next queries.

    accelerate launch training/train_thoughts.py configs/train/thoughts_qwen15b.yaml
    accelerate launch training/train_thoughts.py configs/train/thoughts_dpo.yaml start=runs/thoughts-qwen15b

`kind` is `causal` or `seq2seq` (a language model with LoRA; `stage` is `sft`, then `dpo` or `grpo`). Settings
follow as key=value. The same command again continues a run that was cut off. `cross=true` trains once for each fold and
reports on all questions. The last line printed is the run directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `accelerate launch` puts only this folder there

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("training.train_thoughts")

from collections.abc import Sequence

from gnnrag.cli.training import run_training


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    return run_training("train_thoughts.py", arguments)
