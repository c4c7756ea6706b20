"""Lists of integers in two arrays; dataclasses of arrays, lists and strings as files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

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

    def turned(self, count: int) -> Lists:
        """Return which lists hold each of `count` values, ascending; a list that holds a value twice counts once."""
        pairs = np.unique(np.stack([self.values, self.owners], axis=1).astype(np.int64), axis=0)
        return Lists.grouped(pairs[:, 0], pairs[:, 1], count)


def distinct(values: np.ndarray) -> np.ndarray:
    """Return what `np.unique` does, by sorting: its hashing takes ten times as long."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def put_json(path: Path, data: Any) -> None:
    """Write JSON on one line."""
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8", errors="surrogatepass")


def put_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write a JSON value a line."""
    with path.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def get_json(path: Path) -> Any:
    """Read JSON."""
    return json.loads(path.read_text(encoding="utf-8", errors="surrogatepass"))


def get_lines(path: Path) -> list[Any]:
    """Read a JSON value from each line."""
    with path.open(encoding="utf-8", errors="surrogatepass", newline="\n") as lines:
        return [json.loads(line) for line in lines]


def save(folder: Path, name: str, value: Any) -> None:
    """Write a dataclass: arrays and `Lists` into NAME.npz, what is plain data into NAME.json."""
    arrays: dict[str, np.ndarray] = {}
    plain: dict[str, Any] = {}
    for field in fields(value):
        part = getattr(value, field.name)
        if isinstance(part, Lists):
            arrays |= {f"{field.name}.indptr": part.indptr, f"{field.name}.values": part.values}
        elif isinstance(part, np.ndarray):
            arrays[field.name] = part
        elif not is_dataclass(part) and not field.name.startswith("_"):
            plain[field.name] = part
    np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]
    put_json(folder / f"{name}.json", plain)


def load(folder: Path, name: str, kind: type[T], **given: Any) -> T:
    """Return the dataclass that `save` wrote, its tuples as lists; `given` are the fields that it did not write."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
        arrays: dict[str, Any] = dict(stored)
    values = {key: array for key, array in arrays.items() if "." not in key}
    for key in (key.removesuffix(".indptr") for key in arrays if key.endswith(".indptr")):
        values[key] = Lists(arrays[f"{key}.indptr"], arrays[f"{key}.values"])
    return kind(**{**get_json(folder / f"{name}.json"), **values, **given})
