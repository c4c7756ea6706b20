"""What makes the artefacts of an index: what stages may use, their base class, and those that read passages alone.

An artefact is the folder `NAME-KEY/` in the index folder; the key hashes its settings and the keys of its inputs. It is
made when it is first read, becomes visible only when complete, and is never changed. A new artefact is a class such as
those below; it goes into `gnnrag.index.index.STAGES`.
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

from gnnrag import arrays
from gnnrag.arrays import get_json, get_lines, put_json, put_lines
from gnnrag.config import IndexConfig
from gnnrag.graphs.hierarchy import HierarchyGraph, build_hierarchy
from gnnrag.graphs.titles import Layout, TitleTables, layout_of, titles_of
from gnnrag.index.lexical import BM25
from gnnrag.index.nearest import FLAT_UP_TO, write_lists
from gnnrag.io import Journal, digest, read_object
from gnnrag.text.analyse import PassageText, analyse, resolve_language
from gnnrag.types import Passage

T = TypeVar("T")


@dataclass
class Context:
    """What a stage may use while it makes an artefact."""

    index: Any  # for its `embedder`
    root: Path
    config: IndexConfig
    passages: Sequence[Passage]
    read: Callable[[str], Any]  # the value of another artefact
    progress: Callable[[int], None] = field(default=lambda n: None)
    remarks: list[str] = field(default_factory=list)  # warnings to log about what was made
    settings: str = ""  # digest of the settings of the artefact that is being made

    @cached_property
    def tasks(self) -> Any:
        """Runs the roles that write for an index: summaries, reports, extraction by a model."""
        tasks = import_module("gnnrag.roles.writers.tasks")  # by name, so that the index does not depend on roles
        return tasks.IndexTasks(self.config, lambda: self.index.embedder)

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
        embedder = self.index.embedder

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
        return context.index.embedder.identity

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        strings = self.strings(context)
        vectors, computed = context.embed(self.name, strings)
        context.put_vectors(folder, strings, vectors.astype(np.float16))
        return {self.what: len(vectors), "computed": computed}

    def load(self, folder: Path) -> np.ndarray:
        """Return (number of strings, dim) float32."""
        return get_vectors(folder / VECTORS).astype(np.float32)


def get_vectors(path: Path) -> np.ndarray:
    """Map (n, dim) vectors as they were stored."""
    return np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)


def unit_rows(halves: np.ndarray) -> np.ndarray:
    """Return float16 rows as float32 rows of unit length; each result depends on its own row only."""
    rows = halves.astype(np.float32)
    return rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True)).clip(1e-12)


# ------------------------------------------------------------------------------------------- made of passages alone
class TextStage(Stage):
    """Sentences and phrases of each passage."""

    name, needs, version = "text", ("passages",), 5

    def settings(self, context: Context) -> Any:
        text = context.config.text
        return [resolve_language(text.language), text.phrase_rules, text.title_mode]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        text, keys = context.config.text, context.hashes
        language = resolve_language(text.language)

        def read(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
            rows = get_lines(folder / "texts.jsonl") if record["settings"] == context.settings else []
            return {row[0]: row[1:] for row in rows}

        def compute(positions: list[int]) -> list[Any]:
            rows: Any = analyse(
                [context.passages[i] for i in positions],
                language=language, title_mode=text.title_mode, phrase_rules=text.phrase_rules,
            )  # fmt: skip
            return [[row.sentences, row.phrases] for row in rows]

        known: dict[str, Any] = context.earlier(self.name, read, {})
        values = context.cached(self.name, context.settings, keys, known, compute, 1000, context.progress)
        put_lines(folder / "texts.jsonl", ([key, *row] for key, row in zip(keys, values, strict=True)))
        return {"language": language}

    def load(self, folder: Path) -> Sequence[PassageText]:
        """Return one PassageText per passage."""
        rows = get_lines(folder / "texts.jsonl")
        return [PassageText(tuple(sentences), tuple(map(tuple, phrases))) for _, sentences, phrases in rows]


class HierarchyStage(Stage):
    """The contextual hierarchy graph of MGranRAG."""

    name, needs, version = "hierarchy", ("text",), 4

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        graph = build_hierarchy(context.read("text"))
        graph.save(folder)
        sizes = {"sentences": len(graph.sentences), "phrases": len(graph.phrases)}
        return {"nodes": graph.num_nodes, "edges": len(graph.neighbours.values) // 2, **sizes}

    def load(self, folder: Path) -> HierarchyGraph:
        return HierarchyGraph.load(folder)


class TitleStage(Stage):
    """What passages are known by, and where they stand in their documents."""

    name, needs, version = "titles", ("passages", "hierarchy"), 3

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        titles = titles_of(context.passages, context.read("hierarchy"))
        arrays.save(folder, "titles", titles)
        arrays.save(folder, "layout", layout_of(context.passages))
        return {"forms": len(titles.forms)}

    def load(self, folder: Path) -> tuple[TitleTables, Layout]:
        return arrays.load(folder, "titles", TitleTables), arrays.load(folder, "layout", Layout)


class LexicalStage(Stage):
    """The BM25 index."""

    name, needs, version = "lexical", ("passages",), 4

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        model = BM25.fit([p.content for p in context.passages])
        model.save(folder)
        return {"terms": model.num_terms}

    def load(self, folder: Path) -> BM25:
        return BM25.load(folder)


class EmbeddingStage(Stage):
    """Unit vectors of the passages."""

    name, needs = "embeddings", ("passages",)

    def settings(self, context: Context) -> Any:
        return context.index.embedder.identity

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        contents = [passage.content for passage in context.passages]
        vectors, computed = context.embed(self.name, contents, context.progress)
        context.put_vectors(folder, contents, vectors)
        if len(vectors) > FLAT_UP_TO:
            write_lists(folder, vectors)
        return {"dim": int(vectors.shape[1]), "computed": computed}

    def load(self, folder: Path) -> np.ndarray:
        """Return (num_passages, dim) float32."""
        return get_vectors(folder / VECTORS)
