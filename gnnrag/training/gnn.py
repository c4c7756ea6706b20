"""Training of the graph network: settings, corpora with their subgraphs, and the plan of a fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import nn

from gnnrag.common.files import digest, write_atomic
from gnnrag.common.weights import difference
from gnnrag.config import DataConfig, IndexConfig, load_config, read_yaml, to_plain
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import ConfigError, DataError, nearest
from gnnrag.gnn.checkpoint import Checkpoint, save_checkpoint, start_from
from gnnrag.gnn.completion import CompletionConfig, CompletionTask, whole_graph
from gnnrag.gnn.config import ENTITY_STAGES, NODE_STAGES, GNNConfig, LossConfig, RankerConfig, entity_stages, official
from gnnrag.gnn.entity import EntityQuestions
from gnnrag.gnn.examples import EntitySet, ExampleSet, Preparer, SupportSet, best_threshold, node_f1
from gnnrag.gnn.features import DEFAULT_NODE, EDGE_FEATURES, encoder_record
from gnnrag.gnn.model import EntityGNN, QueryGNN
from gnnrag.gnn.neighbourhood import NeighbourhoodConfig
from gnnrag.gnn.prune import PruneConfig, QuestionGraphs, with_inverses
from gnnrag.gnn.retrieval import Pool, RetrievalTask
from gnnrag.gnn.sampling import Draws
from gnnrag.gnn.synthetic import QuestionMaker, path_questions
from gnnrag.graphs.messages import MessageGraph
from gnnrag.index.build import Progress, build_index
from gnnrag.index.index import Index
from gnnrag.run.pipeline import data_source, index_path
from gnnrag.run.rundir import commit
from gnnrag.run.trained import read_seen
from gnnrag.training.base import Plan, Report, gathered, score_rows
from gnnrag.training.config import FitConfig, FoldConfig, Parts, TrainingRunConfig, check_sets, draw, split_questions
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
        """What a checkpoint says of the network."""
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


def load_training(source: str | Path | None, overrides: Sequence[str] = ()) -> TrainGNNConfig:
    """Return the settings of a file and overrides, those of the network on top of its preset.

    Raises:
        ConfigError: as `load_config`, or an unknown preset.
    """
    preset = load_config(TrainGNNConfig, source, overrides).gnn.preset
    if preset not in PRESETS:
        raise ConfigError(f"gnn.preset={preset!r} is unknown. {nearest(preset, PRESETS)}")
    base: Any = OmegaConf.create({"gnn": to_plain(PRESETS[preset]())})
    whole: Any = OmegaConf.merge(base, read_yaml(source, "configs/train/gnn_2wiki.yaml")) if source else base
    return load_config(TrainGNNConfig, whole, overrides)


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
        """What the set's examples depend on."""
        stages = {name: self.index.fingerprint[name] for name in needed_stages(self.settings, self.is_kb)}
        return {"data": self.data.fingerprints, "index": stages}

    def examples(self, progress: Callable[[int], None]) -> ExampleSet | EntitySet:
        """Return all examples of the set, its questions first, then the synthetic ones."""
        questions = [*self.data.questions, *self.synthetic]
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
    data = load_dataset(d.path, d.split, d.questions, d.limit)
    path = index_path(config.index, data.name)
    stages = needed_stages(settings, config.index.extract.method == "kb")
    build_index(path, data.passages, config.index, stages, data_source(d), progress, keep_edits=True)
    return Corpus(name, config, data, Index(path, config.index), settings)


def divide(corpus: Corpus, settings: TrainGNNConfig, fold: int | None) -> Parts:
    """Return which questions of a set train, validate and report; synthetic ones train whatever its `use`."""
    ids = [question.id for question in corpus.data.questions]
    if corpus.config.use == "report":
        return Parts(tuple(question.id for question in corpus.synthetic), (), tuple(ids))
    folds = replace(settings.folds, report=None if corpus.config.use == "train" else fold)
    parts = split_questions(ids, folds, {question.id: question.text for question in corpus.data.questions})
    train = _limited(parts.train, corpus)
    return Parts((*train, *(question.id for question in corpus.synthetic)), parts.validation, parts.report)


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


def sizes(parts: Mapping[str, Parts]) -> Sequence[dict[str, Any]]:
    """Return how many questions of each set are in each part, for the model card."""
    return [{"set": name, **{part: len(getattr(p, part)) for part in PARTS}} for name, p in parts.items()]


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
    """Training of the network on the questions outside of a fold; see `gnnrag.training.base.Plan`.

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
