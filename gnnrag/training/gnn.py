"""Training of the graph network: settings, corpora with their subgraphs, network, report, checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import nn

from gnnrag.common.files import digest
from gnnrag.common.records import difference
from gnnrag.config import DataConfig, IndexConfig, load_config, read_yaml, to_plain
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import ConfigError, DataError, nearest
from gnnrag.gnn import ENTITY_STAGES, NODE_STAGES, GNNConfig, LossConfig, RankerConfig, entity_stages, official
from gnnrag.gnn.checkpoint import Checkpoint, save_checkpoint, start_from
from gnnrag.gnn.entity import EntityQuestions, NeighbourhoodConfig, QuestionGraphs
from gnnrag.gnn.examples import EntitySet, ExampleSet, Preparer, SupportSet, best_threshold, node_f1
from gnnrag.gnn.features import DEFAULT_NODE, EDGE_FEATURES, encoder_record
from gnnrag.gnn.model import EntityGNN, QueryGNN
from gnnrag.gnn.sampling import QuestionMaker, path_questions
from gnnrag.gnn.stages import CompletionConfig, CompletionTask, Pool, RetrievalTask, whole_graph
from gnnrag.gnn.subgraph import PruneConfig, with_inverses
from gnnrag.graphs.messages import MessageGraph
from gnnrag.index.build import Progress, build_index
from gnnrag.index.index import Index
from gnnrag.run.pipeline import data_source, index_path
from gnnrag.run.rundir import commit
from gnnrag.run.trained import read_seen
from gnnrag.training.base import OnIndex, Report, RunContext, Training
from gnnrag.training.config import FitConfig, FoldConfig, Parts, TrainingRunConfig, check_sets, divide, draw
from gnnrag.training.loop import Task, Trainer
from gnnrag.training.report import Card, measured_rows
from gnnrag.types import Question

PRESETS = {"own": GNNConfig, "official": official}
STAGES = ("retrieval", "completion")


@dataclass
class SetConfig:
    """A corpus with questions that takes part in a training."""

    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    use: str = "folds"  # folds: each question trains, validates or reports; train: none reports; report: all report
    share: float = 1.0  # factor of the probability that a batch takes its questions, beside the root of their number
    synthetic: int = 0  # further questions made from paths of the graph, which train
    train_limit: int | None = None  # at most so many questions train; of a knowledge base, of each number of hops
    licence: str = ""  # for the model card


@dataclass
class NetworkConfig(GNNConfig):
    """The network, where its settings start from, and what belongs to its training alone."""

    preset: str = "own"  # what all other settings of the network default to; official: GFM-RAG's architecture
    ranker: RankerConfig = field(default_factory=RankerConfig)  # mode entity: from entities to passages
    checkpointing: bool = False  # compute layers again in the backward pass: less memory, a third more time

    @property
    def architecture(self) -> GNNConfig:
        """Settings of the network that a checkpoint records."""
        return GNNConfig(**{f.name: getattr(self, f.name) for f in fields(GNNConfig)})


@dataclass
class TrainGNNConfig:
    """Everything that training of the graph network reads."""

    sets: dict[str, SetConfig] = field(default_factory=dict)  # by name
    stage: str = "retrieval"  # retrieval: questions with gold passages; completion: triples of the graphs
    start: str | None = None  # checkpoint to start from: that of stage 1, or a folder that gfm-rag released
    gnn: NetworkConfig = field(default_factory=NetworkConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)  # mode node
    neighbourhood: NeighbourhoodConfig = field(default_factory=NeighbourhoodConfig)  # mode entity
    losses: LossConfig = field(default_factory=LossConfig)
    completion: CompletionConfig = field(default_factory=CompletionConfig)
    metric: str = "recall@5"  # of validation, that decides which weights are kept
    folds: FoldConfig = field(default_factory=FoldConfig)
    cross: bool = False  # train once for each fold and report on all questions together
    fit: FitConfig = field(default_factory=FitConfig)
    run: TrainingRunConfig = field(default_factory=TrainingRunConfig)
    seed: int = 0
    cache: str = ".cache/gnn"  # subgraphs of the questions


def check_training(config: TrainGNNConfig) -> None:
    """Raise ConfigError where there is nothing to train on, or a setting is none of those allowed."""
    if not config.sets:
        raise ConfigError("sets: name at least one, as configs/train/gnn_2wiki.yaml does")
    if config.stage not in STAGES:
        raise ConfigError(f"stage={config.stage!r}: allowed are {', '.join(STAGES)}")
    if config.stage == "completion" and config.completion.query == "question" and not config.gnn.question_text:
        raise ConfigError(
            "completion.query=question with gnn.question_text=false: the network would not know the relation that is "
            "asked for; set completion.query=relation"
        )
    _check_ranker(config)
    for name, one in config.sets.items():
        if one.synthetic < 0:
            raise ConfigError(f"sets.{name}.synthetic={one.synthetic}: must be 0 or more")
    check_sets(config.sets, config.cross, config.folds)


def _check_ranker(config: TrainGNNConfig) -> None:
    """Raise ConfigError where a ranker would not learn, or where one cannot."""
    name, weight = config.gnn.ranker.name, config.losses.passages
    if weight and (config.gnn.mode != "entity" or name in ("topk", "idf_topk")):
        raise ConfigError(
            f"losses.passages={weight} with gnn.mode={config.gnn.mode} gnn.ranker.name={name}: only networks of mode "
            "entity with the rankers simple, idf and learned have scores of passages to learn from"
        )
    if config.stage == "retrieval" and config.gnn.mode == "entity" and name == "learned" and not weight:
        raise ConfigError("gnn.ranker.name=learned with losses.passages=0: it would not learn; give losses.passages=1")


PARTS = ("train", "validation", "report")


@dataclass(frozen=True)
class Corpus:
    """An opened set: its data, its index, and what makes subgraphs on it."""

    name: str
    config: SetConfig
    data: Dataset
    index: Index
    settings: TrainGNNConfig

    @cached_property
    def preparer(self) -> Preparer:
        """Makes subgraphs; loads the index when first asked."""
        return QuestionGraphs(self.index, self.settings.gnn.architecture, self.settings.prune)

    @property
    def is_kb(self) -> bool:
        """The corpus is a knowledge base, whose questions ask for entities."""
        return self.config.index.extract.method == "kb"

    @cached_property
    def facts(self) -> EntityQuestions:
        """The graph of facts, and where questions start in it."""
        return EntityQuestions(self.index, self.settings.gnn.architecture)

    @cached_property
    def synthetic(self) -> list[Question]:
        """Questions made from paths of the corpus."""
        count = self.config.synthetic
        if not count:
            return []
        if self.settings.gnn.mode == "entity":
            return path_questions(self.facts.graph, count, seed=self.settings.seed)
        maker = QuestionMaker(self.index.passages, self.index.hierarchy, self.index.titles)
        return maker.make(count, self.settings.seed)

    @property
    def message_graph(self) -> tuple[MessageGraph, np.ndarray]:
        """The whole graph with the (2R, F) vectors of its relations and their inverses: what stage 1 completes."""
        if self.settings.gnn.mode == "entity":
            return self.facts.graph, self.facts.relation_vectors
        graph = self.index.read("message_graph").graph
        return graph, with_inverses(self.index.read("relation_vectors"), graph, self.settings.gnn)

    @property
    def inputs(self) -> dict[str, Any]:
        """Fingerprints that the set's examples depend on."""
        stages = {name: self.index.fingerprint[name] for name in needed_stages(self.settings, self.is_kb)}
        return {"data": self.data.fingerprints, "index": stages}

    def examples(self, on_index: OnIndex) -> ExampleSet | EntitySet:
        """Return all examples of the set, its questions first, then the synthetic ones."""
        questions = [*self.data.questions, *self.synthetic]
        made = 0

        def progress(count: int) -> None:
            nonlocal made
            made += count
            on_index(f"{self.name}: subgraphs", made, len(questions))

        if not self.is_kb:
            self._check_gold()
        if self.settings.gnn.mode == "entity":
            kind = EntitySet if self.is_kb else SupportSet
            return kind(questions, self.facts, self.settings.neighbourhood)
        gold = [[self.index.position[id_] for id_ in question.gold] for question in questions]
        s = self.settings
        key = [
            self.inputs["index"],
            s.gnn.features,
            s.gnn.edge_features,
            s.gnn.seed_weight,
            s.gnn.inverse,
            to_plain(s.prune),
        ]
        return ExampleSet(questions, gold, lambda: self.preparer, Path(s.cache) / self.name, key, progress)

    def _check_gold(self) -> None:
        for question in self.data.questions:
            if unknown := [id_ for id_ in question.gold if id_ not in self.index.position]:
                raise DataError(self.config.data.path, f"question {question.id}: gold {unknown[0]!r} is no passage")


