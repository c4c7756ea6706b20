"""Retrievers side by side on the same questions: a table with a row for each, its recall and index."""

from __future__ import annotations

from collections.abc import Sequence

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError
from gnnrag.parts import names
from gnnrag.reports.tables import Row, Table, column_of
from gnnrag.run.evaluate import check_fit

COLUMNS = (
    "recall@2", "recall@5", "recall@10", "coverage", "search_calls", "fallbacks", "index_mb", "build_seconds",
)  # fmt: skip


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
