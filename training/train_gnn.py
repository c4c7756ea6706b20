"""Train the graph network.

    accelerate launch training/train_gnn.py configs/train/gnn_2wiki.yaml
    ACCELERATE_USE_CPU=true torchrun --nproc_per_node 2 training/train_gnn.py configs/train/gnn_2wiki.yaml

Settings follow as key=value. The same command again continues a run that was cut off. `cross=true` trains once for each
fold and reports on all questions. The last line printed is the run directory.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `accelerate launch` puts only this folder there

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from tqdm import tqdm

from gnnrag.config import load_config, to_plain
from gnnrag.files import digest
from gnnrag.fit.config import check_fit, check_run
from gnnrag.fit.gnn import Surroundings, settle, train_fold, write_report
from gnnrag.fit.gnn_config import TrainGNNConfig, check_training
from gnnrag.fit.gnn_sets import open_corpus
from inference.console import IndexProgress, note, render, run_script, split_arguments

STOPPED = 75  # exit code of a run that was told to stop and goes on when it is started again


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = settle(load_config(TrainGNNConfig, source, overrides))
    check_training(config)
    check_run(config.run)
    check_fit(config.fit)
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)  # without layers, relations have no use
    accelerator = Accelerator(
        mixed_precision=config.fit.precision, cpu=not torch.cuda.is_available(), kwargs_handlers=[unused]
    )
    is_told = _listen()
    around = Surroundings(accelerator, lambda: bool(is_told), note, _command(source, overrides))
    path = Path(config.run.root) / (config.run.name or _name(config))
    with accelerator.main_process_first():  # which builds what is missing; the others find it on disk
        with IndexProgress() as on_index:
            corpora = {name: open_corpus(name, config, on_index) for name in config.sets}
        asks = config.stage == "retrieval"
        examples = {n: _examples(c, accelerator.is_main_process) for n, c in corpora.items() if asks}
    folds = list(range(config.folds.count)) if config.cross and asks else [config.folds.report]
    every: list[dict[str, Any]] = []
    for fold in folds:
        folder = path / f"fold{fold}" if config.cross else path
        rows = train_fold(config, corpora, examples, fold, folder, around)
        if rows is None:
            note(f"stopped; the same command continues {folder}")
            return STOPPED
        every += rows
    if accelerator.is_main_process:
        metrics = write_report(path, sorted(every, key=lambda row: (row["set"], row["id"])), {"folds": folds})
        if every:
            print(_table(metrics))
        print(path)
    return 0


def _command(source: str | None, overrides: Sequence[str]) -> str:
    """Return the command for the model card, without what only says where things lie."""
    kept = [
        o for o in overrides if o.split("=")[0].rsplit(".", 1)[-1] not in ("path", "root", "cache", "notes", "name")
    ]
    return " ".join(["accelerate launch training/train_gnn.py", *([source] if source else []), *kept])


def _examples(corpus: Any, shown: bool) -> Any:
    total = len(corpus.data.questions) + corpus.config.synthetic
    with tqdm(total=total, desc=f"{corpus.name}: subgraphs", delay=2, disable=None if shown else True) as bar:
        return corpus.examples(bar.update)


def _listen() -> list[int]:
    """Return a list that holds the signals received: SLURM sends one before the time limit."""
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda signum, frame: received.append(signum))
    return received


def _name(config: TrainGNNConfig) -> str:
    kept = {key: value for key, value in to_plain(config).items() if key not in ("run", "cache")}
    return f"gnn-{config.stage}-{'-'.join(config.sets)}-{digest(kept)[:8]}"


def _table(metrics: dict[str, Any]) -> str:
    from rich.table import Table

    found = {name for row in metrics.values() if isinstance(row, dict) for name in row}
    names = [name for name in ("recall@2", "recall@5", "hits@1", "mrr", "node_f1") if name in found]
    table = Table("set", "questions", *names)
    for name, row in metrics.items():
        if isinstance(row, dict):
            cells = [f"{row[n]:.3f} [{row[f'{n}_ci'][0]:.3f}, {row[f'{n}_ci'][1]:.3f}]" for n in names]
            table.add_row(name, str(row["questions"]), *cells)
    return render(table)


if __name__ == "__main__":
    sys.exit(run_script(main, sys.argv[1:], __doc__))
