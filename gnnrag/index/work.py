"""The expensive steps of an index as work for executors: embedding, analysis of texts, what a model writes.

`here` is the embedder or the tasks that the driver has opened; a worker in another process opens its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from gnnrag.graphs.hierarchy import text_row
from gnnrag.graphs.titles import names_of
from gnnrag.index.embedder import make_embedder
from gnnrag.index.tables import write_values
from gnnrag.index_config import EmbedderConfig, IndexConfig, TextConfig
from gnnrag.text.analyse import analyse
from gnnrag.types import Passage


@dataclass(frozen=True)
class Write:
    """Computes values of items by `work` and writes them as fragments of a table, which the driver commits.

    Takes (keys, items); returns the fragments with the type of their values, and what a model was asked for, by writer.
    """

    uri: str
    kind: pa.DataType | None
    work: Any

    @property
    def gpus(self) -> float:
        return getattr(self.work, "gpus", 0.0)

    def __call__(self, batch: tuple[Sequence[str], Sequence[Any]]) -> tuple[Any, dict[str, Counter[str]]]:
        keys, items = batch
        written = write_values(self.uri, keys, self.work(list(items)), self.kind)
        return written, self.work.spent() if isinstance(self.work, Ask) else {}


@dataclass(frozen=True)
class Embed:
    """Texts or passages to unit vectors (n, dim)."""

    config: EmbedderConfig
    here: Any = None
    gpus: float = 1.0

    @cached_property
    def _embedder(self) -> Any:
        return self.here or make_embedder(self.config)

    def __call__(self, texts: list[str | Passage]) -> np.ndarray:
        contents = [text if isinstance(text, str) else text.content for text in texts]
        return self._embedder.encode(contents)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Analyse:
    config: TextConfig
    here: Any = None

    def __call__(self, passages: list[Passage]) -> list[dict[str, Any]]:
        text = self.config
        rows = analyse(passages, text.language, text.phrase_rules, text.splitter)
        return [{**text_row(row), "names": names_of(p)} for row, p in zip(rows, passages, strict=True)]


@dataclass(frozen=True)
class Ask:
    """Tasks of a writer to its results as JSON texts.

    `encode` is picklable, and gives JSON data, or None for a failure.
    """

    config: IndexConfig
    writer: str
    encode: Callable[[Any], Any]
    here: Any = None

    @cached_property
    def tasks(self) -> Any:
        return self.here or index_tasks(self.config)

    def __call__(self, items: list[Any]) -> list[str | None]:
        rows = map(self.encode, self.tasks.run(self.writer, items))
        return [None if row is None else json.dumps(row) for row in rows]

    def spent(self) -> dict[str, Counter[str]]:
        """Return what was spent since the last call, by writer."""
        usage = dict(self.tasks.usage)
        self.tasks.usage.clear()
        return usage


def index_tasks(config: IndexConfig) -> Any:
    tasks = import_module("gnnrag.roles.writers.tasks")  # by name, so that the index does not depend on roles
    return tasks.IndexTasks(config)
