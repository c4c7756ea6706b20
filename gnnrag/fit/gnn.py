"""Training of the graph network, one fold or all of them: what `training/train_gnn.py` starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gnnrag.common.files import digest, write_atomic
from gnnrag.config import to_plain
from gnnrag.errors import ConfigError
from gnnrag.fit.card import Card
from gnnrag.fit.folds import Parts
from gnnrag.fit.gnn_config import TrainGNNConfig
from gnnrag.fit.gnn_sets import Corpus, divide, pools, sizes
from gnnrag.fit.loop import Task, Trainer
from gnnrag.fit.measured import measured_rows
from gnnrag.fit.seen import read_seen
from gnnrag.fit.training import Plan, Report, gathered, score_rows
from gnnrag.gnn.checkpoint import Checkpoint, save_checkpoint, start_from
from gnnrag.gnn.completion import CompletionTask, whole_graph
from gnnrag.gnn.examples import best_threshold, node_f1
from gnnrag.gnn.features import DEFAULT_NODE, EDGE_FEATURES, encoder_record
from gnnrag.gnn.model import EntityGNN, QueryGNN
from gnnrag.gnn.retrieval import Pool, RetrievalTask
from gnnrag.gnn.sampling import Draws
from gnnrag.index.index import Index
from gnnrag.run.rundir import commit
from gnnrag.weights import difference

SAME = ("gnn", "prune", "neighbourhood", "losses", "fit")  # settings that a run has in common with one that measured it
SUMMARY = (
    "A query-conditioned graph network of gnnrag: it reads a question and the part of a corpus's message graph around "
    "it (passages, sentences, names), and scores passages. Use it with `retriever=gfm gnn.checkpoint=THIS_FOLDER`."
)


def settle(config: TrainGNNConfig) -> TrainGNNConfig:
    """Return the settings with the names of all features written out, so that a checkpoint names what it reads."""
    g = config.gnn
    if g.mode == "entity":
        return config
    features, edges = list(g.features or DEFAULT_NODE), list(g.edge_features or EDGE_FEATURES)
    return replace(config, gnn=replace(g, features=features, edge_features=edges))


@dataclass
class NetworkPlan(Plan):
    """Training of the network on the questions outside of a fold; see `gnnrag.fit.training.Plan`.

    Args:
        config: settings.
        corpora: the sets.
        examples: the subgraphs of each set's questions.
        fold: the one reported on.
        command: the command line, for the card.
    """

    config: TrainGNNConfig
    corpora: Mapping[str, Corpus]
    examples: Mapping[str, Any]
    fold: int | None
    command: str = ""

    def __post_init__(self) -> None:
        """Divide the questions."""
        self._parts = {name: divide(corpus, self.config, self.fold) for name, corpus in self.corpora.items()}
        self.fit, self.run = self.config.fit, self.config.run
        self.settings = {**to_plain(self.config), "fold": self.fold}
        self.inputs = {name: corpus.inputs for name, corpus in self.corpora.items()}
        self.parts = {name: p.plain() for name, p in self._parts.items()}
        self._found = pools(self.examples, self._parts)

    @property
    def indexes(self) -> Sequence[Index]:
        """See `Plan`."""
        return [one.index for one in self.corpora.values()]

    @property
    def seen(self) -> frozenset[str]:
        """See `Plan`; completion learns from the graph alone, and what the first weights had seen counts, too."""
        before = read_seen(Path(self.config.start)) if self.config.start else None
        mine = super().seen if self.config.stage == "retrieval" else frozenset()
        return mine | (before or frozenset())

    def build(self) -> tuple[Task, nn.Module]:
        """See `Plan`."""
        config, corpora = self.config, self.corpora
        model = make_model(config, corpora)
        saver = Saver(config, corpora, self._parts, self.command)
        if config.stage == "completion":
            return completion_task(config, corpora, model, saver), model
        return retrieval_task(config, self._found, saver), model

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """See `Plan`."""
        if self.config.stage == "completion":
            return [], {"threshold": None}
        asks = self.config.gnn.mode == "entity" and any(corpus.is_kb for corpus in self.corpora.values())
        threshold = best_threshold(_rank(trainer, self._found["validation"])) if asks else None
        return _rank(trainer, self._found["report"], threshold), {"threshold": threshold}


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


def _rank(trainer: Trainer, pool: Pool, threshold: float | None = None) -> Report:
    """Rank the questions of a pool, each process its share; every process gets all rows, in the order of their ids."""
    accelerator = trainer.accelerator
    places = pool.places()[accelerator.process_index :: accelerator.num_processes]
    rows = gathered(accelerator, pool.rank(trainer.bare, places, accelerator.device))
    for row in (row for row in rows if threshold is not None and "chances" in row):
        names = ("node_recall", "node_precision", "node_f1")
        row["metrics"] |= dict(zip(names, node_f1(row, threshold), strict=True))  # type: ignore[arg-type]
    return rows


def make_model(config: TrainGNNConfig, corpora: Mapping[str, Corpus]) -> QueryGNN:
    """Return the network: new, with weights that follow from the seed, or that of `start`.

    Raises:
        ConfigError: the sets' embedders differ.
        ArtefactError: `start` was trained with another embedder or architecture.
    """
    encoder, size = one_encoder(corpora), next(iter(corpora.values())).index.embedder.dim
    settings = config.gnn.architecture
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(config.seed)
        model: QueryGNN
        if settings.mode == "entity":
            model = EntityGNN(settings, size, config.gnn.ranker, config.gnn.checkpointing)
        else:
            model = QueryGNN(settings, size, checkpointing=config.gnn.checkpointing)
    if config.start:
        embedder = next(iter(corpora.values())).config.index.embedder.model
        start_from(model, Path(config.start), encoder, embedder)
    return model


def one_encoder(corpora: Mapping[str, Corpus]) -> dict[str, Any]:
    """Return the record of the embedder that all sets share. Raises ConfigError naming two that differ."""
    records = {name: encoder_record(corpus.index.embedder) for name, corpus in corpora.items()}
    first, encoder = next(iter(records.items()))
    for name, record in records.items():
        if problem := difference(record, encoder):
            raise ConfigError(
                f"sets {first} and {name} were indexed with different embedders (the latter's {problem}): one network "
                f"reads the vectors of one embedder; give both the same index.embedder"
            )
    return encoder


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
        self.commit = commit()
        first = next(iter(corpora.values()))
        plain = to_plain(config)
        self.measured = measured_rows(config.run.measured, {name: plain[name] for name in SAME})
        self.encoder = {**one_encoder(corpora), "model": first.config.index.embedder.model}

    def __call__(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, QueryGNN)
        graphs = {name: digest(corpus.inputs) for name, corpus in self.corpora.items()}
        plain = to_plain(self.config)
        facts = {**record, "graphs": graphs, "commit": self.commit, "seed": self.config.seed}
        if isinstance(model, EntityGNN):
            is_kb = all(corpus.is_kb for corpus in self.corpora.values())
            facts |= {"neighbourhood": plain["neighbourhood"], "fallback": "none" if is_kb else "dense"}
        else:
            facts["prune"] = plain["prune"]
        save_checkpoint(folder, Checkpoint(model, getattr(model, "ranker", None), self.encoder, facts))
        write_atomic(folder / "README.md", self.card(model, record).render())

    def card(self, model: nn.Module, record: Mapping[str, Any]) -> Card:
        """Return the model card."""
        number = sum(p.numel() for p in model.parameters())
        known = {"encoder": self.encoder["model"], "parameters": number, "steps": record["step"], "commit": self.commit}
        known |= {"made by": f"`{self.command}`"} if self.command else {}
        corpora = self.corpora
        data = [
            {**row, "passages": len(corpora[row["set"]].data.passages), "licence": corpora[row["set"]].config.licence}
            for row in sizes(self.parts)
        ]
        run, scores = self.config.run, (*self.measured, *score_rows(record))
        return Card("Graph network", SUMMARY, known, tuple(data), scores, tuple(run.notes), run.licence)
