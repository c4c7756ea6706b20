"""Artefacts of an index: how they are keyed, made, cached and read, and the base class of the stages that make them.

An artefact is the folder `NAME-KEY/` in the index folder; the key hashes its settings and the keys of its inputs. It is
made when it is first read, becomes visible only when complete, and is never changed.
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
    """What a stage may use while it makes an artefact."""

    root: Path
    config: IndexConfig
    passages: Sequence[Passage]
    embedder: Callable[[], Embedder]
    read: Callable[[str], Any]  # the value of another artefact
    progress: Callable[[int], None] = field(default=lambda n: None)
    remarks: list[str] = field(default_factory=list)  # warnings to log about what was made
    settings: str = ""  # digest of the settings of the artefact that is being made

    @cached_property
    def tasks(self) -> Any:
        """Runs the roles that write for an index: summaries, reports, extraction by a model."""
        tasks = import_module("gnnrag.roles.writers.tasks")  # by name, so that the index does not depend on roles
        return tasks.IndexTasks(self.config, self.embedder)

    @cached_property
    def hashes(self) -> list[str]:
        """Digests of the passages' titles and texts; a change of ids or order alone leaves them equal."""
        return [digest([passage.title, passage.text]) for passage in self.passages]

    def earlier(self, name: str, read: Callable[[Path, dict[str, Any]], T], default: T) -> T:
        """Return what `read` makes of the newest artefact of a name and its record; `default` if there is none."""
        folders = [folder for folder in self.root.glob(f"{name}-*") if (folder / RECORD).is_file()]
        newest = max(folders, key=lambda folder: (folder / RECORD).stat().st_mtime_ns, default=None)
        try:
            return default if newest is None else read(newest, read_object(newest / RECORD))
        except (OSError, ValueError, KeyError):  # written by an earlier version of the code: ignored
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
        """Compute one JSON value for each distinct key, resumably; returns the values in the order of `keys`.

        `compute` maps at most `batch` positions in `keys` to their values; `known` holds values by key that need no
        work. A journal of `name` and `settings` keeps values, but not None (a failure), which later calls try again.
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

        Vectors are copied from the newest artefact `name` where the same embedder made it and it has the string.
        """
        keys, progress = [digest(text) for text in strings], progress or self.progress_of(len(strings))
        embedder = self.embedder()

        def read(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
            if record.get("embedder") != embedder.identity:
                return {}
            return dict(zip(get_json(folder / DIGESTS), get_vectors(folder / VECTORS), strict=True))

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
        put_json(folder / DIGESTS, [digest(text) for text in strings])

    def forget(self, name: str) -> None:
        """Delete the journals of a name; the artefact that they served must exist."""
        for path in (self.root / CACHE).glob(f"{name}-*.jsonl"):
            path.unlink(missing_ok=True)

    def progress_of(self, total: int) -> Callable[[int], None]:
        """Return a callback that turns counts out of `total` strings into counts of passages for `progress`."""
        reported = done = 0

        def progress(count: int) -> None:
            nonlocal reported, done
            done = min(done + count, total)
            before, reported = reported, done * len(self.passages) // max(total, 1)
            self.progress(reported - before)

        return progress


# Files of an artefact: its record; vectors, and digests of the strings that they stand for. CACHE: journals of builds.
RECORD, CACHE, DIGESTS, VECTORS = "record.json", ".cache", "digests.json", "vectors.npy"


class Stage:
    """Makes one artefact: a pure function of its settings and its inputs."""

    name: str
    needs: tuple[str, ...]
    sections: tuple[str, ...] = ()  # sections of the settings that it reads: `graph`, ...
    version = 1  # of the code: a new version makes the artefact again

    def needs_for(self, config: IndexConfig) -> tuple[str, ...]:
        """Return the artefacts that are its inputs under these settings."""
        return self.needs

    def settings(self, context: Context) -> Any:
        """Return JSON data on which, besides the version and its inputs, the artefact depends."""

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        """Compute the artefact and write it into an empty folder; returns counts for its record."""
        raise NotImplementedError

    def load(self, folder: Path) -> Any:
        """Read the artefact from its folder."""
        raise NotImplementedError


class StringVectors(Stage):
    """One vector for each string of another artefact."""

    what: str  # attribute of the first input that holds the strings, and their name in the record

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
    """Return float16 rows as float32 rows of unit length; each result depends on its own row only."""
    rows = halves.astype(np.float32)
    return rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True)).clip(1e-12)
