"""The sets of a training: questions with a corpus and an index of it, or files of rows with their questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import ConfigError, DataError
from gnnrag.index.index import Index, open_or_build
from gnnrag.io import digest, file_digest
from gnnrag.parts import build, part_from_settings
from gnnrag.retrievers.base import Retriever
from gnnrag.training.base import Training
from gnnrag.training.config import FoldConfig, Parts, SetConfig, SetShare, Use, divide
from gnnrag.training.rows import RowT, VerifierRow, read_rows
from gnnrag.types import OnProgress, Question


@dataclass(frozen=True)
class OpenSet:
    name: str
    config: SetConfig
    data: Dataset
    index: Index
    stages: Sequence[str]  # of the index, that are read

    @classmethod
    def open(cls, name: str, config: Any, stages: Sequence[str], progress: OnProgress, *more: Any) -> Self:
        """Load a corpus with its questions (`config.data`), and bring these stages of its index up to date."""
        data = load_dataset(**vars(config.data))
        index = open_or_build(config.index, config.data, data.name, data.passages, stages, progress)
        return cls(name, config, data, index, stages, *more)

    @cached_property
    def questions(self) -> dict[str, Question]:
        """The questions by id, without those that the settings leave out."""
        questions = {question.id: question for question in self.data.questions}
        for id_ in self.config.leave_out:
            if questions.pop(id_, None) is None:
                raise ConfigError(f"sets.{self.name}.leave_out: the set has no question {id_!r}")
        return questions

    @property
    def size(self) -> str:
        return f"{len(self.data.passages)} passages"

    @property
    def texts(self) -> dict[str, str]:
        return {id_: question.text for id_, question in self.questions.items()}

    def divide(self, folds: FoldConfig, fold: int | None) -> Parts:
        return divide(self.texts, folds, fold, self.config.use)

    @property
    def inputs(self) -> dict[str, Any]:
        """Fingerprints of the data, and of these stages."""
        used = {name: self.index.artefact_key(name) for name in self.stages}
        return {"data": self.data.fingerprints, "index": used}


def open_retriever(where: str, name: str, config: Any, progress: OnProgress) -> tuple[OpenSet, Retriever]:
    """Open a corpus, and a retriever on it that asks no roles, with its default settings; `where`: what names it."""
    settings = part_from_settings("retriever", name, {}, where)
    opened = OpenSet.open(where, config, sorted(settings.reads), progress)
    return opened, build("retriever", settings, index=opened.index, roles=None)


# -------------------------------------------------------------------------------------------------------------- rows
@dataclass
class RowsConfig:
    rows: list[str] = field(default_factory=list)  # files, such as of several retrievers or teachers
    use: Use = "folds"
    licence: str = ""  # for the model card


@dataclass
class VerifierRowsConfig(RowsConfig):
    share: SetShare = 1.0  # factor of the probability that a batch takes its rows, beside the root of their number


@dataclass(frozen=True)
class RowSet:
    config: RowsConfig
    examples: tuple[Any, ...]  # its rows, or what is made of them
    texts: Mapping[str, str]  # of its questions, by id
    inputs: str  # fingerprint of the files

    @property
    def size(self) -> str:
        return f"{len(self.examples)} rows"

    def divide(self, folds: FoldConfig, fold: int | None) -> Parts:
        return divide(self.texts, folds, fold, self.config.use)


def read_set(name: str, config: RowsConfig, kind: type[RowT]) -> RowSet:
    """Read the rows of a set. Raises ConfigError without files, DataError for a bad one."""
    if not config.rows:
        raise ConfigError(
            f"sets.{name}.rows is empty: give files of rows; gnnrag collect-traces or training/make_rows.py writes them"
        )
    rows = tuple(row for path in config.rows for row in read_rows(path, kind))
    if len({row.id for row in rows}) < len(rows):
        raise DataError(f"sets.{name}.rows", "two of the files have a row of the same id")
    texts = {row.question_id: getattr(row, "article", "") or row.question for row in rows}
    return RowSet(config, rows, texts, digest([file_digest(Path(path)) for path in config.rows]))


class RowsTraining(Training):
    """Training on rows; its data are the sets by name."""

    row: ClassVar[type[Any]] = VerifierRow  # what its rows are
    sets: Mapping[str, RowSet]

    @classmethod
    def open(cls, config: Any, on_index: OnProgress) -> Any:
        return {name: read_set(name, given, cls.row) for name, given in config.sets.items()}

    def examples(self, part: str) -> dict[str, list[Any]]:
        ids = {name: set(getattr(parts, part)) for name, parts in self.parts.items()}
        return {name: [e for e in one.examples if e.question_id in ids[name]] for name, one in self.sets.items()}

    def named_rows(self, part: str) -> list[tuple[str, Any]]:
        return [(name, row) for name, rows in self.examples(part).items() for row in rows]
