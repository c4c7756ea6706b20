"""What trainings of verifiers read: files of recorded decisions, by set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError
from gnnrag.io import digest, file_digest
from gnnrag.roles.tuned.pair_features import Shown
from gnnrag.training.config import SetShare
from gnnrag.training.rows import ShownPassage, VerifierRow, read_rows
from gnnrag.types import Passage

ExampleT = TypeVar("ExampleT")


@dataclass
class RowsConfig:
    """Recorded decisions on the questions of a set."""

    rows: list[str] = field(default_factory=list)  # files verifier.jsonl, such as of several retrievers
    data: str | None = None  # the set's folder: questions without rows are then dealt out to the folds, too
    split: str = "dev"  # of that folder
    share: SetShare = 1.0  # factor of the probability that a batch takes its rows, beside the root of their number
    licence: str = ""  # for the model card


@dataclass(frozen=True)
class RowSet(Generic[ExampleT]):
    """The examples of a set, and all its questions: texts by id."""

    config: RowsConfig
    examples: tuple[ExampleT, ...]
    questions: Mapping[str, str]
    fingerprint: str


def read_set(name: str, config: RowsConfig) -> tuple[list[VerifierRow], dict[str, str], str]:
    """Return rows, questions and fingerprint of a set. Raises ConfigError without files, DataError for a bad one."""
    if not config.rows:
        raise ConfigError(f"sets.{name}.rows is empty: give files of decisions; gnnrag collect-traces writes them")
    rows = [row for path in config.rows for row in read_rows(path, VerifierRow)]
    asked = [(row.question_id, row.question) for row in rows]
    if config.data:
        asked = [(q.id, q.text) for q in load_dataset(config.data, config.split).questions] + asked
    content = [[file_digest(Path(path)) for path in config.rows], [id_ for id_, _ in asked]]
    return rows, dict(asked), digest(content)


def seen_of(row: VerifierRow) -> list[ShownPassage]:
    """Return the passages that the verifier saw, in pool order: those with a score, all where none has one."""
    return [p for p in row.passages if p.score is not None] or list(row.passages)


def shown_of(row: VerifierRow, passages: Sequence[Passage]) -> Shown:
    """Return what the verifier was shown, with `passages` in place of those that it saw."""
    seen = seen_of(row)
    scores = [p.score for p in seen if p.score is not None]
    cosines = [p.cosine for p in seen if p.cosine is not None]
    return Shown(
        row.question,
        row.chain,
        passages,
        scores,
        cosines if len(cosines) == len(seen) else (),
        frozenset(row.support),
    )
