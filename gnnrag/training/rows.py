"""Training rows of the tuned roles, one decision a line (data/README.md), and what a query gains over a pool."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from gnnrag.datasets.jsonl import parse_row, read_jsonl_by_id
from gnnrag.errors import DataError
from gnnrag.types import Passage


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ShownPassage(_Model):
    id: str
    title: str
    text: str
    score: float | None = None  # of the pool, normalised
    cosine: float | None = None  # of its vector with the question's; None where the index has no vectors

    @property
    def passage(self) -> Passage:
        return Passage(self.id, self.title, self.text)


class _Row(_Model):
    id: str = Field(min_length=1)  # of the row, unique in its file
    set: str  # name of the data set
    question_id: str = Field(min_length=1)  # all rows of one question are in one part of a training
    question: str
    teacher: str = ""  # who decided: `oracle`, `prompted:MODEL`, ...
    source: dict[str, Any] = {}  # method, retriever, round and whatever else tells where the row comes from
    passages: tuple[ShownPassage, ...]


class VerifierRow(_Row):
    """Which of the passages shown state or complete a link of the chain."""

    chain: str = ""  # the reasoning chain as text
    support: tuple[str, ...] = ()  # ids of the passages that the chain itself says it rests on (rules only)
    selected: tuple[str, ...] = ()  # ids that the teacher selected
    gold: tuple[str, ...] = ()  # ids of gold passages among those shown, where they are known


class ThoughtsRow(_Row):
    """The next two queries."""

    round: int = 1  # 1-based
    earlier: tuple[str, ...] = ()  # queries already sent, oldest first
    fast: str | None = None  # the teacher's queries, where one of them helped
    slow: str | None = None
    sufficient: bool = False  # the teacher said instead that nothing is missing
    pool: tuple[str, ...] = ()  # ids of the pool's first passages (50) before the decision, best first
    gold: tuple[str, ...] = ()  # ids of the question's gold passages, where they are known


class ReaderRow(_Row):
    """The answer to a question from the passages shown."""

    answers: tuple[str, ...] = ()  # accepted ones; empty: the passages do not hold it, and abstaining is right
    cited: tuple[str, ...] = ()  # ids of the passages that the answer rests on
    article: str = ""  # what the question is about: all rows on one article are in one part of a training


RowT = TypeVar("RowT", bound=_Row)


def read_rows(path: str | Path, kind: type[RowT]) -> list[RowT]:
    """Read a file of rows. Raises DataError: no file, or a bad row, naming its line and field."""
    path, rows = Path(path), dict[str, RowT]()
    if not path.is_file():
        raise DataError(path, "is no file; gnnrag collect-traces writes it")
    for number, _, data in read_jsonl_by_id(path):
        row = parse_row(kind, path, data, f"a row of {kind.__name__}", number)
        rows[row.id] = row
    if not rows:
        raise DataError(path, "holds no rows")
    return list(rows.values())


def plain_rows(rows: Iterable[_Row]) -> Iterator[dict[str, Any]]:
    """Return rows as JSON data, empty fields left out."""
    return (row.model_dump(mode="json", exclude_defaults=True) for row in rows)


# ------------------------------------------------------------------------------------------------------------- gains
DEPTH = 50  # passages of a pool and of a ranking that count


def gain(rankings: Iterable[Sequence[str]], pool: Sequence[str], gold: Collection[str]) -> float:
    """Return what queries add to a pool: for each gold passage, by how much its best 1/rank rises, at least 0; summed.

    Only the first `DEPTH` passages of the pool and of each ranking count.
    """
    before, *after = ({id_: 1.0 / rank for rank, id_ in enumerate(ids[:DEPTH], 1)} for ids in (pool, *rankings))
    rises = ([ranks.get(id_, 0.0) - before.get(id_, 0.0) for ranks in after] for id_ in gold)
    return sum(max(0.0, *rise) for rise in rises) if after else 0.0
