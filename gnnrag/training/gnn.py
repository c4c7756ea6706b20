"""Training of the graph network: settings, the sets with their questions and subgraphs, network, report, checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from gnnrag.config import to_plain
from gnnrag.errors import ConfigError
from gnnrag.gnn import ENTITY_STAGES, NODE_STAGES, GNNConfig, LossConfig, PruneConfig, RankerConfig, entity_stages
from gnnrag.gnn.checkpoint import RECORD, Checkpoint, load_checkpoint, save_checkpoint, start_from
from gnnrag.gnn.entity import EntityQuestions, NeighbourhoodConfig
from gnnrag.gnn.examples import EntitySet, ExampleSet, SupportSet, best_threshold, node_f1
from gnnrag.gnn.features import NODE_FEATURES
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.question_graphs import QuestionGraphs
from gnnrag.gnn.stages import CompletionConfig, CompletionTask, Pool, RetrievalTask, whole_graph
from gnnrag.graphs.messages import MessageGraph
from gnnrag.index.embedder import encoder_record
from gnnrag.index_config import IndexConfig
from gnnrag.io import difference, digest
from gnnrag.training.base import Report
from gnnrag.training.config import FoldConfig, NetworkConfig, Parts, SetConfig
from gnnrag.training.networks import Item, NetworkTrainer, NetworkTraining
from gnnrag.training.sets import OpenSet
from gnnrag.types import OnProgress


@dataclass
class TrainGNNConfig(NetworkConfig):
    sets: dict[str, SetConfig] = field(default_factory=dict)  # by name
    # retrieval: questions with gold passages; completion: triples of the graphs
    stage: Literal["retrieval", "completion"] = "retrieval"
    start: str | None = None  # checkpoint to start from: that of stage 1, or a folder that gfm-rag released
    gnn: GNNConfig = field(default_factory=GNNConfig)
    ranker: RankerConfig = field(default_factory=RankerConfig)  # mode entity: from entities to passages
    prune: PruneConfig = field(default_factory=PruneConfig)  # mode node
    neighbourhood: NeighbourhoodConfig = field(default_factory=NeighbourhoodConfig)  # mode entity
    losses: LossConfig = field(default_factory=LossConfig)
    completion: CompletionConfig = field(default_factory=CompletionConfig)

    def __post_init__(self) -> None:
        """Write out the names of all features, and the metric of stage 1."""
        if self.gnn.mode == "node":
            self.gnn = replace(self.gnn, features=list(self.gnn.features or NODE_FEATURES))
        if self.stage == "completion":
            self.metric = "mrr"


@dataclass(frozen=True)
class GNNSet(OpenSet):
    """An opened set, and what makes subgraphs on it."""

    settings: TrainGNNConfig

    @property
    def is_kb(self) -> bool:
        """The corpus is a knowledge base, whose questions ask for entities."""
        return self.config.index.extract.is_kb

    @cached_property
    def facts(self) -> EntityQuestions:
        return EntityQuestions(self.index, self.settings.gnn)

    @property
    def message_graph(self) -> tuple[MessageGraph, np.ndarray]:
        """The whole graph with the (2R, F) vectors of its relations and their inverses: what stage 1 completes."""
        if self.settings.gnn.mode == "entity":
            return self.facts.graph, self.facts.relation_vectors
        graph = self.index.read("message_graph").graph
        return graph, self.index.read("relation_vectors")

    def divide(self, folds: FoldConfig, fold: int | None) -> Parts:
        """Stage 1 asks no questions."""
        return super().divide(folds, fold) if self.settings.stage == "retrieval" else Parts((), (), ())

    @cached_property
    def examples(self) -> ExampleSet | EntitySet:
        questions, settings = list(self.questions.values()), self.settings
        if settings.gnn.mode == "entity":
            if self.is_kb:
                return EntitySet(questions, self.facts, settings.neighbourhood)
            return SupportSet(questions, self.facts, settings.neighbourhood, settings.ranker)
        gold = [[self.index.position[id_] for id_ in question.gold] for question in questions]
        return ExampleSet(questions, gold, QuestionGraphs(self.index, settings.gnn, settings.prune))


def needed_stages(settings: TrainGNNConfig, index: IndexConfig) -> tuple[str, ...]:
    """Return the index stages that training reads; stage 1 (completion) reads no text but that of relations."""
    if settings.stage == "completion":
        return ENTITY_STAGES
    if settings.gnn.mode != "entity":
        return NODE_STAGES
    return entity_stages(settings.gnn.link_vectors, "none" if index.extract.is_kb else "dense")


# -------------------------------------------------------------------------------------------------------- training
SUMMARY = (
    "It reads a question and the part of a corpus's message graph around it (passages, sentences, names), and scores "
    "passages. Use it with `retriever=gfm gnn.checkpoint=THIS_FOLDER`."
)


class GNNTraining(NetworkTraining):
    schema, prefix, title, summary = TrainGNNConfig, "gnn", "Graph network", SUMMARY
    record = RECORD
    config: TrainGNNConfig
    sets: Mapping[str, GNNSet]

    @classmethod
    def open(cls, config: TrainGNNConfig, on_index: OnProgress) -> dict[str, GNNSet]:
        sets = {
            name: GNNSet.open(name, one, needed_stages(config, one.index), on_index, config)
            for name, one in config.sets.items()
        }
        for one in sets.values() if config.stage == "retrieval" else ():
            one.examples  # noqa: B018 - made now: what they refuse must not cost an earlier run its folder
        return sets

    def pool(self, part: str) -> Pool:
        """Return the questions of a part (`train`, `validation`, `report`); those that train teach something."""
        items = {}
        for name, one in self.sets.items():
            place = {id_: i for i, id_ in enumerate(one.questions)}
            found = [place[id_] for id_ in getattr(self.parts[name], part)]
            items[name] = [i for i in found if part != "train" or one.examples.can_train(i)]
        return Pool({name: one.examples for name, one in self.sets.items()}, items)

    def build(self) -> tuple[Any, list[Item], nn.Module]:
        """Stage 2 (retrieval) is on the pools of the fold, stage 1 (completion) on the graphs of all sets.

        Raises ConfigError where the sets' embedders differ, ArtefactError where `start` has another one, or another
        architecture.
        """
        config, corpora = self.config, self.sets
        encoder, first = one_encoder(corpora), next(iter(corpora.values()))
        torch.manual_seed(config.seed)
        model = QueryGNN(config.gnn, first.index.embedder.dim)
        if config.start:
            start_from(model, Path(config.start), encoder, first.config.index.embedder.model)
        if config.stage == "completion":
            graphs = {name: corpus.message_graph for name, corpus in corpora.items()}
            bases = {name: whole_graph(graph, vectors, model) for name, (graph, vectors) in graphs.items()}
            alone = {name: graph for name, (graph, _) in graphs.items()}
            items = self.items({name: range(len(graph.triples)) for name, graph in alone.items()}, together=True)
            return CompletionTask(alone, bases, config.completion, config.seed), items, model
        train = self.pool("train")
        return RetrievalTask(train, self.pool("validation"), config.losses), self.items(train.items), model

    @property
    def is_validated(self) -> bool:
        return self.config.stage == "completion" or super().is_validated

    @cached_property
    def model(self) -> nn.Module:
        return load_checkpoint(self.best).model.to(self.context.accelerator.device)

    def report(self) -> tuple[Report, dict[str, Any]]:
        """Rank the questions of the fold; the threshold of a knowledge base's entities is learned on validation."""
        if self.config.stage == "completion":
            return [], {"threshold": None}
        asks = self.config.gnn.mode == "entity" and any(corpus.is_kb for corpus in self.sets.values())
        threshold = best_threshold(self._rank("validation")) if asks else None
        rows = self._rank("report")
        for row in (row for row in rows if threshold is not None and "chances" in row):
            names = ("node_recall", "node_precision", "node_f1")
            row["metrics"] |= dict(zip(names, node_f1(row, threshold), strict=True))  # type: ignore[arg-type]
        return rows, {"threshold": threshold}

    def _rank(self, part: str) -> Report:
        """Rank the questions of a part, each process its share; every process gets all rows."""
        pool = self.pool(part)
        rows = pool.rank(self.model, pool.places()[self.context.share], self.context.accelerator.device)
        return self.context.gather(rows)

    def keep(self, trainer: NetworkTrainer, folder: Path) -> None:
        config, corpora = self.config, self.sets
        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        encoder = {**one_encoder(corpora), "model": next(iter(corpora.values())).config.index.embedder.model}
        facts: dict[str, Any] = {"graphs": {name: digest(corpus.inputs) for name, corpus in corpora.items()}}
        is_entity = model.config.mode == "entity"
        if is_entity:
            is_kb = all(corpus.is_kb for corpus in corpora.values())
            facts |= {"neighbourhood": to_plain(config.neighbourhood), "fallback": "none" if is_kb else "dense"}
        else:
            facts["prune"] = to_plain(config.prune)
        save_checkpoint(folder, Checkpoint(model, config.ranker if is_entity else None, encoder, facts))


def one_encoder(corpora: Mapping[str, GNNSet]) -> dict[str, Any]:
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
