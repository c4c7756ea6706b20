"""Artefacts of an index and the base class of the stages that compute them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from gnnrag.common.files import digest, open_regular, read_json
from gnnrag.common.tables import map_array
from gnnrag.common.untrusted import parse_json
from gnnrag.config import IndexConfig
from gnnrag.errors import ArtefactError
from gnnrag.index.embedder import Embedder
from gnnrag.index.passages import CONTENT, digests_of
from gnnrag.index.store import Store, map_passages
from gnnrag.registry import INDEX_TASKS, resolve
from gnnrag.types import Passage


def put_json(path: Path, data: Any) -> None:
    """Write JSON on one line. Raises FileExistsError where there is a file or a link."""
    put_lines(path, [json.dumps(data, ensure_ascii=False)], end="")


def put_lines(path: Path, lines: Iterable[str], end: str = "\n") -> None:
    """Write lines. Raises FileExistsError where there is a file or a link."""
    with path.open("x", encoding="utf-8", newline="\n") as out:
        out.writelines(line + end for line in lines)


def put_bytes(path: Path, data: np.ndarray) -> None:
    """Write bytes as they are. Raises FileExistsError where there is a file or a link."""
    with path.open("xb") as out:
        out.write(memoryview(data))


def put_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write arrays by name. Raises FileExistsError where there is a file or a link."""
    with path.open("xb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]


def get_json(path: Path) -> Any:
    """Read JSON. Raises ValueError where it is none, ArtefactError where it is too large to be one of ours."""
    return read_json(path)


def get_lines(path: Path) -> list[Any]:
    """Read a JSON value from each line. Raises ValueError where one is none."""
    with open_regular(path) as lines:
        return [parse_json(line) for line in lines]


def as_texts(values: Iterable[Any]) -> list[str]:
    """Return values that are to be texts. Raises ValueError where one is none."""
    if isinstance(values, str):
        raise ValueError("a text stands where a list of texts is needed")
    found = list(values)
    if not all(isinstance(value, str) for value in found):
        raise ValueError("something stands where a text is needed")
    return found


_CHECKED = 1 << 26  # numbers


def get_vectors(path: Path) -> np.ndarray:
    """Map (n, dim) vectors as they were stored. Raises ArtefactError for another shape, and where one is no number."""
    rows = map_array(path.parent, path.stem)
    is_read = rows.size <= _CHECKED  # of more, a vector that is no number is one that is never found
    if rows.ndim != 2 or rows.dtype.kind != "f" or (is_read and not np.isfinite(rows.sum(dtype=np.float64))):
        raise ArtefactError(f"{path} holds no vectors of finite numbers; it is damaged or forged")
    return rows


def get_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read arrays by name. Raises ArtefactError where they are packed: a few bytes could unfold to fill the memory."""
    with open_regular(path) as file, np.load(file, allow_pickle=False) as stored:
        if any(member.compress_type for member in stored.zip.infolist()):
            raise ArtefactError(f"{path} is compressed, as no artefact is; it is damaged or forged")
        return dict(stored)


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
    remarks: list[str] = field(default_factory=list)  # what a stage wants a person to be told
    made_with: str = ""  # a hash of the settings of the stage and of all that it reads

    @cached_property
    def tasks(self) -> Any:
        """Who runs the writers (`gnnrag.roles.writers.tasks.IndexTasks`): summaries, reports, extraction by a model."""
        return resolve("index.jobs", "jobs", INDEX_TASKS)(self.config, self.embedder)

    @cached_property
    def digests(self) -> np.ndarray:
        """See `digests_of`."""
        return digests_of(self.passages)

    @property
    def contents(self) -> np.ndarray:
        """What tells contents apart, (num_passages, 16) uint8: ids and order cost no work when they change."""
        return np.ascontiguousarray(self.digests[:, :CONTENT])

    def keys(self, positions: Iterable[int]) -> list[str]:
        """Return `contents` of some passages in hexadecimal digits."""
        contents = self.contents
        return [contents[i].tobytes().hex() for i in positions]

    @property
    def hashes(self) -> list[str]:
        """The same as texts, by which stages know again what a model wrote."""
        return [digest([p.title, p.text]) for p in self.passages]


class Stage(Protocol):
    """One artefact: a pure function of its inputs and settings."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    sections: ClassVar[tuple[str, ...]]  # parts of the settings that only such stages read: `graph`, `writers.report`

    @classmethod
    def needs_for(cls, config: IndexConfig) -> tuple[str, ...]:
        """Return the stages that it reads under these settings."""
        return cls.needs

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


def progress_of_strings(context: Context, total: int) -> Callable[[int], None]:
    """Return a callback for counts of finished strings that moves the stage's progress, which counts passages."""
    told, done = 0, 0

    def progress(count: int) -> None:
        nonlocal told, done
        done += count
        told, before = done * len(context.passages) // max(total, 1), told
        context.progress(told - before)

    return progress


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

    values = map_passages(context.store, stage, settings, keys, known, compute, embedder.block, progress)
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
