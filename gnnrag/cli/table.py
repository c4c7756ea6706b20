"""Run every retriever on the questions of a config and print what each finds and costs.

    gnnrag table configs/evaluate/2wiki.yaml [key=value ...] [retrievers=a,b,c] [--markdown | --json]

Without `retrievers`, all that rank passages. One may carry settings after colons: retrievers=dense,lightrag:mode=local.
Recall is that of the method `single`; coverage, where there are no gold passages, is the share of the references'
content words in the first tokens retrieved (metrics.long.context_tokens). Milliseconds are of searching alone, the
embedding of the query included.
One that fails, or of whose roles one replies badly too often, is named below, and the exit code is 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnnrag.cli.console import split_arguments
from gnnrag.cli.reproduce import Progress, has_problem, shown
from gnnrag.reports.retrievers import fitting_retrievers, retriever_table
from gnnrag.reports.running import run_table

FORMS = {"--markdown": "markdown", "--json": "json"}


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    form = next((FORMS[a] for a in arguments if a in FORMS), "")
    chosen = [a.removeprefix("retrievers=") for a in arguments if a.startswith("retrievers=")]
    rest = [a for a in arguments if a not in FORMS and not a.startswith("retrievers=")]
    source, overrides = split_arguments(rest, list(FORMS))
    labels = [label for part in chosen for label in part.split(",") if label] or fitting_retrievers()
    table = retriever_table(source, labels)
    with Progress() as p:
        results = run_table(table, overrides, on_index=p.on_index, on_question=p.on_question, on_row=p.on_row)
    print(shown(table, results, form))
    return has_problem(results)
