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
    *("recall@2", "recall@5", "recall@10", "coverage", "batch_ms", "single_ms", "search_calls", "fallbacks"),
    *("index_mb", "build_seconds"),
)
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


def time_retriever(config: EvaluateConfig, root: Path, texts: Sequence[str], top_k: int = 200) -> dict[str, float]:
    """Return the milliseconds of a query, its embedding included: in one batch of all, and the median of one alone.

    Batch and single queries are asked of two retrievers, each opened and warmed up for the purpose, as embedder and
    roles keep their results. Replies of a language model come from the response cache where there is one.
    """
    queries = [Query(text, top_k=top_k) for text in texts]
    alone = asyncio.run(_time(config, root, [[query] for query in queries]))
    (batch,) = asyncio.run(_time(config, root, [queries]))
    return {
        "timing/batch_ms": round(1e3 * batch / len(texts), 3),
        "timing/single_ms": round(1e3 * statistics.median(alone), 3),
    }


async def _time(config: EvaluateConfig, root: Path, batches: Sequence[Sequence[Query]]) -> list[float]:
    pipeline = Pipeline(config, Index(root, config.index))
    retriever: Any = pipeline.loop.retrievers[None]
    seconds = []
    try:
        for batch in ([Query(_WARM_UP, top_k=batches[0][0].top_k)], *batches):
            started = time.perf_counter()
            if retriever.asks_roles:
                for query in batch:
                    await retriever.retrieve_for([query], Session(query.text))
            else:
                retriever.retrieve(batch)
            seconds.append(time.perf_counter() - started)
    finally:
        await pipeline.roles.close()
    return seconds[1:]
