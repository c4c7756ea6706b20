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
from gnnrag.gnn.completion import CompletionTask, whole_graph
from gnnrag.gnn.encoder import encoder_record
from gnnrag.gnn.entity_examples import best_threshold, node_f1
from gnnrag.gnn.features import DEFAULT_NODE, EDGE_FEATURES
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.retrieval import Pool, RetrievalTask
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
    if g.mode == "entity":
        return config
    features, edges = list(g.features or DEFAULT_NODE), list(g.edge_features or EDGE_FEATURES)
    return replace(config, gnn=replace(g, features=features, edge_features=edges))


def told(row: Mapping[str, Any], steps: int) -> str:
    """Return a row of metrics as a person reads it."""
    shown = {name.rpartition("/")[2]: value for name, value in row.items() if name not in ("step", "seconds")}
    values = ", ".join(f"{name} {value:.3g}" for name, value in shown.items())
    return f"step {row['step']} of {steps}, {row['seconds']:.0f} s: {values}"


def train_fold(
    config: TrainGNNConfig,
    corpora: Mapping[str, Corpus],
    examples: Mapping[str, Any],
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
    run.on_row = lambda row: around.on_note(f"{path}, {told(row, config.fit.steps)}")
    run.write("folds.json", {name: p.plain() for name, p in parts.items()})
    tracker = Tracker(config.run, path, plain, around.on_note) if accelerator.is_main_process else None
    try:
        found = pools(examples, parts)
        model = make_model(config, corpora)
        saver = Saver(config, corpora, parts, around.command)
        task: Any = (
            completion_task(config, corpora, model, saver)
            if config.stage == "completion"
            else retrieval_task(config, found, saver)
        )
        trainer = Trainer(task, model, config.fit, run, accelerator, tracker, around.stop)
        state = trainer.fit()
        if not state.is_done:
            return None
        if config.stage == "completion":
            return []
        threshold = best_threshold(_rank(trainer, found["validation"])) if config.gnn.mode == "entity" else None
        rows = [{**row, "fold": fold} for row in _rank(trainer, found["report"], threshold)]
        metrics = write_report(path, rows, {}) if accelerator.is_main_process else {}
        record: dict[str, Any] = {"step": state.best_step if config.fit.keep == "best" else state.step}
        record |= {"validation": state.kept_metrics, "threshold": threshold, "report": metrics}
        run.save_folder("best", lambda folder: saver(trainer.bare, folder, record))
        if tracker:
            tracker.finish({"best_step": state.best_step, "best": state.best})
        return rows
    finally:
        run.close()


def retrieval_task(config: TrainGNNConfig, found: Mapping[str, Pool], save: Saver) -> RetrievalTask:
    """Return stage 2 on the pools of a fold."""
    shares = {name: one.share for name, one in config.sets.items()}
    counts = {name: len(rows) for name, rows in found["train"].items.items()}
    draws = Draws(counts, config.fit.batch_size, config.fit.steps, config.seed, shares)
    return RetrievalTask(found["train"], found["validation"], config.losses, draws, save, config.metric)


def completion_task(
    config: TrainGNNConfig, corpora: Mapping[str, Corpus], model: QueryGNN, save: Saver
) -> CompletionTask:
    """Return stage 1 on the graphs of all sets."""
    graphs, bases = {}, {}
    for name, corpus in corpora.items():
        graphs[name], vectors = corpus.message_graph
        bases[name] = whole_graph(graphs[name], vectors, model)
    counts = {name: len(graph.triples) for name, graph in graphs.items()}
    shares = {name: one.share for name, one in config.sets.items()}
    draws = Draws(counts, config.fit.batch_size, config.fit.steps, config.seed, shares, together=True)
    return CompletionTask(graphs, bases, config.completion, draws, save, config.seed)


def _rank(trainer: Trainer, pool: Pool, threshold: float | None = None) -> list[dict[str, Any]]:
    """Rank the questions of a pool, each process its share; every process gets all rows, in the order of their ids."""
    accelerator = trainer.accelerator
    places = pool.places()[accelerator.process_index :: accelerator.num_processes]
    rows = pool.rank(trainer.bare, places, accelerator.device)
    rows = rows if accelerator.num_processes == 1 else gather_object(rows)
    for row in rows if threshold is not None else ():
        names = ("node_recall", "node_precision", "node_f1")
        row["metrics"] |= dict(zip(names, node_f1(row, threshold), strict=True))  # type: ignore[arg-type]
    return sorted(rows, key=lambda row: (row["set"], row["id"]))


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
    """Write `report.jsonl` and `metrics.json`: means and 95% intervals of each set and each number of hops."""
    groups: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        names = [row["set"]] + ([f"{row['set']}/{row['hops']}-hop"] if row.get("hops") else [])
        for name in names:
            groups.setdefault(name, []).append(row["metrics"])
    kept = ("chances", "is_right")  # what the threshold was learned from
    write_jsonl(path / "report.jsonl", [{k: v for k, v in row.items() if k not in kept} for row in rows])
    metrics: dict[str, Any] = dict(more)
    for name, mine in sorted(groups.items()):
        metrics[name] = {"questions": len(mine)}
        for key in mine[0]:
            found = bootstrap_interval(np.array([row[key] for row in mine]))
            metrics[name] |= {key: found.mean, f"{key}_ci": [found.low, found.high]}
    write_json(path / "metrics.json", metrics)
    return metrics


def _open_run(path: Path, plain: Any, inputs: Any, fresh: bool, accelerator: Accelerator) -> TrainingRun:
    """Open the run in the first process, then in the others."""
    run = TrainingRun(path, plain, inputs, fresh) if accelerator.is_main_process else None
    accelerator.wait_for_everyone()
    return run or TrainingRun(path, plain, inputs, is_main=False)


class Saver:
    """Writes checkpoints of a training with their model cards.

    Args:
        config: settings of the training.
        corpora: its sets.
        parts: which questions train, validate and report.
        command: the command line.
    """

    def __init__(
        self, config: TrainGNNConfig, corpora: Mapping[str, Corpus], parts: Mapping[str, Parts], command: str
    ) -> None:
        self.config, self.corpora, self.parts, self.command = config, corpora, parts, command
        first = next(iter(corpora.values()))
        self.encoder = {**encoder_record(first.index.embedder), "model": first.config.index.embedder.model}

    def __call__(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, QueryGNN)
        graphs = {name: digest(corpus.inputs) for name, corpus in self.corpora.items()}
        plain = to_plain(self.config)
        sizes = "neighbourhood" if self.config.gnn.mode == "entity" else "prune"
        facts = {**record, "graphs": graphs, sizes: plain[sizes], "commit": commit(), "seed": self.config.seed}
        save_checkpoint(folder, Checkpoint(model, None, self.encoder, facts))
        write_atomic(folder / "README.md", self.card(model, record).render())

    def card(self, model: nn.Module, record: Mapping[str, Any]) -> Card:
        """Return the model card."""
        number = sum(p.numel() for p in model.parameters())
        known = {"encoder": self.encoder["model"], "parameters": number, "steps": record["step"], "commit": commit()}
        known |= {"made by": f"`{self.command}`"} if self.command else {}
        corpora = self.corpora
        data = [
            {**row, "passages": len(corpora[row["set"]].data.passages), "licence": corpora[row["set"]].config.licence}
            for row in sizes(self.parts)
        ]
        scores = [
            {"set": "all", "part": "validation", "metric": k, "value": v} for k, v in record["validation"].items()
        ]
        for name, row in record.get("report", {}).items():
            for key, value in row.items():
                if f"{key}_ci" in row:
                    low, high = row[f"{key}_ci"]
                    shown = f"{value:.3f} [{low:.3f}, {high:.3f}]"
                    scores.append({"set": name, "part": "report", "metric": key, "value": shown, "n": row["questions"]})
        return Card("Graph network", SUMMARY, known, tuple(data), tuple(scores), tuple(self.config.run.notes))
