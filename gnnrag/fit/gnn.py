"""Training of the graph network, one fold or all of them: what `training/train_gnn.py` starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from gnnrag.config import to_plain
from gnnrag.files import digest, write_atomic, write_json, write_jsonl
from gnnrag.fit.card import Card
from gnnrag.fit.folds import Parts
from gnnrag.fit.gnn_config import TrainGNNConfig
from gnnrag.fit.gnn_sets import Corpus, divide, pools, sizes
from gnnrag.fit.loop import Trainer
from gnnrag.fit.rundir import TrainingRun
from gnnrag.fit.tracking import Tracker
from gnnrag.gnn.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from gnnrag.gnn.encoder import encoder_record
from gnnrag.gnn.examples import ExampleSet
from gnnrag.gnn.features import DEFAULT_NODE, EDGE_FEATURES
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.retrieval import RetrievalTask, rank
from gnnrag.gnn.sampling import Draws
from gnnrag.metrics.bootstrap import bootstrap_interval
from gnnrag.rundir import commit

SUMMARY = (
    "A query-conditioned graph network of gnnrag: it reads a question and the part of a corpus's message graph around "
    "it (passages, sentences, names), and scores passages. Use it with `retriever=gfm gnn.checkpoint=THIS_FOLDER`."
)


@dataclass
class Surroundings:
    """What a training is told of where it runs.

    Attributes:
        accelerator: devices and processes.
        stop: asked before each step; true saves the state and ends.
        on_note: told what a person should know.
        command: the command line, for the model card.
    """

    accelerator: Accelerator
    stop: Callable[[], bool] = lambda: False
    on_note: Callable[[str], None] = lambda note: None
    command: str = ""


def settle(config: TrainGNNConfig) -> TrainGNNConfig:
    """Return the settings with the names of all features written out, so that a checkpoint names what it reads."""
    g = config.gnn
    features, edges = list(g.features or DEFAULT_NODE), list(g.edge_features or EDGE_FEATURES)
    return replace(config, gnn=replace(g, features=features, edge_features=edges))


def train_fold(
    config: TrainGNNConfig,
    corpora: Mapping[str, Corpus],
    examples: Mapping[str, ExampleSet],
    fold: int | None,
    path: Path,
    around: Surroundings,
) -> list[dict[str, Any]] | None:
    """Train on the questions outside of a fold, and rank those inside.

    Returns:
        One row for each question reported on; None where the training was stopped before its end.
    """
    accelerator = around.accelerator
    parts = {name: divide(corpus, config, fold) for name, corpus in corpora.items()}
    plain = {**to_plain(config), "fold": fold}
    inputs = {name: corpus.inputs for name, corpus in corpora.items()}
    run = _open_run(path, plain, inputs, config.run.fresh, accelerator)
    run.write("folds.json", {name: p.plain() for name, p in parts.items()})
    tracker = Tracker(config.run, path, plain, around.on_note) if accelerator.is_main_process else None
    try:
        found = pools(examples, parts)
        model = make_model(config, corpora)
        saver = _saver(config, corpora, parts, around.command)
        shares = {name: corpus.config.share for name, corpus in corpora.items()}
        counts = {name: len(rows) for name, rows in found["train"].items.items()}
        draws = Draws(counts, config.fit.batch_size, config.fit.steps, config.seed, shares)
        task = RetrievalTask(found["train"], found["validation"], config.losses, draws, saver, config.metric)
        trainer = Trainer(task, model, config.fit, run, accelerator, tracker, around.stop)
        state = trainer.fit()
        if not state.is_done:
            return None
        places = found["report"].places()[accelerator.process_index :: accelerator.num_processes]
        rows = rank(trainer.bare, found["report"], places, accelerator.device)
        rows = rows if accelerator.num_processes == 1 else gather_object(rows)
        rows = sorted(({**row, "fold": fold} for row in rows), key=lambda row: (row["set"], row["id"]))
        if accelerator.is_main_process:
            write_report(path, rows, {"step": state.best_step, "seconds": state.seconds})
            if tracker:
                tracker.finish({"best_step": state.best_step, "best": state.best})
        return rows
    finally:
        run.close()


def make_model(config: TrainGNNConfig, corpora: Mapping[str, Corpus]) -> QueryGNN:
    """Return the network: new, with weights that follow from the seed, or that of `start`."""
    size = next(iter(corpora.values())).index.embedder.dim
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(config.seed)
        model = QueryGNN(config.gnn, size)
    if config.start:
        weights = load_checkpoint(Path(config.start), {"network": to_plain(config.gnn)}).model.state_dict()
        model.load_state_dict(weights)
    return model


def write_report(path: Path, rows: list[dict[str, Any]], more: Mapping[str, Any]) -> dict[str, Any]:
    """Write `report.jsonl` and `metrics.json`: means and 95% intervals for each set."""
    write_jsonl(path / "report.jsonl", rows)
    metrics: dict[str, Any] = dict(more)
    for name in dict.fromkeys(row["set"] for row in rows):
        mine = [row["metrics"] for row in rows if row["set"] == name]
        metrics[name] = {"questions": len(mine)}
        for key in mine[0]:
            found = bootstrap_interval(np.array([row[key] for row in mine]))
            metrics[name][key] = found.mean
            metrics[name][f"{key}_ci"] = [found.low, found.high]
    write_json(path / "metrics.json", metrics)
    return metrics


def _open_run(path: Path, plain: Any, inputs: Any, fresh: bool, accelerator: Accelerator) -> TrainingRun:
    """Open the run in the first process, then in the others."""
    run = TrainingRun(path, plain, inputs, fresh) if accelerator.is_main_process else None
    accelerator.wait_for_everyone()
    return run or TrainingRun(path, plain, inputs, is_main=False)


def _saver(
    config: TrainGNNConfig, corpora: Mapping[str, Corpus], parts: Mapping[str, Parts], command: str
) -> Callable[[nn.Module, Path, Mapping[str, Any]], None]:
    """Return what writes a checkpoint with its card."""
    embedder = next(iter(corpora.values())).config.index.embedder.model
    record_of = encoder_record(next(iter(corpora.values())).index.embedder)
    plain = to_plain(config)

    def save(model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        assert isinstance(model, QueryGNN)
        graphs = {name: digest(corpus.inputs) for name, corpus in corpora.items()}
        facts = {**record, "graphs": graphs, "prune": plain["prune"], "commit": commit(), "seed": config.seed}
        save_checkpoint(folder, Checkpoint(model, None, {**record_of, "model": embedder}, facts))
        rows = [
            {**row, "passages": len(corpora[row["set"]].data.passages), "licence": corpora[row["set"]].config.licence}
            for row in sizes(parts)
        ]
        scores = [{"part": "validation", "metric": k, "value": v} for k, v in record["validation"].items()]
        number = sum(p.numel() for p in model.parameters())
        known = {"encoder": embedder, "parameters": number, "steps": record["step"], "commit": commit()}
        known |= {"made by": f"`{command}`"} if command else {}
        card = Card("Graph network", SUMMARY, known, tuple(rows), tuple(scores), tuple(config.run.notes))
        write_atomic(folder / "README.md", card.render())

    return save
