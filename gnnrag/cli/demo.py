"""The five-minute tour: index the sample corpus, run methods on retrievers, print the table. No LLM, no network.

gnnrag demo [key=value ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from gnnrag.cli.console import IndexProgress, note
from gnnrag.cli.tables import metrics_table
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.run.evaluate import Observer, evaluate, load_questions_for
from gnnrag.run.pipeline import open_shared_index
from gnnrag.run.rundir import run_label

SAMPLE = "configs/evaluate/sample.yaml"
RETRIEVERS = ("bm25", "dense", "hybrid", "chg", "gfm")
METHODS = ("single", "multihop", "bdtr")


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    started = time.perf_counter()
    configs = [
        load_config(EvaluateConfig, SAMPLE, [*arguments, f"method={method}", f"retriever={retriever}"])
        for method in METHODS
        for retriever in RETRIEVERS
    ]
    data = load_questions_for(configs[0])
    for remark in data.remarks:
        note(remark)
    with IndexProgress() as progress:
        index = open_shared_index(configs, data.name, data.passages, progress)
    rows = []
    for config in configs:
        path, metrics = evaluate(config, Observer(on_note=note), index, data)
        rows.append((run_label(config), metrics))
        print(f"{run_label(config)}: {path}", file=sys.stderr)
    seconds = time.perf_counter() - started
    title = f"{data.name}: {len(data.questions)} questions, {len(data.passages)} passages, no language model"
    print(metrics_table(rows, title))
    print(f"{seconds:.0f} s in all")
    return 0
