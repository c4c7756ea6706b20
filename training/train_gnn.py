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

from inference.start import start

if __name__ == "__main__":
    start("training.train_gnn")

from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from gnnrag.common.files import digest
from gnnrag.config import to_plain
from gnnrag.training.config import check_fit, check_run, refuse_expressions
from gnnrag.training.gnn import Corpus, NetworkPlan, TrainGNNConfig, check_training, load_training, open_corpus, settle
from inference.console import IndexProgress, split_arguments
from training.common import one_by_one, surroundings, train_folds

COLUMNS = ("recall@2", "recall@5", "hits@1", "mrr", "node_f1")


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = settle(load_training(source, overrides))
    check_training(config)
    check_run(config.run)
    check_fit(config.fit)
    refuse_expressions(config)
    around = surroundings(config.fit, "train_gnn.py", source, overrides)
    path = Path(config.run.root) / (config.run.name or _name(config))
    asks = config.stage == "retrieval"

    def opened() -> tuple[dict[str, Corpus], dict[str, Any]]:
        with IndexProgress() as on_index:
            corpora = {name: open_corpus(name, config, on_index) for name in config.sets}
        return corpora, {n: _examples(c, around.accelerator.is_main_process) for n, c in corpora.items() if asks}

    corpora, examples = one_by_one(around.accelerator, opened)
    return train_folds(
        path,
        config.folds,
        config.cross and asks,
        lambda fold: NetworkPlan(config, corpora, examples, fold, around.command),
        around,
        COLUMNS,
    )


def _examples(corpus: Any, shown: bool) -> Any:
    total = len(corpus.data.questions) + corpus.config.synthetic
    with tqdm(total=total, desc=f"{corpus.name}: subgraphs", delay=2, disable=None if shown else True) as bar:
        return corpus.examples(bar.update)


def _name(config: TrainGNNConfig) -> str:
    kept = {key: value for key, value in to_plain(config).items() if key not in ("run", "cache")}
    return f"gnn-{config.stage}-{'-'.join(config.sets)}-{digest(kept)[:8]}"
