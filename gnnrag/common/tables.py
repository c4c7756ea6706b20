"""Strings in arrays: millions of texts and names that are read from a mapped file where they are asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from gnnrag.common.files import open_regular
from gnnrag.errors import ArtefactError

ItemT = TypeVar("ItemT")
_PIECE = 1 << 24  # bytes in which ends of lines are looked for at a time
_CHUNK = 4096  # strings decoded at a time where all are read
SMALL = 60_000  # strings: up to here they are read at once, for a tuple and a dictionary answer sooner


class Texts(Sequence[str]):
    """Strings as one run of UTF-8 bytes; string i is `data[starts[i]:starts[i + 1]]`.

    `data` (bytes,) uint8 and `starts` (n + 1,) int64 may be mapped from files. Raises ValueError where they do not
    belong together, and ArtefactError, which names `place`, when a string is read that is no UTF-8.
    """

    def __init__(self, data: np.ndarray, starts: np.ndarray, place: str = "") -> None:
        fits = data.dtype == np.uint8 and starts.dtype == np.int64 and data.ndim == starts.ndim == 1 and len(starts)
        if not fits or (starts[0], starts[-1]) != (0, len(data)) or (starts[1:] < starts[:-1]).any():
            raise ValueError("the bytes and starts of texts do not belong together")
        self.data, self.starts, self._place = data, starts, place
        # One string is read about ten times as fast through these as through arrays.
        self._bytes, self._places = memoryview(data), memoryview(starts)

    def raw(self, position: int) -> bytes:
        """Return a string's bytes; `position` is not negative."""
        return bytes(self._bytes[self._places[position] : self._places[position + 1]])

    @classmethod
    def of(cls, strings: Iterable[str]) -> Texts:
        """Put strings into arrays, unless they are."""
        if isinstance(strings, Texts):
            return strings
        data, lengths = bytearray(), [0]
        for string in strings:
            raw = string.encode("utf-8", "surrogatepass")
            data += raw
            lengths.append(len(raw))
        return cls(np.frombuffer(data, dtype=np.uint8), np.cumsum(lengths, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> list[str]: ...
    def __getitem__(self, position: int | slice) -> str | list[str]:
        if isinstance(position, slice):
            first, last, step = position.indices(len(self))
            return list(self._between(first, last)) if step == 1 else [self[i] for i in range(first, last, step)]
        n = len(self)
        at = position + n if position < 0 else position
        if not 0 <= at < n:
            raise IndexError(position)
        return self._decoded(self.raw(at))

    def __iter__(self) -> Iterator[str]:
        return self._between(0, len(self))

    def _between(self, first: int, last: int) -> Iterator[str]:
        for at in range(first, last, _CHUNK):
            starts = self.starts[at : min(at + _CHUNK, last) + 1].tolist()
            raw = self.data[starts[0] : starts[-1]].tobytes()
            for start, end in pairwise(starts):
                yield self._decoded(raw[start - starts[0] : end - starts[0]])

    def _decoded(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise ArtefactError(f"{self._place} is damaged or forged ({error}); build the index again") from error

    def save(self, folder: Path, name: str) -> None:
        """Write as NAME.bytes.npy and NAME.starts.npy."""
        put_arrays_apart(folder, **{f"{name}.bytes": self.data, f"{name}.starts": self.starts})

    @classmethod
    def load(cls, folder: Path, name: str) -> Texts:
        """Map what `save` wrote."""
        return cls(map_array(folder, f"{name}.bytes"), map_array(folder, f"{name}.starts"), str(folder / name))


def load_strings(folder: Path, name: str) -> Sequence[str]:
    """Return the strings that `Texts.save` wrote: a tuple of few, mapped ones of many."""
    return read_few(Texts.load(folder, name))


def read_few(strings: Sequence[str]) -> Sequence[str]:
    """Return few strings as a tuple, many as they are."""
    return tuple(strings) if len(strings) <= SMALL else strings


class Lazy(Sequence[ItemT]):
    """A sequence whose items are made whenever they are asked for."""

    def __init__(self, count: int, make: Callable[[int], ItemT]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, position: int) -> ItemT: ...
    @overload
    def __getitem__(self, position: slice) -> list[ItemT]: ...
    def __getitem__(self, position: int | slice) -> ItemT | list[ItemT]:
        if isinstance(position, slice):
            return [self._make(i) for i in range(*position.indices(self._count))]
        at = position + self._count if position < 0 else position
        if not 0 <= at < self._count:
            raise IndexError(position)
        return self._make(int(at))


class Keys(Mapping[str, int]):
    """Distinct strings and their positions, found by 64-bit hashes of which equal ones are told apart."""

    def __init__(self, strings: Sequence[str], hashes: np.ndarray, order: np.ndarray) -> None:
        if not len(hashes) == len(order) == len(strings) or (hashes[1:] < hashes[:-1]).any():
            raise ValueError("the parts of a table of names do not belong together")
        check_below(order, len(strings))
        self.strings, self._hashes, self._order = strings, hashes, order
        self._places: dict[str, int] | None = None
        if isinstance(strings, Texts) and len(strings) > SMALL:
            self._raw, self._sorted, self._at = strings.raw, memoryview(hashes), memoryview(order)
        else:
            self._places = {key: i for i, key in enumerate(strings)}

    @classmethod
    def of(cls, strings: Iterable[str]) -> Keys:
        """Make a table of distinct strings."""
        texts = Texts.of(strings)
        return cls.hashed(texts, hashes_of(texts))

    @classmethod
    def hashed(cls, texts: Texts, hashes: np.ndarray) -> Keys:
        """Make a table of strings whose hashes are known; see `hashes_of`."""
        order = np.argsort(hashes, kind="stable").astype(np.int32)
        return cls(texts, hashes[order], order)

    @property
    def hashes(self) -> np.ndarray:
        """The hash of each string. Shape (len(self),), uint64."""
        hashes = np.empty(len(self), dtype=np.uint64)
        hashes[self._order] = self._hashes
        return hashes

    def matched(self, others: Keys) -> np.ndarray:
        """Return where each of another table's strings stands in this one, by hashes alone; -1: it does not.

        Shape (len(others),), int64.
        """
        hashes = others.hashes
        at = np.searchsorted(self._hashes, hashes).clip(max=len(self) - 1)
        return np.where(self._hashes[at] == hashes, self._order[at], -1) if len(self) else np.full(len(hashes), -1)

    def numbered(self, wanted: Iterable[str]) -> tuple[dict[str, int], list[str]]:
        """Return the position of each of some strings, and those that are not there; see `numbered_after`."""
        return numbered_after({string: self.find(string) for string in wanted}, len(self))

    def find(self, key: str) -> int:
        """Return the position of a key, -1 where it is none."""
        if self._places is not None:
            return self._places.get(key, -1)
        raw, hashed = key.encode("utf-8", "surrogatepass"), _hash(key)
        at = bisect_left(self._sorted, hashed)
        while at < len(self._sorted) and self._sorted[at] == hashed:
            if self._raw(found := self._at[at]) == raw:
                return found
            at += 1
        return -1

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.find(key) >= 0

    def __getitem__(self, key: str) -> int:
        if (at := self.find(key)) < 0:
            raise KeyError(key)
        return at

    def __len__(self) -> int:
        return len(self.strings)

    def __iter__(self) -> Iterator[str]:
        return iter(self.strings)

    def save(self, folder: Path, name: str) -> None:
        """Write under a name; see `load`."""
        Texts.of(self.strings).save(folder, name)
        put_arrays_apart(folder, **{f"{name}.hashes": self._hashes, f"{name}.order": self._order})

    @classmethod
    def load(cls, folder: Path, name: str) -> Keys:
        """Map what `save` wrote."""
        hashes, order = (map_array(folder, f"{name}.{part}") for part in ("hashes", "order"))
        return cls(load_strings(folder, name), hashes, order)


class KeyedLists(Mapping[str, tuple[int, ...]]):
    """A list of numbers for each of many keys."""

    def __init__(self, keys: Keys, lists: Lists) -> None:
        if len(keys) != len(lists):
            raise ValueError("a table has not as many lists as names")
        self.keys_, self.lists = keys, lists

    def __contains__(self, key: object) -> bool:
        return key in self.keys_

    def __getitem__(self, key: str) -> tuple[int, ...]:
        return tuple(self.lists[self.keys_[key]].tolist())

    def __len__(self) -> int:
        return len(self.keys_)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys_)

    def save(self, folder: Path, name: str) -> None:
        """Write under a name; see `load`."""
        self.keys_.save(folder, name)
        self.lists.save(folder, f"{name}.lists")

    @classmethod
    def load(cls, folder: Path, name: str, below: int) -> KeyedLists:
        """Map what `save` wrote; ValueError where a number is not below `below`."""
        return cls(Keys.load(folder, name), Lists.load(folder, f"{name}.lists", below))


@dataclass(frozen=True)
class Lists:
    """Lists of integers, one after the other: list i is `values[indptr[i] : indptr[i + 1]]`."""

    indptr: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        return self.values[self.indptr[i] : self.indptr[i + 1]]

    @property
    def sizes(self) -> np.ndarray:
        """Length of each list. Shape (len(self),)."""
        return np.diff(self.indptr)

    def sizes_of(self, items: np.ndarray) -> np.ndarray:
        """Return the lengths of some lists. Shape (len(items),)."""
        return self.indptr[items + 1] - self.indptr[items]

    def places(self, items: np.ndarray) -> np.ndarray:
        """Return where the values of some lists stand in `values`, one list after the other. Shape (their lengths,)."""
        starts, counts = self.indptr[items], self.sizes_of(items)
        return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))

    @property
    def is_whole(self) -> bool:
        """Tell whether the lists cover all values, in order."""
        i = self.indptr
        return bool(len(i) and i[0] == 0 and i[-1] == len(self.values) and np.all(np.diff(i) >= 0))

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Lists:
        """Store lists of integers."""
        kept = list(rows)
        indptr = np.zeros(len(kept) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in kept], out=indptr[1:])
        return cls(indptr, np.fromiter((v for row in kept for v in row), dtype=np.int32, count=int(indptr[-1])))

    @classmethod
    def grouped(cls, owners: np.ndarray, count: int) -> Lists:
        """Return for each of `count` owners the positions at which it stands in `owners` (-1: nobody), ascending."""
        at = np.argsort(owners, kind="stable")
        at = at[np.count_nonzero(owners < 0) :].astype(np.int32)
        return cls(np.concatenate([[0], np.cumsum(np.bincount(owners[at], minlength=count))]).astype(np.int64), at)

    def save(self, folder: Path, name: str) -> None:
        """Write under a name; see `load`."""
        put_arrays_apart(folder, **{f"{name}.indptr": self.indptr, f"{name}.values": self.values})

    @classmethod
    def load(cls, folder: Path, name: str, below: int) -> Lists:
        """Map what `save` wrote; ValueError where the arrays do not fit, or a value is not below `below`."""
        lists = cls(map_array(folder, f"{name}.indptr"), map_array(folder, f"{name}.values"))
        if not lists.is_whole:
            raise ValueError(f"the lists {name!r} do not fit")
        check_below(lists.values, below)
        return lists


