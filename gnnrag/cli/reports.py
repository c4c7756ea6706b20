"""Commands that compare runs and make tables of them: `compare`, `reproduce`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gnnrag.cli.console import AsJson, metrics_table, note, plain_table, progress_bar, split
from gnnrag.errors import GnnragError
from gnnrag.io import write_atomic
from gnnrag.metrics.comparison import differences, load_runs, main_metrics
from gnnrag.metrics.replies import is_error
from gnnrag.pages.comparison import build_model, render
from gnnrag.reports.cross import split_trained
from gnnrag.reports.running import outline, run_table
from gnnrag.reports.tables import Result, Table, cells, load_table, notes
from gnnrag.reports.tables import as_json as as_json_text

TESTS = {
    "mcnemar": "McNemar's exact test where every question scores 0 or 1",
    "paired bootstrap": "a paired bootstrap of the questions",
}


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN ...")],
    metric: Annotated[list[str], typer.Option(help="metric to test; may be given again")] = [],  # noqa: B006
    html: Annotated[Path | None, typer.Option(help="write a page: results, plots, every question's rounds")] = None,
    data: Annotated[str | None, typer.Option(help="with --html: the benchmark, where it is not at data.path")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs with the first one: a table, the significance of the differences, a page.

    Runs must have answered the same questions. --json also has the figures by type of question, hops, length and round.
    """
    loaded = load_runs(runs)
    metrics = metric or main_metrics(loaded)
    rows = differences(loaded, metrics)
    if html:
        write_atomic(html, render(build_model(runs, loaded, data)))
    if as_json:
        content = {"runs": {r.name: r.metrics for r in loaded}, "differences": rows}
        print(json.dumps(content, ensure_ascii=False, indent=2))
        return
    print(metrics_table([(r.name, r.metrics) for r in loaded]))
    if rows:
        lines = []
        for row in rows:
            low, high = row["interval"]
            p, floor = f"{row['p']:.4f}" if row["p"] >= 0.0001 else "<0.0001", row["p_floor"]  # floor 0: an exact test
            if floor and row["p"] <= floor:  # resampling could give no smaller one
                p = f"<= {floor:.2g}"
            gain = f"{row['difference']:+.4f}{' *' if row['p'] < 0.05 else ''}"
            counts = f"{row['better']} / {row['worse']} / {row['same']}"
            lines.append([row["run"], row["metric"], gain, f"[{low:+.4f}, {high:+.4f}]", p, counts])
        headings = ["run", "metric", "difference", "95% interval", "p", "better / worse / same"]
        print(plain_table(headings, lines, f"against {loaded[0].name}"))
        print(f"p: {', else '.join(TESTS[test] for test in TESTS if test in {r['test'] for r in rows})}; *: below 0.05")
    if html:
        print(f"{html} ({html.stat().st_size / 1e6:.1f} MB)")


def reproduce(
    settings: Annotated[
        list[str], typer.Argument(metavar="TABLE [key=value ...] [verifier=RUN ...]", default_factory=list)
    ],
    only: Annotated[
        list[str], typer.Option(help="rows whose names hold this, or one of several: bm25,chg; may be given again")
    ] = [],  # noqa: B006
    dry_run: Annotated[bool, typer.Option(help="only check every row")] = False,
    as_json: AsJson = False,
) -> int:
    """Reproduce a table or figure of a paper: run its rows and print them beside the published figures; or your own.

    \b
    gnnrag reproduce configs/papers/bdtr/table5.yaml roles=offline data.limit=50
    gnnrag reproduce configs/tables/retrievers.yaml roles=offline --only bm25,chg    retrievers side by side

    Without overrides the rows ask the paper's models. Runs of a training go to the rows that ask that part: gnn=RUN,
    verifier=RUN, thoughts=RUN, reader=RUN; no question meets a checkpoint that trained on it.
    """
    trained, others = split_trained(settings)
    source, overrides = split(others)
    if source is None:
        raise GnnragError("give a table, such as configs/papers/bdtr/table5.yaml; configs/papers/README.md lists them")
    changes = [*overrides, *(f"{name}={path}" for name, path in trained.items())]
    spec = retitled(load_table(source, changes), changes)
    asked = [text.casefold().split(",") for text in only]
    rows = [row for row in spec.rows if all(any(text in row.name.casefold() for text in texts) for texts in asked)]
    if not rows:
        raise GnnragError(f"--only {' --only '.join(only)}: no row has that in its name")
    if dry_run:
        print("\n".join(outline(spec, rows, overrides)))
        return 0
    with progress_bar() as advance:
        started: list[tuple[str, int]] = []  # name and number of questions of the rows so far
        results = run_table(
            spec,
            overrides,
            rows.__contains__,
            on_index=advance,
            on_start=lambda row, count: started.append((row.name, count)),
            on_question=lambda _: advance(started[-1][0], 1, started[-1][1]),
            on_row=lambda result: note(f"{result.row.name}: {result.error or 'done'}"),
            trained=trained,
        )
    print(as_json_text(spec, results) if as_json else shown(spec, results))
    return int(any((r.error and not r.row.missing) or r.failed or is_error(r.remarks) for r in results))


PLACES = ("run.", "data.path=", "index.path=", "index.root=", "llm_cache=", "concurrency=")  # change no figure


def retitled(spec: Table, changes: Sequence[str]) -> Table:
    """Return the table with the overrides in its title, except those that only name places."""
    items = [item for item in changes if not item.startswith(PLACES)]
    return replace(spec, title=f"{spec.title} [here with {' '.join(items)}]") if items else spec


def shown(spec: Table, results: Sequence[Result]) -> str:
    """Return the results for people, with what a reader should know below the table."""
    headings, rows = cells(spec, results)
    questions = max((r.questions for r in results), default=0)
    title = f"{spec.title}: {questions} questions" if questions else spec.title
    title += "; published figures in brackets" if spec.paper else ""
    return "\n".join([plain_table(headings, rows, title, width=180), *notes(spec, results)])
