"""What makes the artefacts of an index: what stages may use, their base class, and those that read passages alone.

An artefact is the folder `NAME-KEY/` in the index folder; the key hashes its settings and the keys of its inputs. It is
made when it is first read, becomes visible only when complete, and is never changed. What was computed of single texts
stays in tables (`gnnrag.index.tables`), so that nothing is computed twice. A new artefact is a class such as those
below; it goes into `gnnrag.index.index.STAGES`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa

from gnnrag import arrays
from gnnrag.config import IndexConfig
from gnnrag.executors import make_executor
from gnnrag.graphs.hierarchy import HierarchyGraph, build_hierarchy
from gnnrag.graphs.titles import Layout, TitleTables, layout_of, titles_of
from gnnrag.index.lexical import Lexical
from gnnrag.index.nearest import FLAT_UP_TO, index_vectors
from gnnrag.index.tables import PassageRows, ValueTable, as_matrix, text_key, whole
from gnnrag.index.work import Analyse, Ask, Embed, Write
from gnnrag.io import exclusive_lock, read_object
from gnnrag.text.analyse import PassageText, resolve_language
from gnnrag.types import Passage

WAIT_S = 600.0  # how long one process waits for another that makes artefacts of the same index
RECORD, VECTORS = "record.json", "vectors.npy"  # files of an artefact
_TEXT = pa.struct([("sentences", pa.list_(pa.string())), ("phrases", pa.list_(pa.list_(pa.string())))])


@dataclass
class Context:
    """What a stage may use while it makes an artefact."""

    index: Any  # for its `embedder`, its `table` of passages and its place
    config: IndexConfig
    passages: Sequence[Passage]
    read: Callable[[str], Any]  # the value of another artefact
    progress: Callable[[int], None] = field(default=lambda n: None)
    settings: str = ""  # digest of the settings of the artefact that is being made
    tables: list[str] = field(default_factory=list)  # tables that it rests on
    computed_values: int = 0  # values that were not in a table

    @property
    def tasks(self) -> Any:
        """Runs the roles that write for an index: summaries, reports, extraction by a model."""
        return self.index.tasks

    @property
    def keys(self) -> Sequence[str]:
        """Keys of the passages' titles and texts; a change of ids or order alone leaves them equal."""
        return self.index.table.keys.to_pylist()  # type: ignore[no-any-return]

    def computed(
        self,
        name: str,
        made_with: str,
        keys: Sequence[str],
        items: Sequence[Any],
        work: Callable[[list[Any]], Any],
        batch: int,
        kind: pa.DataType | None = None,
        progress: Callable[[int], None] = lambda n: None,
    ) -> ValueTable:
        """Return the table of a value for each key, each computed once, whatever happens.

        `work` turns at most `batch` items into their values, None for a failure, which later calls try again; that of
        `gnnrag.index.work` is done by the configured executor. The values are kept in the table of `name` and
        `made_with`, as Arrow type `kind`; None: vectors.
        """
        self.tables.append(f"{name}-{made_with[:16]}")
        table = ValueTable(self.index.uri(f"{self.tables[-1]}.lance"), kind)
        missing = table.missing(keys)
        progress(len(keys) - len(missing))
        chunks = [missing[start : start + batch] for start in range(0, len(missing), batch)]
        settings = self.config.executor
        try:
            if settings.name == "local" or not isinstance(work, Embed | Analyse | Ask):
                for chunk in chunks:
                    table.add([keys[i] for i in chunk], work(_picked(items, chunk)))
                    progress(len(chunk))
            elif chunks:
                batches = [([keys[i] for i in chunk], _picked(items, chunk)) for chunk in chunks]
                for position, (written, spent) in make_executor(settings).map(Write(table.uri, kind, work), batches):
                    table.add_fragments(*written)
                    progress(len(chunks[position]))
                    for writer, usage in spent.items():
                        self.tasks.count(writer, usage)
        finally:
            table.close()
        self.computed_values = len(missing)
        return table

    def computed_json(
        self,
        name: str,
        made_with: str,
        keys: Sequence[str],
        items: Sequence[Any],
        work: Callable[[list[Any]], Any],
        batch: int,
        progress: Callable[[int], None] = lambda n: None,
    ) -> list[Any]:
        """Do what `computed` does for values that are JSON data; `work` gives their texts."""
        table = self.computed(name, made_with, keys, items, work, batch, pa.large_string(), progress)
        return [None if value is None else json.loads(value) for value in table.take(keys).to_pylist()]

    def embed(self, strings: Sequence[str], progress: Callable[[int], None] | None = None) -> tuple[np.ndarray, int]:
        """Embed each distinct string once: (len(strings), dim) float32 rows, and how many were new."""
        if not strings:
            return np.zeros((0, 0), np.float32), 0
        keys = [text_key("", text) for text in strings]
        table = self.embedded("string-vectors", keys, strings, progress or self.progress_of(len(strings)))
        return as_matrix(table.take(keys)), self.computed_values

    def embedded(
        self, name: str, keys: Sequence[str], texts: Sequence[str | Passage], progress: Callable[[int], None]
    ) -> ValueTable:
        """Return the table `name` with the vectors of texts, or of passages, by their keys."""
        embedder = self.index.embedder
        made_with = hashlib.sha256(embedder.identity.encode()).hexdigest()
        work = Embed(self.config.embedder, embedder)
        return self.computed(name, made_with, keys, texts, work, embedder.block, None, progress)

    def progress_of(self, total: int) -> Callable[[int], None]:
        """Return a callback that turns counts out of `total` strings into counts of passages for `progress`."""
        reported = done = 0

        def progress(count: int) -> None:
            nonlocal reported, done
            done = min(done + count, total)
            before, reported = reported, done * len(self.passages) // max(total, 1)
            self.progress(reported - before)

        return progress


