"""What trainings on rows share: each set is files of rows, and its questions are divided like those of any set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from gnnrag.errors import ConfigError, DataError
from gnnrag.io import digest, file_digest
from gnnrag.roles.tuned.chain_features import VerifierInput
from gnnrag.training.base import RunContext, Training
from gnnrag.training.config import SetShare, Use
from gnnrag.training.rows import RowT, VerifierRow, read_rows
from gnnrag.types import OnProgress


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
    """The examples of a set, and all its questions: texts by id."""

    config: Any  # a `RowsConfig`
    examples: tuple[Any, ...]
    texts: Mapping[str, str]
    inputs: str  # fingerprint of the files


def read_set(name: str, config: RowsConfig, kind: type[RowT]) -> tuple[list[RowT], dict[str, str], str]:
    """Return rows, questions and fingerprint of a set. Raises ConfigError without files, DataError for a bad one."""
    if not config.rows:
        raise ConfigError(
            f"sets.{name}.rows is empty: give files of rows; gnnrag collect-traces or training/make_rows.py writes them"
        )
    rows = [row for path in config.rows for row in read_rows(path, kind)]
    if len({row.id for row in rows}) < len(rows):
        raise DataError(f"sets.{name}.rows", "two of the files have a row of the same id")
    texts = {row.question_id: getattr(row, "article", "") or row.question for row in rows}
    return rows, texts, digest([file_digest(Path(path)) for path in config.rows])


def verifier_input(row: VerifierRow, with_titles: bool) -> VerifierInput:
    """Return the input of the verifier that took a row's decision, or the same without titles."""
    passages = [p.passage if with_titles else replace(p.passage, title="") for p in row.passages]
    scores = [p.score for p in row.passages if p.score is not None]
    cosines = [p.cosine for p in row.passages if p.cosine is not None]
    known = cosines if len(cosines) == len(passages) else ()
    return VerifierInput(row.question, row.chain, passages, scores, known, frozenset(row.support))


class RowsTraining(Training):
    """Training on rows; its data are the sets by name."""

    row: ClassVar[type[Any]] = VerifierRow  # what its rows are

    sets: Mapping[str, RowSet]

    @classmethod
    def example(cls, name: str, row: Any, config: Any) -> Any:
        """Return what is learned from a row of a set."""
        return row

    @classmethod
    def open(cls, config: Any, context: RunContext, on_index: OnProgress) -> Any:
        sets = {}
        for name, given in config.sets.items():
            rows, questions, fingerprint = read_set(name, given, cls.row)
            sets[name] = RowSet(given, tuple(cls.example(name, row, given) for row in rows), questions, fingerprint)
        return sets

    def examples(self, part: str) -> dict[str, list[Any]]:
        ids = {name: set(getattr(parts, part)) for name, parts in self.parts.items()}
        return {name: [e for e in one.examples if e.question_id in ids[name]] for name, one in self.sets.items()}

    def named_rows(self, part: str) -> list[tuple[str, Any]]:
        return [(name, row) for name, rows in self.examples(part).items() for row in rows]

    def facts_of(self, name: str) -> dict[str, Any]:
        """Return how many rows of a set there are, and its licence."""
        one = self.sets[name]
        return {"rows": len(one.examples), "licence": one.config.licence}