def needed_stages(settings: TrainGNNConfig, is_kb: bool) -> tuple[str, ...]:
    """Return the index stages that training reads; stage 1 looks at no text but that of the relations."""
    if settings.stage == "completion":
        return ENTITY_STAGES
    if settings.gnn.mode != "entity":
        return NODE_STAGES
    return entity_stages(settings.gnn.link_vectors, "none" if is_kb else "dense")


def open_corpus(name: str, settings: TrainGNNConfig, progress: Progress) -> Corpus:
    """Load a set, and bring its index up to date."""
    config = settings.sets[name]
    d = config.data
    data = load_dataset(d.path, d.split, d.questions, d.limit, sample=d.draw)
    path = index_path(config.index, data.name)
    stages = needed_stages(settings, config.index.extract.method == "kb")
    build_index(path, data.passages, config.index, stages, data_source(d), progress, keep_edits=True)
    return Corpus(name, config, data, Index(path, config.index), settings)


def _limited(ids: Sequence[str], corpus: Corpus) -> list[str]:
    """Return at most so many questions, of each number of hops where the data says it; files may be sorted by type."""
    hops = {question.id: question.extra.get("hops") for question in corpus.data.questions}
    taken: Counter[Any] = Counter()
    kept = set()
    for id_ in sorted(ids, key=lambda id_: draw(id_, "limit")):
        taken[hops[id_]] += 1
        if corpus.config.train_limit is None or taken[hops[id_]] <= corpus.config.train_limit:
            kept.add(id_)
    return [id_ for id_ in ids if id_ in kept]