def _picked(items: Sequence[Any], positions: list[int]) -> list[Any]:
    first, last = positions[0], positions[-1] + 1
    if isinstance(items, PassageRows) and last - first == len(positions):
        return items[first:last]  # much faster than one by one
    return [items[i] for i in positions]


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

    def load(self, folder: Path, index: Any) -> Any:
        """Read the artefact from its folder, or from the tables of its index."""
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
        vectors, computed = context.embed(self.strings(context))
        np.save(folder / VECTORS, vectors.astype(np.float16))
        return {self.what: len(vectors), "computed": computed}

    def load(self, folder: Path, index: Any) -> np.ndarray:
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

    name, needs, version = "text", ("passages",), 6

    def settings(self, context: Context) -> Any:
        text = context.config.text
        return [resolve_language(text.language), text.phrase_rules, text.title_mode, text.splitter]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        text = context.config.text
        language = resolve_language(text.language)

        work = Analyse(language, text.title_mode, text.phrase_rules, text.splitter)
        context.computed(
            self.name, context.settings, context.keys, context.passages, work, 1000, _TEXT, context.progress
        )
        return {"language": language}

    def load(self, folder: Path, index: Any) -> Sequence[PassageText]:
        """Return one PassageText per passage."""
        return TextRows(whole(table_of(folder, index).take(index.table.keys)))


class TextRows(Sequence[PassageText]):
    """Sentences and phrases of passages, made of a column (num_passages,) when they are asked for."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, i: int) -> PassageText: ...
    @overload
    def __getitem__(self, i: slice) -> list[PassageText]: ...
    def __getitem__(self, i: int | slice) -> PassageText | list[PassageText]:
        return list(self)[i] if isinstance(i, slice) else _passage_text(self._column[i].as_py())

    def __iter__(self) -> Iterator[PassageText]:
        for start in range(0, len(self), 10_000):
            yield from map(_passage_text, self._column.slice(start, 10_000).to_pylist())


def _passage_text(row: dict[str, Any]) -> PassageText:
    return PassageText(tuple(row["sentences"]), tuple(map(tuple, row["phrases"])))


class HierarchyStage(Stage):
    """The contextual hierarchy graph of MGranRAG."""

    name, needs, version = "hierarchy", ("text",), 5

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        graph = build_hierarchy(context.read("text"))
        graph.save(folder)
        sizes = {"sentences": len(graph.sentences), "phrases": len(graph.phrases)}
        return {"nodes": graph.num_nodes, "edges": len(graph.neighbours.values) // 2, **sizes}

    def load(self, folder: Path, index: Any) -> HierarchyGraph:
        return HierarchyGraph.load(folder)


class TitleStage(Stage):
    """What passages are known by, and where they stand in their documents."""

    name, needs, version = "titles", ("passages", "hierarchy"), 3

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        titles = titles_of(context.passages, context.read("hierarchy"))
        arrays.save(folder, "titles", titles)
        arrays.save(folder, "layout", layout_of(context.passages))
        return {"forms": len(titles.forms)}

    def load(self, folder: Path, index: Any) -> tuple[TitleTables, Layout]:
        return arrays.load(folder, "titles", TitleTables), arrays.load(folder, "layout", Layout)


class LexicalStage(Stage):
    """The BM25 index of the table of passages."""

    name, needs, sections, version = "lexical", ("passages",), ("lexical",), 6

    def settings(self, context: Context) -> Any:
        return [context.config.lexical.language, context.config.lexical.tokenizer]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        context.index.table.with_bm25(*self.settings(context))
        return {"passages": len(context.passages)}

    def load(self, folder: Path, index: Any) -> Lexical:
        how = (index.config.lexical.language, index.config.lexical.tokenizer)
        if index.table.has_bm25(*how):
            return Lexical(index.table)
        with exclusive_lock(index.local / ".lock", f"index {index.place}", WAIT_S):
            return Lexical(index.table.with_bm25(*how))


class EmbeddingStage(Stage):
    """Unit vectors of the passages."""

    name, needs, version = "embeddings", ("passages",), 2

    def settings(self, context: Context) -> Any:
        return context.index.embedder.identity

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        table = context.embedded(self.name, context.keys, context.passages, context.progress)
        if len(context.passages) > FLAT_UP_TO:
            index_vectors(table.uri)
        return {"dim": table.dim, "computed": context.computed_values}

    def load(self, folder: Path, index: Any) -> np.ndarray:
        """Return (num_passages, dim) float32."""
        return as_matrix(table_of(folder, index).take(index.table.keys))


def table_of(folder: Path, index: Any) -> ValueTable:
    """Return the first table that an artefact rests on."""
    return ValueTable(index.uri(f"{read_object(folder / RECORD)['tables'][0]}.lance"))
