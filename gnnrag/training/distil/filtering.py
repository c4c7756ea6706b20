"""What is done to rows, whoever made them: duplicates, balance, and that no question is on two sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from gnnrag.errors import ConfigError, GnnragError
from gnnrag.session import normalised
from gnnrag.training.config import FoldConfig, draw, split_questions
from gnnrag.training.rows import ThoughtsRow, VerifierRow


@dataclass
class KeepConfig:
    """Which decisions become rows; each switch is counted in the data card."""

    helped: bool = True  # only those that helped: gold selected, or one of the queries gained (`gnnrag.training.rows`)
    precision: float = 0.5  # a verifier's choice helped if at least this share of what it selected is gold
    clean: bool = True  # without those whose reply failed, was malformed, or states the answer instead of asking
    stops: bool = False  # thoughts that say that nothing is missing
    unique: bool = True  # a decision that says the same of the same question and evidence only once
    idle_share: float | None = 0.2  # most rows of a file that select nothing, or whose queries gain nothing; null: any
    type_ratio: float | None = None  # a question type has at most so many times the mean number of rows of a type
    round_ratio: float | None = None  # the same for rounds


@dataclass
class TracesConfig:
    """Everything that turns a recorded run into rows. All but `candidates` can be changed without recording again."""

    out: str = ""  # folder that is written
    candidates: str | None = None  # who makes further queries to label with their gains (gnnrag/registry.py)
    without: str | None = None  # a run without the teacher's decisions: answers that became right count as help
    mine: list[str] = field(default_factory=lambda: ["bm25", "dense"])  # retrievers whose near misses become negatives
    mine_top: int = 5  # hits of each that are looked at
    negatives: int | None = (
        None  # most passages of a verifier row not selected, hardest first; null: all, as pair features need
    )
    chat_passages: int = 20  # most passages in the chat of a verifier row
    licence: str | None = None  # of the source; null: what gnnrag knows of the set
    keep: KeepConfig = field(default_factory=KeepConfig)
    folds: FoldConfig = field(default_factory=FoldConfig)


def check_traces(config: TracesConfig) -> None:
    """Raise ConfigError where a setting is none of those allowed."""
    if not config.out:
        raise ConfigError("out=DIR: give the folder that the rows are written to")
    if not 0 <= config.keep.precision <= 1:
        raise ConfigError(f"keep.precision={config.keep.precision}: must lie between 0 and 1")
    share = config.keep.idle_share
    if share is not None and not 0 <= share < 1:
        raise ConfigError(f"keep.idle_share={share}: must be at least 0 and below 1, or null")
    for name in ("type_ratio", "round_ratio"):
        if (ratio := getattr(config.keep, name)) is not None and ratio <= 0:
            raise ConfigError(f"keep.{name}={ratio}: must be positive, or null")
    for name, least in (("mine_top", 0), ("negatives", 0), ("chat_passages", 1)):
        if (value := getattr(config, name)) is not None and value < least:
            raise ConfigError(f"{name}={value}: must be at least {least}")


RowT = TypeVar("RowT", VerifierRow, ThoughtsRow)
Row = VerifierRow | ThoughtsRow


def parts_of(questions: Iterable[tuple[str, str]], folds: FoldConfig) -> dict[str, str]:
    """Return the part of each question, given as (id, text); one asked twice under two ids is on one side."""
    texts = dict(questions)
    split = split_questions(texts, folds, texts).plain()
    return {id_: name for name, ids in split.items() for id_ in ids}


def check_sides(rows: Iterable[Row]) -> None:
    """Raise GnnragError where rows of one question, by id within a set or by text, are in different parts."""
    seen: dict[tuple[str, ...], tuple[str, str]] = {}
    for row in rows:
        for key in (("id", row.set, row.question_id), ("text", normalised(row.question))):
            part, other = seen.setdefault(key, (row.part, row.id))
            if part != row.part:
                raise GnnragError(
                    f"question {row.question_id!r} of {row.set or 'no set'} is on two sides: row {other!r} is in part "
                    f"{part!r}, row {row.id!r} in {row.part!r}; collect both with the same folds.*, or mend `part`"
                )


def unique(rows: Iterable[RowT]) -> list[RowT]:
    """Return the first of all rows that say the same of the same question and evidence."""
    first: dict[Hashable, RowT] = {}
    for row in rows:
        first.setdefault(_content(row), row)
    return list(first.values())


def _content(row: Row) -> Hashable:
    """Return what makes two rows the same: the question with the folded text of the decision.

    A verifier's decision is told by its chain, what it was shown and what it selected. Candidates count with what they
    gain: another retriever gains otherwise.
    """
    where = (row.set, row.question_id)
    if isinstance(row, VerifierRow):
        return (*where, normalised(row.chain), frozenset(p.id for p in row.passages), frozenset(row.selected))
    labels = frozenset((normalised(c.text), c.gain) for c in row.candidates)
    return (*where, normalised(row.fast or ""), normalised(row.slow or ""), row.sufficient, labels)


def is_idle(row: Row) -> bool:
    """Tell whether a row holds nothing positive: no passage selected, no query that gains anything."""
    if isinstance(row, VerifierRow):
        return not row.selected
    return not (row.fast or row.slow) and all(c.gain <= 0 for c in row.candidates)


def balanced(rows: Sequence[RowT], keep: KeepConfig) -> tuple[list[RowT], dict[str, int]]:
    """Leave out what there is too much of; which rows go is drawn by a hash of their ids.

    Returns:
        The rows in their order, and how many each switch dropped: `idle`, `type`, `round`.
    """
    dropped: dict[str, int] = {}
    kept = list(rows)
    if keep.idle_share is not None:
        busy = sum(not is_idle(row) for row in kept)
        most = int(keep.idle_share / (1 - keep.idle_share) * busy + 1e-9)
        kept, dropped["idle"] = _capped(kept, lambda row: "idle" if is_idle(row) else None, most)
    for name, ratio in (("type", keep.type_ratio), ("round", keep.round_ratio)):
        if ratio is not None and kept:
            groups = Counter(_said(name, row) for row in kept)
            most = max(1, int(ratio * len(kept) / len(groups)))
            kept, dropped[name] = _capped(kept, partial(_said, name), most)
    return kept, dropped


def _said(name: str, row: Row) -> str:
    return str(row.source.get(name, ""))


def _capped(rows: list[RowT], group: Callable[[Any], str | None], most: int) -> tuple[list[RowT], int]:
    """Keep at most `most` rows of each group, all rows of no group; returns them and how many went."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if (name := group(row)) is not None:
            groups.setdefault(name, []).append(row.id)
    gone = {id_ for ids in groups.values() for id_ in sorted(ids, key=lambda i: (draw(i, "balance"), i))[most:]}
    return [row for row in rows if row.id not in gone], len(gone)
