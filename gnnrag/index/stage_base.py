"""What a stage of an index is, and how one keeps a value for each passage."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from gnnrag.config import IndexConfig
from gnnrag.files import digest
from gnnrag.index.artefact import get_json, get_lines, put_json, put_lines
from gnnrag.index.embedder import Embedder
from gnnrag.index.store import Store, map_passages
from gnnrag.registry import JOBS, resolve
from gnnrag.types import Passage

Writer = Callable[[Path], dict[str, Any]]


@dataclass
class Context:
    """What a stage may use while it is built."""

    store: Store
    config: IndexConfig
    passages: Sequence[Passage]
    embedder: Callable[[], Embedder]
    read: Callable[[str], Any]  # a finished stage's value
    progress: Callable[[int], None] = field(default=lambda n: None)

    @cached_property
    def jobs(self) -> Any:
        """Who runs the writers (`gnnrag.roles.jobs.IndexJobs`): summaries, reports, extraction by a model."""
        return resolve("index.jobs", "jobs", JOBS)(self.config, self.embedder)

    @property
    def hashes(self) -> list[str]:
        """Content hash of each passage, in corpus order: ids and order cost no work when they change."""
        return [digest([p.title, p.text]) for p in self.passages]


class Stage(Protocol):
    """One artefact: a pure function of its inputs and settings."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    sections: ClassVar[tuple[str, ...]]  # parts of the settings that only such stages read: `graph`, `writers.report`

    def settings(self, context: Context) -> Any:
        """Return JSON data that, with the keys of `needs`, decides the artefact."""
        ...

    def build(self, context: Context, settings: str) -> Writer:
        """Compute the artefact and return the function that writes it into an empty folder."""
        ...

    def load(self, folder: Path) -> Any:
        """Read it back."""
        ...


def write_records(folder: Path, hashes: Sequence[str], values: Sequence[Any], settings: str) -> None:
    """Write one JSON value per passage with its content hash."""
    rows = zip(hashes, values, strict=True)
    put_lines(folder / "records.jsonl", (json.dumps([key, value], ensure_ascii=False) for key, value in rows))
    put_json(folder / "settings.json", settings)


def read_records(folder: Path) -> list[tuple[str, Any]]:
    """Return (content hash, value) pairs in corpus order."""
    return [(key, value) for key, value in get_lines(folder / "records.jsonl")]


def known_records(store: Store, stage: str, settings: str) -> dict[str, Any]:
    """Return the earlier artefact's values by content hash, if they were made with the same settings."""
    if store.key(stage) is None:
        return {}

    def read(folder: Path) -> dict[str, Any]:
        return dict(read_records(folder)) if get_json(folder / "settings.json") == settings else {}

    return store.load(stage, read)


def embed_strings(
    context: Context,
    stage: str,
    settings: str,
    keys: Sequence[str],
    texts: Callable[[list[int]], list[str]],
    known: dict[str, np.ndarray],
    progress: Callable[[int], None],
) -> np.ndarray:
    """Embed each distinct string once, resumably; see `map_passages`. Returns (len(keys), dim) float32."""
    embedder = context.embedder()

    def compute(positions: list[int]) -> list[Any]:
        rows = embedder.encode(texts(positions))
        return [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in rows]

    values = map_passages(context.store, stage, settings, keys, known, compute, 256, progress)
    if not values:
        return np.zeros((0, 0), np.float32)
    out = np.empty((len(values), len(_row(values[0]))), dtype=np.float32)
    for i, value in enumerate(values):
        out[i], values[i] = _row(value), None  # of millions of strings, one copy at a time
    return out


def _row(value: Any) -> np.ndarray:
    """Return a vector as it is, or from the text in which journals keep it."""
    return np.frombuffer(base64.b64decode(value), dtype="<f4") if isinstance(value, str) else value


def unit_rows(halves: np.ndarray) -> np.ndarray:
    """Return float16 rows as float32 ones of length 1, each by itself: the same whatever else is stored."""
    rows = halves.astype(np.float32)
    return rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True)).clip(1e-12)
