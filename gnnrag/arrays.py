"""Lists of integers in two arrays, and rows of Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from scipy import sparse

T = TypeVar("T")


@dataclass(frozen=True)
class Lists:
    """Lists of integers, one after the other: list i is `values[indptr[i] : indptr[i + 1]]`."""

    indptr: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        return self.values[self.indptr[i] : self.indptr[i + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    @property
    def sizes(self) -> np.ndarray:
        """Length of each list. Shape (len(self),)."""
        return np.diff(self.indptr)

    @property
    def owners(self) -> np.ndarray:
        """The list that each value belongs to. Shape (len(values),), int64."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def sizes_of(self, items: np.ndarray) -> np.ndarray:
        """Return the lengths of the lists `items`. Shape (len(items),)."""
        return self.indptr[items + 1] - self.indptr[items]

    def places(self, items: np.ndarray) -> np.ndarray:
        """Return the positions in `values` of the lists `items`, one list after the other. Shape (sum of lengths,)."""
        starts, counts = self.indptr[items], self.sizes_of(items)
        return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))

    def at(self, items: Any) -> np.ndarray:
        """Return the values of the lists `items`, one list after the other. Shape (sum of lengths,)."""
        return self.values[self.places(np.asarray(items, dtype=np.int64))]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Lists:
        rows = list(rows)
        values = np.fromiter((v for row in rows for v in row), dtype=np.int32)
        return cls(np.cumsum([0, *map(len, rows)], dtype=np.int64), values)

    @classmethod
    def grouped(cls, owners: np.ndarray, values: np.ndarray, count: int) -> Lists:
        """Return the values of each of `count` owners, ascending; both of one shape (n,)."""
        sizes = np.bincount(owners, minlength=count) if len(owners) else np.zeros(count, dtype=np.int64)
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(indptr, values[np.lexsort((values, owners))].astype(np.int32))

    @classmethod
    def of_matrix(cls, matrix: Any) -> Lists:
        """Return the columns that each row of a sparse matrix holds, ascending."""
        matrix = sparse.csr_array(matrix)
        matrix.sum_duplicates()  # sorts them, too
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))

    def matrix(self, columns: int) -> sparse.csr_array:
        """Return a float32 matrix whose rows hold how often each list has each value. Shape (len(self), columns)."""
        ones = np.ones(len(self.values), np.float32)
        matrix = sparse.csr_array((ones, self.values.copy(), self.indptr.copy()), shape=(len(self), columns))
        matrix.sum_duplicates()
        return matrix

    def transposed(self, count: int) -> Lists:
        """Return for each of `count` values the lists that hold it, ascending, each once."""
        return Lists.of_matrix(self.matrix(count).T)


def distinct(values: np.ndarray) -> np.ndarray:
    """Return what `np.unique` does, by sorting: its hashing takes ten times as long."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


class Rows(Sequence[T]):
    """The rows of Arrow columns of equal length. `make` turns a row into a Python value when it is read."""

    def __init__(self, columns: Sequence[pa.Array | pa.ChunkedArray], make: Callable[..., T] = lambda value: value):
        self.columns, self._make = columns, make

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            start, stop, step = i.indices(len(self))
            return list(self._between(start, stop))[::step] if step > 0 else list(self)[i]
        return self._make(*[column[int(i)].as_py() for column in self.columns])

    def __iter__(self) -> Iterator[T]:
        return self._between(0, len(self))

    def _between(self, start: int, stop: int) -> Iterator[T]:
        for first in range(start, stop, 10_000):
            block = (column.slice(first, min(10_000, stop - first)).to_pylist() for column in self.columns)
            yield from map(self._make, *block)


def texts(strings: Iterable[str]) -> Rows[str]:
    return Rows([pa.array(strings, pa.large_string())])
