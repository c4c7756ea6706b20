"""Run every retriever on the questions of a config and print what each finds and costs.

    python inference/table.py configs/evaluate/2wiki.yaml [key=value ...] [retrievers=a,b,c] [--markdown | --json]

Without `retrievers`, all that rank passages. One may carry settings after colons: retrievers=dense,lightrag:mode=local.
Recall is that of the method `single`; milliseconds are of searching alone, the embedding of the query included.
One that fails, or of whose roles one replies badly too often, is told below, and the exit code is 1.
"""

from __future__ import annotations

from inference.start import start

if __name__ == "__main__":
    start("inference.table")

import json
from collections.abc import Sequence
from dataclasses import asdict

from gnnrag.metrics.replies import is_error
from gnnrag.metrics.statistics import with_interval
from gnnrag.reports.retrievers import RECALL_AT, RetrieverRow, fitting_retrievers, retriever_config, tabulate
from inference.console import IndexProgress, note, split_arguments
from inference.tables import markdown_table, plain_table

FLAGS = ("--markdown", "--json")
HEADINGS = (
    "retriever",
    *(f"Recall@{k}" for k in RECALL_AT),
    "ms/query, batch",
    "ms/query, alone",
    "LLM calls",
    "fallbacks",
    "index MB",
    "build s",
)


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    flags = set(FLAGS) & set(arguments)
    chosen = [a.removeprefix("retrievers=") for a in arguments if a.startswith("retrievers=")]
    rest = [a for a in arguments if a not in flags and not a.startswith("retrievers=")]
    source, overrides = split_arguments(rest, FLAGS)
    labels = [label for part in chosen for label in part.split(",") if label] or fitting_retrievers()
    for label in labels:
        retriever_config(source, overrides, label)  # a misspelt setting is refused before any work
    with IndexProgress() as progress:
        rows = tabulate(
            source, overrides, labels, progress, lambda row: note(f"{row.retriever}: {row.error or 'done'}")
        )
    if "--json" in flags:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print(markdown(rows) if "--markdown" in flags else table(rows))
    return int(any(row.error or row.failed or is_error(row.remarks) for row in rows))


def table(rows: Sequence[RetrieverRow]) -> str:
    """Return the rows for people."""
    title = f"{max((row.questions for row in rows), default=0)} questions, one retrieval each"
    return "\n".join([plain_table(HEADINGS, [_cells(row) for row in rows], title), *_errors(rows)])


def markdown(rows: Sequence[RetrieverRow]) -> str:
    """Return the rows as a Markdown table."""
    return "\n".join([markdown_table(HEADINGS, [_cells(row) for row in rows]), *_errors(rows)])


def _cells(row: RetrieverRow) -> list[str]:
    if row.error or row.timing is None:
        return [row.retriever, "failed", *[""] * (len(HEADINGS) - 2)]
    cells = [row.retriever, *(with_interval(row.recall[k], row.intervals.get(k)) for k in RECALL_AT)]
    cells += [f"{row.timing.batch_ms:.1f}", f"{row.timing.single_ms:.1f}", f"{row.llm_calls:.1f}"]
    return [*cells, str(row.fallbacks), f"{row.index_bytes / 1e6:.1f}", f"{row.build_seconds:.1f}"]


def _errors(rows: Sequence[RetrieverRow]) -> list[str]:
    told = [(row.retriever, row.error or (f"{row.failed} of {row.questions} questions failed" if row.failed else ""))
            for row in rows]  # fmt: skip
    told += [(row.retriever, row.trained_on) for row in rows]
    told += [(row.retriever, line) for row in rows for line in row.remarks]
    return [f"{name}: {error}" for name, error in told if error]
