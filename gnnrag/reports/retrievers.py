"""Retrievers side by side on the same questions: a table with a row for each, its recall, time and index."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.parts import names
from gnnrag.reports.tables import Row, Table, column_of
from gnnrag.run.evaluate import Pipeline, check_fit
from gnnrag.session import Session
from gnnrag.types import Query

COLUMNS = (
    "recall@2", "recall@5", "recall@10", "coverage", "query_ms", "search_calls", "fallbacks", "index_mb",
    "build_seconds",
)  # fmt: skip
_WARM_UP = "Which question pays for loading a model?"


def retriever_table(source: str | None, labels: Sequence[str]) -> Table:
    """Return a table with a row for each retriever, by the settings of the file `source` and the method `single`.

    A label may carry settings of its retriever: `lightrag:mode=local`.
    """
    rows = []
    for label in labels:
        name, *settings = label.split(":")
        own = ("method=single", f"retriever={name}", *(f"retriever.{setting}" for setting in settings))
        rows.append(Row(label, (label,), own))
    return Table("one retrieval for each question", source, tuple(rows), tuple(map(column_of, COLUMNS)))


def fitting_retrievers() -> list[str]:
    """Return the retrievers that rank passages, in the registry's order."""
    fitting = []
    for name in names("retriever"):
        try:
            check_fit(load_config(EvaluateConfig, None, [f"retriever={name}", "method=single"]))
        except ConfigError:
            continue
        fitting.append(name)
    return fitting


def time_retriever(config: EvaluateConfig, root: Path | str, texts: Sequence[str], top_k: int = 200) -> float:
    """Return the median milliseconds of a query alone, its embedding included, on a warm retriever.

    Replies of a language model come from the response cache where there is one.
    """
    return round(1e3 * statistics.median(asyncio.run(_seconds(config, root, texts, top_k))), 3)


async def _seconds(config: EvaluateConfig, root: Path | str, texts: Sequence[str], top_k: int) -> list[float]:
    pipeline = Pipeline(config, Index(root, config.index))
    retriever: Any = pipeline.loop.retrievers[None]
    seconds = []
    try:
        for text in (_WARM_UP, *texts):
            query, started = Query(text, top_k=top_k), time.perf_counter()
            if retriever.asks_roles:
                await retriever.retrieve_for([query], Session(text))
            else:
                retriever.retrieve([query])
            seconds.append(time.perf_counter() - started)
    finally:
        await pipeline.roles.close()
    return seconds[1:]