def pools(examples: Mapping[str, Any], parts: Mapping[str, Parts]) -> dict[str, Pool]:
    """Return the pool of each part: `train` (questions that teach something), `validation` and `report`."""
    place = {name: {q.id: i for i, q in enumerate(one.questions)} for name, one in examples.items()}

    def items(name: str, part: str) -> list[int]:
        found = [place[name][id_] for id_ in getattr(parts[name], part)]
        return [i for i in found if examples[name].teaches(i)] if part == "train" else found

    def pool(part: str) -> Pool:
        return Pool(examples, {name: items(name, part) for name in examples})

    return {part: pool(part) for part in PARTS}


SAME = ("gnn", "prune", "neighbourhood", "losses", "fit")  # settings that a run has in common with one that measured it
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
        if preset not in PRESETS:
            raise ConfigError(f"gnn.preset={preset!r} is unknown. {nearest(preset, PRESETS)}")
        base: Any = OmegaConf.create({"gnn": to_plain(PRESETS[preset]())})
        whole: Any = OmegaConf.merge(base, read_yaml(source, "configs/train/gnn_2wiki.yaml")) if source else base
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
    def open(cls, config: TrainGNNConfig, context: RunContext, on_index: OnIndex) -> Any:
        """Open all sets; make the subgraphs of their questions, where questions are asked."""
        check_training(config)
        corpora = {name: open_corpus(name, config, on_index) for name in config.sets}
        asked = corpora if config.stage == "retrieval" else {}
        return corpora, {name: corpus.examples(on_index) for name, corpus in asked.items()}

    def divide(self) -> dict[str, Parts]:
        """Limit the questions that train, and let the synthetic ones train whatever the `use` of their set."""
        parts = {}
        for name, corpus in self.corpora.items():
            texts = {question.id: question.text for question in corpus.data.questions}
            part = divide(texts, self.config.folds, self.fold, corpus.config.use)
            made = tuple(question.id for question in corpus.synthetic)
            parts[name] = replace(part, train=(*_limited(part.train, corpus), *made))
        return parts

    @property
    def indexes(self) -> Sequence[Index]:
        """Those of the sets."""
        return [corpus.index for corpus in self.corpora.values()]

    @property
    def seen(self) -> frozenset[str]:
        """Completion learns from the graph alone; what the first weights had seen counts, too."""
        before = read_seen(Path(self.config.start)) if self.config.start else None
        own = super().seen if self.config.stage == "retrieval" else frozenset()
        return own | (before or frozenset())

    def build(self) -> tuple[Task, nn.Module]:
        """Return stage 2 (retrieval) on the pools of the fold, or stage 1 (completion) on the graphs of all sets."""
        config, corpora = self.config, self.corpora
        model = make_model(config, corpora)
        plain = to_plain(config)
        self.measured = measured_rows(config.run.measured, {name: plain[name] for name in SAME})
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
        corpora, plain = self.corpora, to_plain(self.config)
        graphs = {name: digest(corpus.inputs) for name, corpus in corpora.items()}
        facts = {**record, "graphs": graphs, "commit": commit(), "seed": self.config.seed}
        if isinstance(model, EntityGNN):
            is_kb = all(corpus.is_kb for corpus in corpora.values())
            facts |= {"neighbourhood": plain["neighbourhood"], "fallback": "none" if is_kb else "dense"}
        else:
            facts["prune"] = plain["prune"]
        save_checkpoint(folder, Checkpoint(model, getattr(model, "ranker", None), self.encoder, facts))
        number = sum(p.numel() for p in model.parameters())
        known = {"encoder": self.encoder["model"], "parameters": number, "steps": record["step"], "commit": commit()}
        data = []
        for row in self.sizes():
            corpus = corpora[row["set"]]
            data.append({**row, "passages": len(corpus.data.passages), "licence": corpus.config.licence})
        card = Card("Graph network", SUMMARY, known, data, self.measured, self.run.notes)
        self.write_card(folder, card, record)


def make_model(config: TrainGNNConfig, corpora: Mapping[str, Corpus]) -> QueryGNN:
    """Return the network, new (from the seed) or `start`.

    Raises ConfigError where the sets' embedders differ, ArtefactError where `start` has another one or architecture.
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
