"""Run every retriever on the questions of a config and print what each finds and costs.

    gnnrag table configs/evaluate/2wiki.yaml [key=value ...] [retrievers=a,b,c] [--markdown | --json]

Without `retrievers`, all that rank passages. One may carry settings after colons: retrievers=dense,lightrag:mode=local.
Recall is that of the method `single`; coverage, where there are no gold passages, is the share of the references'
content words in the first tokens retrieved (metrics.long.context_tokens). Milliseconds are of searching alone, the
embedding of the query included.
One that fails, or of whose roles one replies badly too often, is told below, and the exit code is 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gnnrag.cli.console import IndexProgress, note, split_arguments
from gnnrag.cli.tables import MOST_TYPES, NO_GOLD, markdown_table, plain_table
from gnnrag.metrics.replies import is_error
from gnnrag.reports.results import Result, cell
from gnnrag.reports.retrievers import RECALL_AT, fitting_retrievers, retriever_config, shown_columns, tabulate

FLAGS = ("--markdown", "--json")


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
        results = tabulate(
            source, overrides, labels, progress, lambda result: note(f"{result.row.name}: {result.error or 'done'}")
        )
    if "--json" in flags:
        print(json.dumps([as_data(result) for result in results], indent=2))
    else:
        print(markdown(results) if "--markdown" in flags else table(results))
    return int(any(result.error or result.failed or is_error(result.remarks) for result in results))


def as_data(result: Result) -> dict[str, Any]:
    """Return a row as JSON data."""
    values = result.values
    timing = {name: values[name] for name in ("open_seconds", "batch_ms", "single_ms")} if values else None
    return {
        "retriever": result.row.name,
        "error": result.error or None,
        "recall": {k: values[f"recall@{k}"] for k in RECALL_AT if values},
        "coverage": values.get("coverage"),
        "by_type": {part.label: {"questions": part.questions, **part.values} for part in result.parts},
        "intervals": {k: result.intervals[name] for k in RECALL_AT if (name := f"recall@{k}") in result.intervals},
        "questions": result.questions,
        "failed": result.failed,
        "timing": timing,
        "llm_calls": values.get("llm_calls", 0.0),
        "fallbacks": values.get("fallbacks", 0),
        "index_bytes": values.get("index_bytes", 0),
        "build_seconds": values.get("build_seconds", 0.0),
        "trained_on": result.trained_on,
        "remarks": result.remarks,
    }


def table(results: Sequence[Result]) -> str:
    """Return the rows for people, with one more table by type of question where there are several."""
    title = f"{max((result.questions for result in results), default=0)} questions, one retrieval each"
    (headings, rows), *by_type = _tables(results)
    return "\n".join([plain_table(headings, rows, title), *(plain_table(*one) for one in by_type), *_notes(results)])


def markdown(results: Sequence[Result]) -> str:
    """Return the rows as Markdown tables."""
    return "\n".join(["\n\n".join(markdown_table(*one) for one in _tables(results)), *_notes(results)])


def _tables(results: Sequence[Result]) -> list[tuple[list[str], list[list[str]]]]:
    """Return headings and rows of all questions, and by type: Recall@5, or else how much of the references is found."""
    columns = shown_columns(results)
    failed = ["failed", *[""] * (len(columns) - 1)]
    rows = [[r.row.name, *(failed if r.error else [cell(r, column) for column in columns])] for r in results]
    tables = [(["retriever", *(column.heading for column in columns)], rows)]
    split = [result for result in results if result.parts]
    main = next((c for c in columns if c.name in ("recall@5", "coverage")), None)
    if split and main and len(split[0].parts) <= MOST_TYPES:
        headings = [f"{main.heading} by type", *(f"{part.label} ({part.questions})" for part in split[0].parts)]
        tables.append((headings, [[r.row.name, *(cell(part, main) for part in r.parts)] for r in split]))
    return tables


def _notes(results: Sequence[Result]) -> list[str]:
    notes = [(r, r.error or (f"{r.failed} of {r.questions} questions failed" if r.failed else "")) for r in results]
    notes += [(r, r.trained_on) for r in results]
    notes += [(r, line) for r in results for line in r.remarks]
    lacks = [r for r in results if r.is_done and r.values.get("recall@5") is None]
    return [f"{r.row.name}: {text}" for r, text in notes if text] + [NO_GOLD] * bool(lacks)
