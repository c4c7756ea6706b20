"""Artefacts of an index: how they are keyed, made, cached and read; the base class of what makes them.

An artefact lies in `NAME-KEY/` of the index folder, where the key hashes its settings and the keys of what it is made
of. It is made when it is first read, appears whole, and is never changed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from gnnrag.common.tables import map_array
from gnnrag.config import IndexConfig
from gnnrag.errors import ArtefactError
from gnnrag.index.embedder import Embedder
from gnnrag.io import Journal, digest, read_json, read_object
from gnnrag.registry import INDEX_TASKS, resolve
from gnnrag.types import Passage

T = TypeVar("T")
Writer = Callable[[Path], dict[str, Any]]


def put_json(path: Path, data: Any) -> None:
    """Write JSON on one line."""
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


def put_lines(path: Path, lines: Iterable[str], end: str = "\n") -> None:
    """Write lines."""
    with path.open("w", encoding="utf-8", newline="\n") as out:
        out.writelines(line + end for line in lines)


def put_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write arrays by name."""
    np.savez(path, **arrays)  # type: ignore[arg-type]


get_json = read_json


def get_lines(path: Path) -> list[Any]:
    """Read a JSON value from each line."""
    with path.open("rb") as lines:
        return [json.loads(line) for line in lines]


def get_vectors(path: Path) -> np.ndarray:
    """Map (n, dim) vectors as they were stored."""
    return map_array(path.parent, path.stem)


def get_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read arrays by name."""
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


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

    @cached_property
    def tasks(self) -> Any:
        """Who runs the writers (`gnnrag.roles.writers.tasks.IndexTasks`): summaries, reports, extraction by a model."""
        return resolve("index.jobs", "jobs", INDEX_TASKS)(self.config, self.embedder)

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

    def embedded(
        self, name: str, keys: Sequence[str], texts: Callable[[list[int]], list[str]],
        progress: Callable[[int], None] = lambda n: None,
    ) -> tuple[np.ndarray, int]:
        """Embed each distinct string once, resumably: (len(keys), dim) float32, and how many were new.

        Vectors of strings that the newest artefact `name` has, by the same embedder, are taken from there.
        """  # fmt: skip
        embedder = self.embedder()

        def read(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
            if record.get("embedder") != embedder.identity:
                return {}
            return dict(zip(get_json(folder / KEYS), get_vectors(folder / VECTORS), strict=True))

        def compute(positions: list[int]) -> list[Any]:
            rows = embedder.encode(texts(positions))
            return [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in rows]

        known: dict[str, Any] = self.earlier(name, read, {})
        settings = hashlib.sha256(embedder.identity.encode()).hexdigest()
        values = self.cached(f"{name}-vectors", settings, keys, known, compute, embedder.block, progress)
        rows = [np.frombuffer(base64.b64decode(v), "<f4") if isinstance(v, str) else v for v in values]
        out = np.stack(rows).astype(np.float32, copy=False) if rows else np.zeros((0, 0), np.float32)
        return out, len(set(keys) - known.keys())

    def put_vectors(self, folder: Path, keys: Sequence[str], vectors: np.ndarray) -> None:
        """Write vectors so that `embedded` finds them again."""
        np.save(folder / VECTORS, vectors)
        put_json(folder / KEYS, list(keys))

    def forget(self, name: str) -> None:
        """Delete the journals of an artefact that is there, unless a model wrote what is in them."""
        for path in (self.root / CACHE).glob(f"{name}-*.jsonl"):
            path.unlink(missing_ok=True)

    def progress_of(self, total: int) -> Callable[[int], None]:
        """Return a callback for counts of `total` strings that moves the progress, which counts passages."""
        reported = done = 0

        def progress(count: int) -> None:
            nonlocal reported, done
            done += count
            before, reported = reported, done * len(self.passages) // max(total, 1)
            self.progress(reported - before)

        return progress


RECORD, CACHE, KEYS, VECTORS = "record.json", ".cache", "keys.json", "vectors.npy"


class Stage:
    """What makes one artefact: a pure function of its settings and of what it needs."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    sections: ClassVar[tuple[str, ...]] = ()  # of the settings, that only such artefacts read: `graph`, ...

    @classmethod
    def needs_for(cls, config: IndexConfig) -> tuple[str, ...]:
        """Return the artefacts that it is made of under these settings."""
        return cls.needs

    def settings(self, context: Context) -> Any:
        """Return JSON data that, with the keys of `needs`, decides the artefact."""
        raise NotImplementedError

    def build(self, context: Context, settings: str) -> Writer:
        """Compute the artefact and return the function that writes it into an empty folder."""
        raise NotImplementedError

    def load(self, folder: Path) -> Any:
        """Read it back."""
        raise NotImplementedError


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
