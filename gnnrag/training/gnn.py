"""Training of the graph network: questions of each part, network, report, checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gnnrag.config import load_config, read_yaml, to_plain
from gnnrag.errors import ConfigError
from gnnrag.gnn import GNNConfig, official
from gnnrag.gnn.checkpoint import Checkpoint, save_checkpoint, start_from
from gnnrag.gnn.examples import best_threshold, node_f1
from gnnrag.gnn.features import DEFAULT_NODE, EDGE_FEATURES, encoder_record
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.stages import CompletionTask, RetrievalTask, whole_graph
from gnnrag.io import difference, digest
from gnnrag.parts import layered
from gnnrag.run.rundir import code_version, read_seen, seen_in
from gnnrag.training.base import Report, RunContext, Training
from gnnrag.training.config import Parts, divide
from gnnrag.training.gnn_data import Corpus, TrainGNNConfig, check_training, limited, open_corpus, pools
from gnnrag.training.loop import Task, Trainer
from gnnrag.training.report import Card
from gnnrag.types import OnProgress

PRESETS = {"own": GNNConfig, "official": official}
SUMMARY = (
    "A query-conditioned graph network of gnnrag: it reads a question and the part of a corpus's message graph around "
    "it (passages, sentences, names), and scores passages. Use it with `retriever=gfm gnn.checkpoint=THIS_FOLDER`."
)


class GNNTraining(Training):
    """Training of the graph network; its data are the opened sets (`Corpus`) by name, and the subgraphs of each."""

    schema, prefix = TrainGNNConfig, "gnn"
    columns = ("recall@2", "recall@5", "hits@1", "mrr", "node_f1")
    config: TrainGNNConfig

    def __init__(self, config: TrainGNNConfig, data: Any, fold: int | None, context: RunContext) -> None:
        self.corpora: Mapping[str, Corpus] = data[0]
        super().__init__(config, data, fold, context)
        self.inputs = {name: corpus.inputs for name, corpus in self.corpora.items()}
        self.pools = pools(data[1], self.parts)

    @classmethod
    def load(cls, source: str | Path | None, overrides: Sequence[str] = ()) -> TrainGNNConfig:
        """Return the settings, the network's on top of its preset. Raises ConfigError, also for an unknown preset."""
        preset = load_config(TrainGNNConfig, source, overrides).gnn.preset
        whole = layered({"gnn": to_plain(PRESETS[preset]())}, read_yaml(source) if source else {})
        return cls.settle(load_config(TrainGNNConfig, whole, overrides))

    @classmethod
    def settle(cls, config: TrainGNNConfig) -> TrainGNNConfig:
        """Write out the names of all features."""
        g = config.gnn
        if g.mode == "entity":
            return config
        features, edges = list(g.features or DEFAULT_NODE), list(g.edge_features or EDGE_FEATURES)
        return replace(config, gnn=replace(g, features=features, edge_features=edges))

    @classmethod
    def run_name(cls, config: TrainGNNConfig) -> str:
        """Name stage and sets, too."""
        return super().run_name(config).replace("gnn-", f"gnn-{config.stage}-{'-'.join(config.sets)}-", 1)

    @classmethod
    def is_crossed(cls, config: TrainGNNConfig) -> bool:
        """Completion learns from the graph alone, once."""
        return config.cross and config.stage == "retrieval"

    @classmethod
    def open(cls, config: TrainGNNConfig, context: RunContext, on_index: OnProgress) -> Any:
        """Open all sets; make the subgraphs of their questions, where questions are asked."""
        check_training(config)
        corpora = {name: open_corpus(name, config, on_index) for name in config.sets}
        asked = corpora if config.stage == "retrieval" else {}
        return corpora, {name: corpus.examples(on_index) for name, corpus in asked.items()}

    def divide(self) -> dict[str, Parts]:
        """Limit the questions that train; those made train whatever the `use`, unless made of one that does not."""
        parts = {}
        for name, corpus in self.corpora.items():
            texts = {question.id: question.text for question in corpus.data.questions}
            part = divide(texts, self.config.folds, self.fold, corpus.config.use)
            held = {*part.validation, *part.report}
            composed = (q for q in corpus.composed if held.isdisjoint(q.extra["sources"]))
            parts[name] = replace(part, train=(*limited(part.train, corpus), *(q.id for q in composed)))
        return parts

    @property
    def seen(self) -> frozenset[str]:
        """Completion learns from the graph alone; what the first weights had seen counts, too."""
        before = read_seen(Path(self.config.start)) if self.config.start else None
        if self.config.stage != "retrieval":
            return before or frozenset()
        made_of = {}  # what the composed questions that train are made of is seen, too
        for name, corpus in self.corpora.items():
            train = set(self.parts[name].train)
            made_of[name] = {"train": [id_ for q in corpus.composed if q.id in train for id_ in q.extra["sources"]]}
        return super().seen | seen_in(made_of) | (before or frozenset())

    def build(self) -> tuple[Task, nn.Module]:
        """Return stage 2 (retrieval) on the pools of the fold, or stage 1 (completion) on the graphs of all sets."""
        config, corpora = self.config, self.corpora
        model = make_model(config, corpora)
        first = next(iter(corpora.values()))
        self.encoder = {**one_encoder(corpora), "model": first.config.index.embedder.model}
        if config.stage == "completion":
            graphs = {name: corpus.message_graph for name, corpus in corpora.items()}
            bases = {name: whole_graph(graph, vectors, model) for name, (graph, vectors) in graphs.items()}
            draws = self.draws({name: graph.triples for name, (graph, _) in graphs.items()}, together=True)
            alone = {name: graph for name, (graph, _) in graphs.items()}
            return CompletionTask(alone, bases, config.completion, draws, self.save, config.seed), model
        train, validation = self.pools["train"], self.pools["validation"]
        draws = self.draws(train.items)
        return RetrievalTask(train, validation, config.losses, draws, self.save, config.metric), model

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """Rank the questions of the fold; the threshold of a knowledge base's entities is learned on validation."""
        if self.config.gnn.shrink < 1:
            trainer.bare.shrink(self.config.gnn.shrink)
        if self.config.stage == "completion":
            return [], {"threshold": None}
        asks = self.config.gnn.mode == "entity" and any(corpus.is_kb for corpus in self.corpora.values())
        threshold = best_threshold(self._rank(trainer, "validation")) if asks else None
        rows = self._rank(trainer, "report")
        for row in (row for row in rows if threshold is not None and "chances" in row):
            names = ("node_recall", "node_precision", "node_f1")
            row["metrics"] |= dict(zip(names, node_f1(row, threshold), strict=True))  # type: ignore[arg-type]
        return rows, {"threshold": threshold}

    def _rank(self, trainer: Trainer, part: str) -> Report:
        """Rank the questions of a part, each process its share; every process gets all rows."""
        pool = self.pools[part]
        rows = pool.rank(trainer.bare, pool.places()[self.context.share], self.context.accelerator.device)
        return self.context.gather(rows)

    def save(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, QueryGNN)
        config, corpora = self.config, self.corpora
        graphs = {name: digest(corpus.inputs) for name, corpus in corpora.items()}
        facts = {**record, "graphs": graphs, "commit": code_version(), "seed": config.seed}
        if model.config.mode == "entity":
            is_kb = all(corpus.is_kb for corpus in corpora.values())
            facts |= {"neighbourhood": to_plain(config.neighbourhood), "fallback": "none" if is_kb else "dense"}
        else:
            facts["prune"] = to_plain(config.prune)
        ranker = config.gnn.ranker if model.config.mode == "entity" else None
        save_checkpoint(folder, Checkpoint(model, ranker, self.encoder, facts))
        known = {"encoder": self.encoder["model"], "parameters": sum(p.numel() for p in model.parameters())}
        data = self.sizes(
            passages=lambda name: len(corpora[name].data.passages), licence=lambda name: corpora[name].config.licence
        )
        self.write_card(folder, Card("Graph network", SUMMARY, known, data), record)


def make_model(config: TrainGNNConfig, corpora: Mapping[str, Corpus]) -> QueryGNN:
    """Return the network, new (from the seed) or `start`.

    Raises ConfigError where the sets' embedders differ, ArtefactError where `start` has another one or architecture.
    """
    encoder, size = one_encoder(corpora), next(iter(corpora.values())).index.embedder.dim
    torch.manual_seed(config.seed)
    model = QueryGNN(config.gnn.architecture, size)
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