def check_below(numbers: np.ndarray, bound: int) -> None:
    """Raise ValueError where a number is negative or not below `bound`."""
    if numbers.dtype.kind not in "iu" or (len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < bound):
        raise ValueError("a number leads nowhere")


def put_array(path: Path, array: np.ndarray) -> None:
    """Write an array. Raises FileExistsError where there is a file or a link."""
    with path.open("xb") as out:
        np.save(out, array, allow_pickle=False)


def put_arrays_apart(folder: Path, **arrays: np.ndarray) -> None:
    """Write each array into a file NAME.npy of its own, which can be mapped. FileExistsError where there is one."""
    for name, array in arrays.items():
        put_array(folder / f"{name}.npy", array)


def map_array(folder: Path, name: str) -> np.ndarray:
    """Map NAME.npy, read-only: what is not looked at stays on the disk. ValueError where it is no array."""
    path = folder / f"{name}.npy"
    with open_regular(path) as file:  # refuses pipes, links to them and hollow files
        version = np.lib.format.read_magic(file)
        read: Any = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        shape, is_fortran, dtype = read(file)
        if dtype.hasobject or is_fortran:
            raise ValueError(f"{path.name} holds no plain array")
        if not np.prod(shape, dtype=object):
            return np.zeros(shape, dtype)
        return np.memmap(file, dtype=dtype, mode="r", offset=file.tell(), shape=shape).view(np.ndarray)


def numbered_after(found: dict[str, int], count: int) -> tuple[dict[str, int], list[str]]:
    """Number what is among `count` strings by where it was found, the others (-1) after them in order; return these."""
    others = [string for string, at in found.items() if at < 0]
    return found | {string: count + i for i, string in enumerate(others)}, others


def hashes_of(strings: Sequence[str]) -> np.ndarray:
    """Return 64 bits of each string. Shape (len(strings),), uint64."""
    return np.fromiter(map(_hash, strings), dtype=np.uint64, count=len(strings))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def distinct(values: np.ndarray) -> np.ndarray:
    """Return what `np.unique` does, by sorting: its hashing takes ten times as long."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered
