"""Run a method on a benchmark and score it.

    gnnrag evaluate configs/evaluate/2wiki.yaml method=bdtr retriever=chg roles=offline

Without a config it is the sample's. The same command again continues an interrupted run. The last line printed is the
run directory. The exit code is 1, and no table is printed, where every question failed; it is also 1 where more of a
role's replies are bad than run.max_bad_replies. A scheduler's SIGTERM or SIGUSR1, or the file that the environment
variable GNNRAG_STOP_FILE names, stops the run with exit code 75. data.limit=200 takes the first questions of the file;
data.sample=200 draws as many from all of it, in proportion to their types.

In parts, on as many machines as there are, in any order, and then together (what one process would have left):

    gnnrag evaluate CONFIG shard=3/16          # the third of 16 parts
    gnnrag evaluate CONFIG shard=merge

A part ends with exit code 0 once each of its questions has a row: what is wrong with one holds up no merging.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gnnrag.cli.console import IndexProgress, describe_failures, note, split_arguments, tell
from gnnrag.cli.tables import metrics_table, texts_table
from gnnrag.config import EvaluateConfig, is_given, load_config
from gnnrag.metrics.replies import remarks
from gnnrag.registry import METHODS, RETRIEVERS, ROLES
from gnnrag.run.evaluation import Observer, evaluate
from gnnrag.run.pipeline import refuse_sample
from gnnrag.run.rundir import read_predictions, run_label
from gnnrag.run.sharding import MERGE, read_shard

PARTS = {"method": METHODS, "retriever": RETRIEVERS, "roles": {f"{r}.{i}": "" for r in ROLES for i in ROLES[r]}}
_LISTING = "\n".join(f"{name}: {', '.join(table)}" for name, table in PARTS.items())
HELP = f"{__doc__}\n{_LISTING}\nsettings: gnnrag/config.py, and docs/settings.md"
SAMPLE = "configs/evaluate/sample.yaml"


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    source, overrides = split_arguments(arguments)
    is_sample = source is None and not any(one.startswith("data.path=") for one in overrides)
    config = load_config(EvaluateConfig, SAMPLE if is_sample else source, overrides)  # it has its own way of scoring
    refuse_sample(config.index, is_given("data.path", source, overrides))
    shard = read_shard(config.shard)
    label = run_label(config) + (f" {shard}" if shard else "")
    progress = IndexProgress()
    bar: Any = None

    def on_start(questions: int) -> None:
        nonlocal bar
        progress.close()
        bar = tqdm(total=questions, unit=" questions", desc=label, file=sys.stderr, disable=None)

    try:
        with progress as on_index:
            path, metrics = evaluate(config, Observer(on_index, lambda _: bar.update(), note, on_start))
    finally:
        if bar is not None:
            bar.close()
    return _report(config, label, path, metrics)


def _report(config: EvaluateConfig, label: str, path: Path, metrics: dict[str, Any]) -> int:
    """Print what a run gave; returns the exit code."""
    shard, is_measured = read_shard(config.shard), metrics["failed"] < max(metrics["questions"], 1)
    if shard:
        note(f"part {shard} has ended, with {metrics['questions']} questions; shard={MERGE} puts all parts together")
    elif is_measured:  # else its zeros would look like a result
        print(metrics_table([(label, metrics)]))
        if metrics.get("texts", {}).get("floors"):
            print(texts_table(metrics))
    if metrics["failed"]:
        print(describe_failures(read_predictions(path)), file=sys.stderr)
    if hint := upload_hint(path):
        note(hint)
    most = config.run.max_bad_replies if is_measured and not shard else None
    has_bad = tell(remarks(metrics.get("replies", {}), config.run.warn_bad_replies, most))
    print(path)
    return 0 if shard or (is_measured and not has_bad) else 1


def upload_hint(path: Path) -> str:
    """Return how to upload what a run with run.tracking=offline left in its folder; empty where there is nothing."""
    found = any((path / "wandb").glob("offline-run-*"))
    return f"tracked offline; to upload it: wandb sync {path / 'wandb'}/offline-run-*" if found else ""
