"""Tables of a corpus that has changed, put together from those of the one before: arrays are copied, texts not read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from gnnrag.common.tables import Keys, Lists, Texts, hashes_of

_AT_ONCE, _MARK, _PRIME = 1 << 20, 8, np.uint64(0x9E3779B97F4A7C15)  # strings; bytes of each end; a factor


@dataclass(frozen=True)
class Kept:
    """What rows of an earlier table are now: `old` (n,) says which each one was, -1: none; `count` there were."""

    old: np.ndarray
    count: int

    @cached_property
    def missing(self) -> list[int]:
        """Rows that were none before."""
        return np.flatnonzero(self.old < 0).tolist()

    @cached_property
    def rows(self) -> np.ndarray:
        """Which each row is of the earlier ones followed by the missing; see `spliced`."""
        rows = self.old.copy()
        rows[self.missing] = self.count + np.arange(len(self.missing))
        return rows

    @cached_property
    def now(self) -> np.ndarray:
        """What earlier rows are now; -1: gone. Shape (count,), int64."""
        now = np.full(self.count, -1, dtype=np.int64)
        there = np.flatnonzero(self.old >= 0)
        now[self.old[there]] = there
        return now


def spliced(before: Lists, after: Lists, rows: np.ndarray) -> Lists:
    """Return lists of two tables: row r is `before[r]`, or from `len(before)` on `after[r - len(before)]`.

    What stands together is copied together, so that many rows in few runs cost little.
    """
    starts = np.concatenate([before.indptr[:-1], after.indptr[:-1] + len(before.values)])[rows]
    sizes = np.concatenate([before.sizes, after.sizes])[rows]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    values = np.empty(int(indptr[-1]), dtype=before.values.dtype)
    is_after = starts >= len(before.values)
    breaks = np.flatnonzero((starts[1:] != starts[:-1] + sizes[:-1]) | (is_after[1:] != is_after[:-1])) + 1
    edges = np.concatenate([[0], breaks, [len(rows)]]) if len(rows) else np.zeros(1, dtype=np.int64)
    sources, ends = starts[edges[:-1]].tolist(), indptr[edges].tolist()
    for at, (start, end) in zip(sources, pairwise(ends), strict=True):
        source, first = (before, at) if at < len(before.values) else (after, at - len(before.values))
        values[start:end] = source.values[first : first + end - start]
    return Lists(indptr, values)


def spliced_rows(before: np.ndarray, after: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return rows of two matrices (n, width) and (m, width) as `spliced` does lists; `after` may be empty."""
    width = before.shape[1]
    one, two = (Lists(np.arange(len(part) + 1) * width, part.ravel()) for part in (before, after))
    return spliced(one, two, rows).values.reshape(-1, width)


def by_first(sequence: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number what stands in a sequence of numbers below `size` by where it first does.

    Returns what stands there in that order and where, and the number of each of `size` (-1: it does not stand there).
    """
    first = np.full(size, len(sequence), dtype=np.int64)
    np.minimum.at(first, sequence, np.arange(len(sequence)))
    order = np.flatnonzero(first < len(sequence))
    order = order[np.argsort(first[order])]
    numbers = np.full(size, -1, dtype=np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    return order, first[order], numbers


def in_order(before: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """Return the rows, for `spliced`, of sorted strings and other sorted strings in one order. Shape (both,), int64."""
    ranks = np.array([bisect_left(before, other) for other in others], dtype=np.int64)
    return np.insert(np.arange(len(before)), ranks, len(before) + np.arange(len(others)))


def splice_texts(before: Sequence[str], others: Sequence[str], rows: np.ndarray) -> Texts:
    """Return some of these strings and of others; see `spliced`."""
    one, two = Texts.of(before), Texts.of(others)
    found = spliced(Lists(one.starts, one.data), Lists(two.starts, two.data), rows)
    return Texts(found.values, found.indptr)


def splice_keys(before: Keys, others: Sequence[str], rows: np.ndarray) -> Keys:
    """Return a table of some of these strings and of others that are none of them; see `spliced`."""
    hashes = np.concatenate([before.hashes, hashes_of(others)])[rows]
    return Keys.hashed(splice_texts(before.strings, others, rows), hashes)


def find_all(strings: Sequence[str], wanted: Sequence[str]) -> np.ndarray:
    """Return where each of some strings stands among many that differ; -1: nowhere. One pass is made over their bytes.

    Shape (len(wanted),), int64.
    """
    texts, sought, out = Texts.of(strings), Texts.of(wanted), np.full(len(wanted), -1, dtype=np.int64)
    places: dict[bytes, list[int]] = {}
    for i in range(len(sought)):
        places.setdefault(sought.raw(i), []).append(i)
    marks = np.sort(_marks(sought, 0, len(sought)))
    for first in range(0, len(texts) if len(marks) else 0, _AT_ONCE):
        found = _marks(texts, first, min(first + _AT_ONCE, len(texts)))
        near = marks[np.searchsorted(marks, found).clip(max=len(marks) - 1)]
        for position in (first + np.flatnonzero(near == found)).tolist():
            out[places.get(texts.raw(position), [])] = position
    return out


def _marks(texts: Texts, first: int, last: int) -> np.ndarray:
    """Return a number of each string from its length and both ends: few others have the same. uint64."""
    starts, sizes = texts.starts[first:last], texts.starts[first + 1 : last + 1] - texts.starts[first:last]
    marks = sizes.astype(np.uint64)
    if not len(texts.data):
        return marks
    for at in range(_MARK):
        # Of a short string the same byte counts several times.
        for places in (np.minimum(at, sizes - 1), np.maximum(sizes - 1 - at, 0)):
            found = texts.data[(starts + places).clip(0, len(texts.data) - 1)]
            marks = marks * _PRIME + np.where(sizes > 0, found, 0).astype(np.uint64)
    return marks
