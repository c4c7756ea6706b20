"""What an artefact of an index is, and what the function that makes it may use.

An artefact is a function with a name, inputs and settings, registered by `artefact`. It is made when it is first read,
as the folder `NAME-KEY/` of the index; the key hashes its settings and the keys of its inputs. It becomes visible only
when complete, and is never changed. What is computed for each text on its own is kept in tables
(`gnnrag.index.tables`), so that nothing is computed twice.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gnnrag.arrays import Rows
from gnnrag.config import IndexConfig
from gnnrag.executors import make_executor
from gnnrag.index.tables import ValueTable, names_in, text_key
from gnnrag.index.work import Ask, Embed, Write
from gnnrag.io import digest
from gnnrag.types import Passage

Counts = dict[str, Any]  # of an artefact's record
Make = Callable[["Work"], tuple[Any, Counts]]  # returns the value, as `save_arrays` takes it, and counts


@dataclass(frozen=True)
class Artefact:
    make: Make
    inputs: tuple[str, ...] | Callable[[IndexConfig], Sequence[str]]  # of artefacts; may follow from settings
    kind: Any = None  # class of the value
    # what else it depends on: sections of the settings, `embedder`, and writers such as `writers.summary`
    uses: tuple[str, ...] = ()
    version: int = 1  # of the code; under a new version the artefact is made again
    settings: Callable[[Any], Any] | None = None  # index to JSON data that decides the artefact; None: all of `uses`
    load: Callable[[Any, Path], Any] | None = None  # (index, folder) to a value that is kept in the index's tables


ARTEFACTS: dict[str, Artefact] = {}


def artefact(
    inputs: tuple[str, ...] | Callable[[IndexConfig], Sequence[str]], **options: Any
) -> Callable[[Make], Make]:
    """Register a function as the one that makes the artefact of its name; `options` are fields of `Artefact`."""

    def register(make: Make) -> Make:
        ARTEFACTS[make.__name__] = Artefact(make, inputs, **options)
        return make

    return register


def folders_in(place: Path | str) -> dict[str, list[str]]:
    """Return the folder names of each artefact in an index, whatever passages and settings they were made from."""
    folders: dict[str, list[str]] = defaultdict(list)
    for folder in sorted(names_in(place)):
        name = folder.rpartition("-")[0]
        if name in ARTEFACTS and not folder.endswith(".lance"):
            folders[name].append(folder)
    return folders


class Work:
    """What a function may use while it makes an artefact of an index.

    `settings` is a digest of the artefact's settings; `tables` collects the names of the tables that hold its values.
    """

    def __init__(self, index: Any, name: str = "", settings: str = "") -> None:
        self.index, self.name, self.settings = index, name, settings
        self.config: IndexConfig = index.config
        self.read = index.read
        self.tables: list[str] = []
        self._total = 0

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
    ) -> tuple[ValueTable, int]:
        """Return the table `name`-`made_with` with a value for each key, and how many values were computed.

        `work` turns up to `batch` items into values; None stands for a failure, which later calls try again. Classes of
        `gnnrag.index.work` run on the configured executor. Values have the Arrow type `kind`; None: they are vectors.
        """
        self.tables.append(f"{name}-{made_with[:16]}")
        table = ValueTable(self.index.uri(f"{self.tables[-1]}.lance"), kind)
        missing = table.missing(keys)
        self._total += len(keys)
        self._advance(len(keys) - len(missing))
        chunks = [missing[start : start + batch] for start in range(0, len(missing), batch)]
        batches = (([keys[i] for i in chunk], _picked(items, chunk)) for chunk in chunks)
        executor = self.config.executor
        try:
            if executor.name == "local" or not hasattr(work, "here"):
                for keys_of_batch, picked in batches:
                    table.add(keys_of_batch, work(picked))
                    self._advance(len(picked))
            elif chunks:
                write = Write(table.uri, kind, replace(work, here=None))  # type: ignore[type-var]
                for position, (written, usages) in make_executor(executor).map(write, list(batches)):
                    table.add_fragments(*written)
                    self._advance(len(chunks[position]))
                    for writer, usage in usages.items():
                        self.index.tasks.count(writer, usage)
        finally:
            table.close()
        return table, len(missing)

    def _advance(self, count: int) -> None:
        if self.name:
            self.index.progress(self.name, count, self._total)

    def written(
        self, name: str, made_with: Any, keys: Sequence[str], items: Sequence[Any], work: Any, batch: int
    ) -> tuple[list[Any], int]:
        """Return what `computed` does for values that are JSON data, of which `work` gives the texts."""
        table, new = self.computed(name, made_with, keys, items, work, batch, pa.large_string())
        return [None if value is None else json.loads(value) for value in table.take(keys).to_pylist()], new

    def asked(
        self,
        name: str,
        writer: str,
        made_with: Sequence[Any],
        keys: Sequence[str],
        tasks: Sequence[Any],
        encode: Callable[[Any], Any],
        batch: int = 64,
    ) -> tuple[list[Any], int]:
        """Return a writer's results, as JSON data by `encode`; `batch`: tasks at a time if the writer asks no model."""
        identity = digest([self.index.tasks.identity(writer), *made_with])
        work = Ask(self.config, writer, encode, self.index.tasks)
        return self.written(name, identity, keys, tasks, work, self.index.tasks.batch(writer, batch))

    def embed(self, strings: Sequence[str]) -> tuple[np.ndarray, int]:
        """Embed each distinct string once: (len(strings), dim) float32 rows, and how many were new."""
        if not len(strings):
            return np.zeros((0, 0), np.float32), 0
        keys = [text_key("", text) for text in strings]
        table, new = self.embedded("string-vectors", keys, strings)
        return table.vectors(keys), new

    def embedded(self, name: str, keys: Sequence[str], texts: Sequence[str | Passage]) -> tuple[ValueTable, int]:
        """Return the table `name` with the vectors of texts, or of passages, by their keys; and how many were new."""
        embedder = self.index.embedder
        made_with = hashlib.sha256(embedder.identity.encode()).hexdigest()
        return self.computed(name, made_with, keys, texts, Embed(self.config.embedder, embedder), embedder.block)


def _picked(items: Sequence[Any], positions: list[int]) -> list[Any]:
    first, last = positions[0], positions[-1] + 1
    if isinstance(items, Rows) and last - first == len(positions):
        return items[first:last]  # type: ignore[no-any-return]  # much faster than one by one
    return [items[i] for i in positions]
