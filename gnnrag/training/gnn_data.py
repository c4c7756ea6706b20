"""Settings of the graph network's training, and its sets: corpora with their questions and subgraphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from gnnrag.config import DataConfig, IndexConfig, to_plain
from gnnrag.datasets.base import Dataset, load_dataset, load_passages
from gnnrag.errors import ConfigError, DataError
from gnnrag.gnn import ENTITY_STAGES, NODE_STAGES, GNNConfig, LossConfig, RankerConfig, entity_stages
from gnnrag.gnn.entity import EntityQuestions, NeighbourhoodConfig
from gnnrag.gnn.examples import EntitySet, ExampleSet, SupportSet
from gnnrag.gnn.question_graphs import QuestionGraphs
from gnnrag.gnn.stages import CompletionConfig, Pool
from gnnrag.gnn.subgraph import PruneConfig, with_inverses
from gnnrag.graphs.messages import MessageGraph
from gnnrag.index.index import Index, open_or_build
from gnnrag.training.composing import ComposeConfig, compose, facts_of
from gnnrag.training.config import Parts, SetShare, TrainConfig, Use, check_sets, draw
from gnnrag.types import OnProgress, Passage, Question


@dataclass
class SetConfig:
    """A corpus with questions that takes part in a training."""

    data: DataConfig = field(default_factory=DataConfig)
    corpus: list[str] = field(default_factory=list)  # whose passages together are the corpus; []: the data's own
    index: IndexConfig = field(default_factory=IndexConfig)
    use: Use = "folds"
    share: SetShare = 1.0  # factor of the probability that a batch takes its questions, beside the root of their number
    composed: Annotated[int, Ge(0)] = 0  # further questions of two hops composed of the data's single ones, which train
    train_limit: int | None = None  # at most so many questions train; of a knowledge base, of each number of hops
    licence: str = ""  # for the model card


@dataclass
class NetworkConfig(GNNConfig):
    """The network, where its settings start from, and what belongs to its training alone."""

    # what all other settings of the network default to; official: GFM-RAG's architecture
    preset: Literal["own", "official"] = "own"
    ranker: RankerConfig = field(default_factory=RankerConfig)  # mode entity: from entities to passages
    # with residual: share that is kept of what the trained network adds; see `QueryGNN.shrink`
    shrink: Annotated[float, Gt(0), Le(1)] = 1.0

    @property
    def architecture(self) -> GNNConfig:
        """Settings of the network that a checkpoint records."""
        return GNNConfig(**{f.name: getattr(self, f.name) for f in fields(GNNConfig)})


@dataclass
class TrainGNNConfig(TrainConfig):
    """Everything that training of the graph network reads."""

    sets: dict[str, SetConfig] = field(default_factory=dict)  # by name
    # retrieval: questions with gold passages; completion: triples of the graphs
    stage: Literal["retrieval", "completion"] = "retrieval"
    start: str | None = None  # checkpoint to start from: that of stage 1, or a folder that gfm-rag released
    gnn: NetworkConfig = field(default_factory=NetworkConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)  # mode node
    neighbourhood: NeighbourhoodConfig = field(default_factory=NeighbourhoodConfig)  # mode entity
    losses: LossConfig = field(default_factory=LossConfig)
    completion: CompletionConfig = field(default_factory=CompletionConfig)
    metric: str = "recall@5"  # of validation, that decides which weights are kept
    cache: str = ".cache/gnn"  # subgraphs of the questions


def check_training(config: TrainGNNConfig) -> None:
    """Raise ConfigError where there is nothing to train on, or settings contradict each other."""
    check_sets(config.sets, config.cross, config.folds)
    if config.stage == "completion" and config.completion.query == "question" and not config.gnn.question_text:
        raise ConfigError(
            "completion.query=question with gnn.question_text=false: the network would not know the relation that is "
            "asked for; set completion.query=relation"
        )
    if config.gnn.shrink < 1 and not config.gnn.residual:
        raise ConfigError(f"gnn.shrink={config.gnn.shrink}: only with gnn.residual=true")


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
    def preparer(self) -> QuestionGraphs:
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
    def composed(self) -> list[Question]:
        """Questions of two hops made of all single ones of the data, whichever were drawn; `extra` names their two."""
        if not self.config.composed:
            return []
        d = self.config.data
        whole = load_dataset(d.path, d.split, d.questions)
        passages = {passage.id: passage for passage in whole.passages}
        facts = [fact for question in whole.questions for fact in facts_of(question, passages)]
        return compose(facts, whole.questions, ComposeConfig(), self.settings.seed)[: self.config.composed]

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
        stages = {name: self.index.artefact_key(name) for name in needed_stages(self.settings, self.is_kb)}
        return {"data": self.data.fingerprints, "index": stages}

    def examples(self, on_index: OnProgress) -> ExampleSet | EntitySet:
        """Return all examples of the set, its questions first, then those made."""
        questions = [*self.data.questions, *self.composed]

        def progress(count: int) -> None:
            on_index(f"{self.name}: subgraphs", count, len(questions))

        if not self.is_kb:
            self._check_gold()
        if self.settings.gnn.mode == "entity":
            if self.is_kb:
                return EntitySet(questions, self.facts, self.settings.neighbourhood)
            return SupportSet(questions, self.facts, self.settings.neighbourhood, self.settings.gnn.ranker)
        gold = [[self.index.position[id_] for id_ in question.gold] for question in questions]
        s = self.settings
        g, index = s.gnn, self.inputs["index"]
        key = [index, g.features, g.edge_features, g.seed_weight, g.inverse, to_plain(s.prune)]
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


def joined(paths: Sequence[str]) -> tuple[Passage, ...]:
    """Return the passages of several corpora as one. Raises DataError where two passages have one id."""
    found: dict[str, Passage] = {}
    for path in paths:
        for passage in load_passages(path).passages:
            if passage.id in found:
                raise DataError(path, f"passage {passage.id!r} is in another corpus of the set, too; join others")
            found[passage.id] = passage
    return tuple(found.values())


def open_corpus(name: str, settings: TrainGNNConfig, progress: OnProgress) -> Corpus:
    """Load a set, and bring its index up to date."""
    config = settings.sets[name]
    d = config.data
    data = load_dataset(d.path, d.split, d.questions, d.limit, sample=d.draw)
    if config.corpus:
        data = replace(data, passages=joined(config.corpus))
    stages = needed_stages(settings, config.index.extract.method == "kb")
    index = open_or_build(config.index, d, data.name, data.passages, stages, progress)
    return Corpus(name, config, data, index, settings)


def limited(ids: Sequence[str], corpus: Corpus) -> list[str]:
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
        return [i for i in found if examples[name].can_train(i)] if part == "train" else found

    def pool(part: str) -> Pool:
        return Pool(examples, {name: items(name, part) for name in examples})

    return {part: pool(part) for part in PARTS}
