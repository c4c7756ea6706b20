"""Run a method on a benchmark and score it.

    python inference/evaluate.py configs/evaluate/2wiki.yaml method=bdtr retriever=chg roles=offline

The same command again continues an interrupted run. The last line printed is the run directory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.evaluation import evaluate
from gnnrag.types import Prediction
from inference.console import IndexProgress, metrics_table, note, split_arguments


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = load_config(EvaluateConfig, source, overrides)
    bar: Any = None

    def on_question(prediction: Prediction) -> None:
        nonlocal bar
        if bar is None:  # a bar without a total has no truth value
            bar = tqdm(unit="question", desc=f"{config.method.name} on {config.retriever.name}", file=sys.stderr)
        bar.update()

    with IndexProgress() as on_index:
        path, metrics = evaluate(config, on_index, on_question, note)
    if bar is not None:
        bar.close()
    print(metrics_table([(f"{config.method.name} / {config.retriever.name}", metrics)]))
    if metrics["failed"]:
        print(f"{metrics['failed']} questions failed; see the error column of predictions.jsonl", file=sys.stderr)
    print(path)
    return 0


if __name__ == "__main__":
    from inference.console import run_script

    sys.exit(run_script(main, sys.argv[1:], __doc__))
