"""The sets that a reader trains on: corpora, questions, and what a retriever finds for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gnnrag.common.files import file_digest
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.datasets.jsonl import read_jsonl
from gnnrag.errors import DataError
from gnnrag.fit.folds import Parts, split_questions
from gnnrag.fit.reader_config import ReaderSetConfig, TrainReaderConfig
from gnnrag.fit.reader_examples import Asked, parts_of, whole_of
from gnnrag.fit.reader_synthetic import PracticeMaker, Triple
from gnnrag.index.build import Progress
from gnnrag.index.index import Index
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.run.pipeline import open_index
from gnnrag.types import Passage, Query, Question

_DEPTH = 20  # passages that are kept of a ranking


@dataclass(frozen=True)
class ReaderSet:
    """A corpus with its questions.

    Args:
        name: of the set.
        config: its settings.
        data: corpus and questions.
        index: over the corpus.
        retriever: name of the retriever whose passages are shown.
        inputs: fingerprints of what is read.
    """

    name: str
    config: ReaderSetConfig
    data: Dataset
    index: Index
    retriever: Any
    inputs: dict[str, Any]

    @cached_property
    def retrieved(self) -> dict[str, tuple[str, ...]]:
        """Ids of the passages found for each question, best first."""
        queries = [Query(q.text, top_k=_DEPTH) for q in self.data.questions]
        rankings = self.retriever.retrieve(queries)
        return {q.id: tuple(r.ids[:_DEPTH]) for q, r in zip(self.data.questions, rankings, strict=True)}

    @cached_property
    def by_id(self) -> dict[str, Question]:
        """The questions by id."""
        return {q.id: q for q in self.data.questions}

    def whole(self, id_: str) -> Asked:
        """Return a question."""
        return whole_of(self.by_id[id_], self.retrieved[id_])

    def hops(self, ids: Sequence[str]) -> list[Asked]:
        """Return the single hops of some questions."""
        titles = {p.id: p.title for p in self.data.passages}
        return [hop for id_ in ids for hop in parts_of(self.by_id[id_], self.retrieved[id_], titles)]

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """Return passages by id."""
        return [self.index.passages[self.index.position[id_]] for id_ in ids]

    def practice(self, distractors: int) -> PracticeMaker:
        """Return what makes questions from the corpus."""
        triples = read_triples(self.config.triples, self.index.ids) if self.config.triples else ()
        return PracticeMaker(self.index.passages, self.index.passage_vectors, triples, distractors)

    def parts(self, config: TrainReaderConfig, fold: int | None) -> Parts:
        """Return which questions train, validate and report; practice reads none."""
        ids = [q.id for q in self.data.questions]
        if config.stage == "practice":
            return Parts((), (), ())
        if self.config.use == "report":
            return Parts((), (), tuple(ids))
        folds = replace(config.folds, report=None if self.config.use == "train" else fold)
        return split_questions(ids, folds, {q.id: q.text for q in self.data.questions})


def open_set(name: str, config: TrainReaderConfig, progress: Progress) -> ReaderSet:
    """Load a set, and bring its index up to date. Raises DataError where a gold passage is not in the corpus."""
    own = config.sets[name]
    d = own.data
    data = load_dataset(d.path, d.split, d.questions, d.limit)
    ids = {p.id for p in data.passages}
    for question in data.questions:
        if lost := [i for i in question.gold if i not in ids]:
            raise DataError(d.path, f"question {question.id}: gold {lost[0]!r} is no passage")
    run = load_config(EvaluateConfig, {"method": "single", "retriever": config.shown.retriever, "roles": "offline"})
    index = open_index(replace(run, data=d, index=own.index), data.name, data.passages, progress)
    choice = run.retriever
    retriever = resolve("retriever", choice.name, RETRIEVERS)(index, choice.settings)
    inputs: dict[str, Any] = {"data": data.fingerprints, "embedder": index.embedder.identity}
    inputs |= {"triples": file_digest(Path(own.triples))} if own.triples else {}
    return ReaderSet(name, own, data, index, retriever, inputs)


def read_triples(path: str, ids: Sequence[str]) -> list[list[Triple]]:
    """Return the triples of each passage from a file of rows `id`, `triples`. Raises DataError for a broken one."""
    found: dict[str, list[Triple]] = {}
    for number, row in read_jsonl(Path(path)):
        try:
            rows = [tuple(t) for t in row["triples"] if len(t) == 3 and all(isinstance(x, str) for x in t)]
        except (KeyError, TypeError) as error:
            raise DataError(path, f"is no row of id and triples: {error}", number) from error
        found[str(row.get("id"))] = rows  # type: ignore[assignment]
    return [found.get(id_, []) for id_ in ids]
