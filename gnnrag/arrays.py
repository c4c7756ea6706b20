"""Lists of integers in two arrays, rows of Arrow columns; dataclasses of these as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
import pyarrow as pa
from pyarrow import feather
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
        """Which list each value stands in. Shape (len(values),), int64."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def sizes_of(self, items: np.ndarray) -> np.ndarray:
        """Return the lengths of some lists. Shape (len(items),)."""
        return self.indptr[items + 1] - self.indptr[items]

    def places(self, items: np.ndarray) -> np.ndarray:
        """Return where the values of some lists stand in `values`, one list after the other. Shape (their lengths,)."""
        starts, counts = self.indptr[items], self.sizes_of(items)
        return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))

    def at(self, items: Any) -> np.ndarray:
        """Return the values of some lists, one list after the other. Shape (sum of their lengths,)."""
        return self.values[self.places(np.asarray(items, dtype=np.int64))]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Lists:
        """Store lists of integers."""
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

    def turned(self, count: int) -> Lists:
        """Return which lists hold each of `count` values, ascending; a list that holds a value twice counts once."""
        pairs = np.unique(np.stack([self.values, self.owners], axis=1).astype(np.int64), axis=0)
        return Lists.grouped(pairs[:, 0], pairs[:, 1], count)


def distinct(values: np.ndarray) -> np.ndarray:
    """Return what `np.unique` does, by sorting: its hashing takes ten times as long."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


class Rows(Sequence[T]):
    """The rows of Arrow columns of one length, as Python values that `make` makes of them when they are read."""

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
    """Store strings in an Arrow array."""
    return Rows([pa.array(strings, pa.large_string())])


# -------------------------------------------------------------------------------------------------------------- files
def put_json(path: Path, data: Any) -> None:
    """Write JSON on one line."""
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8", errors="surrogatepass")


def get_json(path: Path) -> Any:
    """Read JSON."""
    return json.loads(path.read_text(encoding="utf-8", errors="surrogatepass"))


def save(folder: Path, value: Any, name: str = "value") -> None:
    """Write an array, JSON data, or a dataclass of such, `Lists`, `Rows` of strings and dataclasses.

    Matrices of floating-point numbers and strings get files of their own, which `load` maps into memory.
    """
    if isinstance(value, np.ndarray):
        np.save(folder / f"{name}.npy", value)
        return
    if not is_dataclass(value):
        put_json(folder / f"{name}.json", value)
        return
    arrays: dict[str, np.ndarray] = {}
    plain: dict[str, Any] = {}
    for field in fields(value):
        part, path = getattr(value, field.name), f"{name}.{field.name}"
        if isinstance(part, Lists):
            arrays |= {f"{field.name}.indptr": part.indptr, f"{field.name}.values": part.values}
        elif isinstance(part, Rows):
            table = pa.table({"text": part.columns[0]})
            feather.write_feather(table, folder / f"{path}.arrow", compression="uncompressed")
        elif is_dataclass(part) or (isinstance(part, np.ndarray) and part.ndim == 2 and part.dtype.kind == "f"):
            save(folder, part, path)
        elif isinstance(part, np.ndarray):
            arrays[field.name] = part
        elif not field.name.startswith("_"):
            plain[field.name] = part
    np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]
    put_json(folder / f"{name}.json", plain)


def load(folder: Path, kind: Any, name: str = "value") -> Any:
    """Return what `save` wrote: a `kind`, its tuples as lists, arrays of float16 as float32."""
    if kind is np.ndarray:
        return _mapped(folder / f"{name}.npy")
    values = get_json(folder / f"{name}.json")
    if not is_dataclass(kind):
        return values
    with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
        for key, array in stored.items():
            part, is_lists, _ = key.partition(".")
            values[part] = Lists(stored[f"{part}.indptr"], stored[f"{part}.values"]) if is_lists else array
    hints = get_type_hints(kind)
    for field in fields(kind):
        path = f"{name}.{field.name}"
        if (folder / f"{path}.npy").is_file():
            values[field.name] = _mapped(folder / f"{path}.npy")
        elif (folder / f"{path}.arrow").is_file():
            values[field.name] = Rows([feather.read_table(folder / f"{path}.arrow", memory_map=True).column(0)])
        elif (folder / f"{path}.json").is_file():
            hint = hints[field.name]
            inner: Any = next(one for one in (hint, *get_args(hint)) if is_dataclass(one))
            values[field.name] = load(folder, inner, path)
    return kind(**values)  # type: ignore[operator]


def _mapped(path: Path) -> np.ndarray:
    rows = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    return rows.astype(np.float32) if rows.dtype == np.float16 else rows
