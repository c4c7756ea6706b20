"""What sets that are opened for a training have in common: questions, a corpus, and an index of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gnnrag.config import DataConfig, IndexConfig, to_plain
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import ConfigError
from gnnrag.index.index import Index, open_or_build
from gnnrag.parts import build, part_from_settings
from gnnrag.retrievers.base import Retriever
from gnnrag.training.config import SetConfig
from gnnrag.types import OnProgress, Question


@dataclass(frozen=True)
class OpenSet:
    name: str
    config: SetConfig
    data: Dataset
    index: Index

    @cached_property
    def questions(self) -> dict[str, Question]:
        """The questions by id, without those that the settings leave out."""
        questions = {question.id: question for question in self.data.questions}
        for id_ in self.config.leave_out:
            if questions.pop(id_, None) is None:
                raise ConfigError(f"sets.{self.name}.leave_out: the set has no question {id_!r}")
        return questions

    @property
    def texts(self) -> dict[str, str]:
        return {id_: question.text for id_, question in self.questions.items()}

    def fingerprints(self, stages: Iterable[str]) -> dict[str, Any]:
        """Return fingerprints of the data, and of these stages of the index."""
        return {"data": self.data.fingerprints, "index": {name: self.index.artefact_key(name) for name in stages}}


def open_data(
    data: DataConfig, index: IndexConfig, stages: Iterable[str], progress: OnProgress
) -> tuple[Dataset, Index]:
    """Load a corpus with its questions, and bring these stages of its index up to date."""
    loaded = load_dataset(**vars(data))
    return loaded, open_or_build(index, data, loaded.name, loaded.passages, stages, progress)


def open_retriever(
    where: str, name: str, data: DataConfig, index: IndexConfig, progress: OnProgress
) -> tuple[Dataset, Retriever, dict[str, Any]]:
    """Open a retriever that asks no roles, with its default settings, on a corpus.

    Returns the corpus, the retriever, and fingerprints of all that its rankings depend on. `where` is the name of the
    setting, for error messages.
    """
    settings = part_from_settings("retriever", name, {}, where)
    stages = sorted({*settings.reads})
    loaded, opened = open_data(data, index, stages, progress)
    retriever = build("retriever", settings, index=opened, roles=None)
    used = {stage: opened.artefact_key(stage) for stage in stages}
    return loaded, retriever, {"index": used, "retriever": [name, to_plain(settings)]}
