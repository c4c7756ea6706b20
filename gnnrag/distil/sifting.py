"""What is done to rows, whoever made them: duplicates, balance, and that no question is on two sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from gnnrag.distil.config import KeepConfig
from gnnrag.errors import GnnragError
from gnnrag.fit.config import FoldConfig
from gnnrag.fit.folds import draw, split_questions
from gnnrag.session import folded
from gnnrag.tuned.rows import ThoughtsRow, VerifierRow

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
        for key in (("id", row.set, row.question_id), ("text", folded(row.question))):
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
        return (*where, folded(row.chain), frozenset(p.id for p in row.passages), frozenset(row.selected))
    labels = frozenset((folded(c.text), c.gain) for c in row.candidates)
    return (*where, folded(row.fast or ""), folded(row.slow or ""), row.sufficient, labels)


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
