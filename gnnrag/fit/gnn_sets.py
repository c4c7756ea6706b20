"""From settings to training examples: corpora, indexes, folds, subgraphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.config import to_plain
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import DataError
from gnnrag.fit.folds import Parts, draw, split_questions
from gnnrag.fit.gnn_config import SetConfig, TrainGNNConfig
from gnnrag.gnn.config import ENTITY_STAGES, NODE_STAGES, entity_stages
from gnnrag.gnn.entity import EntityQuestions
from gnnrag.gnn.examples import EntitySet, ExampleSet, Preparer, SupportSet
from gnnrag.gnn.prune import QuestionGraphs, with_inverses
from gnnrag.gnn.retrieval import Pool
from gnnrag.gnn.synthetic import QuestionMaker, path_questions
from gnnrag.graphs.messages import MessageGraph
from gnnrag.index.build import Progress, build_index
from gnnrag.index.index import Index
from gnnrag.run.pipeline import data_source, index_path
from gnnrag.types import Question

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
