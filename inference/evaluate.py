"""Run a method on a benchmark and score it.

    python inference/evaluate.py configs/evaluate/2wiki.yaml method=bdtr retriever=chg roles=offline

The same command again continues an interrupted run. The last line printed is the run directory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tqdm import tqdm

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import GnnragError
from gnnrag.evaluation import evaluate
from gnnrag.types import Prediction
from inference.console import IndexProgress, metrics_table


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = load_config(EvaluateConfig, source, overrides)
    bar: tqdm[None] | None = None

    def on_question(prediction: Prediction) -> None:
        nonlocal bar
        bar = bar or tqdm(unit="question", desc=f"{config.method.name} on {config.retriever.name}", file=sys.stderr)
        bar.update()

    with IndexProgress() as on_index:
        path, metrics = evaluate(config, on_index, on_question)
    if bar is not None:
        bar.close()
    print(metrics_table([(f"{config.method.name} / {config.retriever.name}", metrics)]))
    if metrics["failed"]:
        print(f"{metrics['failed']} questions failed; see the error column of predictions.jsonl", file=sys.stderr)
    print(path)
    return 0


def split_arguments(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split a command line into the config file and the overrides."""
    files = [a for a in arguments if "=" not in a]
    if len(files) > 1:
        raise GnnragError(f"one config file at most, got {', '.join(files)}; overrides are written key=value")
    return (files[0] if files else None), [a for a in arguments if "=" in a]


if __name__ == "__main__":
    from inference.console import run_script

    sys.exit(run_script(main, sys.argv[1:], __doc__))
