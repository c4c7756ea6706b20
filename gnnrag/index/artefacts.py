"""Artefacts of an index: how they are keyed, made, cached and read; the base class of what makes them.

An artefact lies in `NAME-KEY/` of the index folder, where the key hashes its settings and the keys of what it is made
of. It is made when it is first read, appears whole, and is never changed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gnnrag.arrays import get_json, get_vectors, put_json
from gnnrag.config import IndexConfig
from gnnrag.errors import ArtefactError
from gnnrag.index.embedder import Embedder
from gnnrag.io import Journal, digest, read_object
from gnnrag.types import Passage

T = TypeVar("T")


@dataclass
class Context:
    """What an artefact may use while it is made."""

    root: Path
    config: IndexConfig
    passages: Sequence[Passage]
    embedder: Callable[[], Embedder]
    read: Callable[[str], Any]  # the value of another artefact
    progress: Callable[[int], None] = field(default=lambda n: None)
    remarks: list[str] = field(default_factory=list)  # what a person should know of what was made
    settings: str = ""  # digest of what decides the artefact that is being made

    @cached_property
    def tasks(self) -> Any:
        """Who runs the writers (`gnnrag.roles.writers.tasks.IndexTasks`): summaries, reports, extraction by a model."""
        tasks = import_module("gnnrag.roles.writers.tasks")  # by name: the index knows no role
        return tasks.IndexTasks(self.config, self.embedder)

    @cached_property
    def hashes(self) -> list[str]:
        """What tells the contents of passages apart: ids and order cost no work when they change."""
        return [digest([passage.title, passage.text]) for passage in self.passages]

    def earlier(self, name: str, read: Callable[[Path, dict[str, Any]], T], default: T) -> T:
        """Return what `read` gives of the newest artefact of a name and its record; the default where there is none."""
        folders = [folder for folder in self.root.glob(f"{name}-*") if (folder / RECORD).is_file()]
        newest = max(folders, key=lambda folder: (folder / RECORD).stat().st_mtime_ns, default=None)
        try:
            return default if newest is None else read(newest, read_object(newest / RECORD))
        except (OSError, ValueError, KeyError):  # of an earlier version of the code: made anew
            return default

    def cached(
        self,
        name: str,
        settings: str,
        keys: Sequence[str],
        known: dict[str, Any],
        compute: Callable[[list[int]], list[Any]],
        batch: int,
        progress: Callable[[int], None] = lambda n: None,
    ) -> list[Any]:
        """Apply a costly function once to each distinct key, resumably; JSON values in the order of `keys`.

        `compute` maps positions to values, `batch` of them a call; `known` are values from elsewhere. Values are kept
        in a journal of `name` and `settings`; None, a failure, is not, and is tried again. `progress` gets counts.
        """
        journal = Journal(self.root / CACHE / f"{name}-{settings[:16]}.jsonl")
        values = {**known, **{row[0]: row[1] for row in journal.rows}}
        first = {key: i for i, key in reversed(list(enumerate(keys)))}
        missing = [i for i, key in enumerate(keys) if key not in values and first[key] == i]
        progress(len(keys) - len(missing))
        for start in range(0, len(missing), batch):
            chunk = missing[start : start + batch]
            rows = [(keys[i], value) for i, value in zip(chunk, compute(chunk), strict=True)]
            journal.append(*[list(row) for row in rows if row[1] is not None])
            values.update(rows)
            progress(len(chunk))
        journal.close()
        return [values[key] for key in keys]

    def embed(
        self, name: str, strings: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> tuple[np.ndarray, int]:
        """Embed each distinct string once, resumably: (len(strings), dim) rows, and how many were new.

        Vectors of strings that the newest artefact `name` has, by the same embedder, are taken from there.
        """
        keys, progress = [digest(text) for text in strings], progress or self.progress_of(len(strings))
        embedder = self.embedder()

        def read(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
            if record.get("embedder") != embedder.identity:
                return {}
            return dict(zip(get_json(folder / KEYS), get_vectors(folder / VECTORS), strict=True))

        def compute(positions: list[int]) -> list[Any]:
            rows = embedder.encode([strings[i] for i in positions])
            return [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in rows]

        known: dict[str, Any] = self.earlier(name, read, {})
        settings = hashlib.sha256(embedder.identity.encode()).hexdigest()
        values = self.cached(f"{name}-vectors", settings, keys, known, compute, embedder.block, progress)
        rows = [np.frombuffer(base64.b64decode(v), "<f4") if isinstance(v, str) else v for v in values]
        vectors = np.stack(rows).astype(np.float32, copy=False) if rows else np.zeros((0, 0), np.float32)
        return vectors, len(set(keys) - known.keys())

    def put_vectors(self, folder: Path, strings: Sequence[str], vectors: np.ndarray) -> None:
        """Write vectors so that `embed` finds them again."""
        np.save(folder / VECTORS, vectors)
        put_json(folder / KEYS, [digest(text) for text in strings])

    def forget(self, name: str) -> None:
        """Delete the journals of an artefact that is there, unless a model wrote what is in them."""
        for path in (self.root / CACHE).glob(f"{name}-*.jsonl"):
            path.unlink(missing_ok=True)

    def progress_of(self, total: int) -> Callable[[int], None]:
        """Return a callback for counts of `total` strings that moves the progress, which counts passages."""
        reported = done = 0

        def progress(count: int) -> None:
            nonlocal reported, done
            done = min(done + count, total)
            before, reported = reported, done * len(self.passages) // max(total, 1)
            self.progress(reported - before)

        return progress


RECORD, CACHE, KEYS, VECTORS = "record.json", ".cache", "keys.json", "vectors.npy"


class Stage:
    """What makes one artefact: a pure function of its settings and of what it needs."""

    name: str
    needs: tuple[str, ...]
    sections: tuple[str, ...] = ()  # of the settings, that only such artefacts read: `graph`, ...
    version = 1  # of the code: artefacts of another one are made anew

    def needs_for(self, config: IndexConfig) -> tuple[str, ...]:
        """Return the artefacts that it is made of under these settings."""
        return self.needs

    def settings(self, context: Context) -> Any:
        """Return JSON data that, with the version and the keys of `needs`, decides the artefact."""

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        """Compute the artefact and write it into an empty folder; returns counts for its record."""
        raise NotImplementedError

    def load(self, folder: Path) -> Any:
        """Read it back."""
        raise NotImplementedError


class StringVectors(Stage):
    """A vector per string of another artefact."""

    what: str  # what the strings are, for the record

    def strings(self, context: Context) -> Sequence[str]:
        """Return the strings, in the order of the rows."""
        return getattr(context.read(self.needs[0]), self.what)

    def settings(self, context: Context) -> Any:
        return context.embedder().identity

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        strings = self.strings(context)
        vectors, computed = context.embed(self.name, strings)
        context.put_vectors(folder, strings, vectors.astype(np.float16))
        return {self.what: len(vectors), "computed": computed}

    def load(self, folder: Path) -> np.ndarray:
        """Return (number of strings, dim) float32."""
        return get_vectors(folder / VECTORS).astype(np.float32)


def read_artefact(folder: Path, load: Callable[[Path], T]) -> T:
    """Return what `load` reads. Raises ArtefactError where the folder is damaged."""
    try:
        return load(folder)
    except ArtefactError:
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        problem = f"is damaged ({type(error).__name__}: {error}); delete it, and it is made anew"
        raise ArtefactError(f"index artefact {folder} {problem}") from error


def unit_rows(halves: np.ndarray) -> np.ndarray:
    """Return float16 rows as float32 ones of length 1, each by itself: the same whatever else is stored."""
    rows = halves.astype(np.float32)
    return rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True)).clip(1e-12)
