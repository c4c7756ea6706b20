"""Reproduce a table or figure of a paper: run its rows and print them beside the published figures.

    gnnrag reproduce configs/papers/bdtr/table5.yaml [key=value ...] [verifier=RUN ...] [--only TEXT]
                                  [--dry-run] [--markdown | --json] [--plot FILE]
    gnnrag reproduce --dry-run [FILE or FOLDER ...] [key=value ...] [--markdown | --json]    # lists all

Without overrides the rows ask the paper's models; with roles=offline, or roles=oracle, no language model. Settings go
to every row: data.limit=50, index.root=FOLDER, run.root=FOLDER. Runs of a training go to the rows that ask that part:
gnn=RUN, verifier=RUN, thoughts=RUN, reader=RUN; no question meets a checkpoint that trained on it. --only runs the rows
whose names hold TEXT, which may be given again; --dry-run only checks every row, or lists several tables; --plot draws
the figure. The same command goes on where it stopped. A row that fails is shown with its error, and the exit code is 1.
Published figures stand in brackets.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gnnrag.cli.console import IndexProgress, note, split_arguments
from gnnrag.cli.tables import markdown_table, plain_table
from gnnrag.config import shipped
from gnnrag.errors import GnnragError
from gnnrag.metrics.replies import is_error
from gnnrag.reports.cross import split_trained
from gnnrag.reports.running import OURS, outline, run_table, survey
from gnnrag.reports.tables import Result, Row, Table, as_json, cells, draw, load_table, notes

WIDTH = 180
PLACES = ("run.", "data.path=", "index.path=", "index.root=", "llm_cache=", "concurrency=")  # change no figure


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--plot", type=Path)
    for flag in ("--dry-run", "--markdown", "--json"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_intermixed_args(arguments)
    form = "json" if options.json else "markdown" if options.markdown else ""
    trained, settings = split_trained(options.settings)
    named = [item for item in settings if "=" not in item]
    if options.dry_run and (len(named) != 1 or Path(named[0]).is_dir()):
        print(listed(named, [item for item in options.settings if "=" in item], form))
        return 0
    source, overrides = split_arguments(settings)
    if source is None:
        raise GnnragError("give a table, such as configs/papers/bdtr/table5.yaml; --dry-run alone lists them all")
    given = [*overrides, *(f"{name}={path}" for name, path in trained.items())]
    table = retitled(load_table(source, given), given)
    if options.plot and not table.plot:
        raise GnnragError(f"{source} is a table: there is nothing to draw")

    def chosen(row: Row) -> bool:
        return all(text.casefold() in row.name.casefold() for text in options.only)

    rows = [row for row in table.rows if chosen(row)]
    if not rows:
        raise GnnragError(f"--only {' --only '.join(options.only)}: no row has that in its name")
    if options.dry_run:
        print("\n".join(outline(table, rows, overrides)))
        return 0
    with Progress() as p:
        results = run_table(table, overrides, chosen, p.on_index, p.on_start, p.on_question, p.on_row, trained)
    print(shown(table, results, form))
    if options.plot:
        draw(table, results, options.plot)
        print(options.plot, file=sys.stderr)
    return has_problem(results)


def has_problem(results: Sequence[Result]) -> int:
    """Return the exit code: 1 where a row or a question failed, or a role replied badly too often."""
    return int(any((r.error and not r.row.missing) or r.failed or is_error(r.remarks) for r in results))


def retitled(table: Table, given: Sequence[str]) -> Table:
    """Return the table with a title that says what was set otherwise than its file has it, but for places."""
    items = [item for item in given if not item.startswith(PLACES)]
    return replace(table, title=f"{table.title} [here with {' '.join(items)}]") if items else table


def shown(table: Table, results: Sequence[Result], form: str = "") -> str:
    """Return the results as `json`, `markdown`, or for people, with what a reader should know below the table."""
    if form == "json":
        return as_json(table, results)
    headings, rows = cells(table, results)
    questions = max((r.questions for r in results), default=0)
    title = f"{table.title}: {questions} questions" if questions else table.title
    title += "; published figures in brackets" if table.paper else ""
    is_markdown = form == "markdown"
    lines = (
        [title, "", markdown_table(headings, rows), ""] if is_markdown else [plain_table(headings, rows, title, WIDTH)]
    )
    return "\n".join([*lines, *notes(table, results)])


def listed(places: Sequence[str], given: Sequence[str], form: str = "") -> str:
    """Return the tables and figures in files and folders, by default all that the papers have to reproduce.

    `form` is `markdown`, `json`, or for people. Raises GnnragError where a folder holds no table, or a file is none.
    """
    files: list[Path] = []
    for place in map(Path, places or [str(shipped("configs/papers"))]):
        tables = sorted(place.rglob("*.yaml")) if place.is_dir() else [place]
        if not tables:
            raise GnnragError(f"{place} holds no table of a paper, such as configs/papers/bdtr/table5.yaml")
        files += tables
    here = Path.cwd()
    rows = [survey(load_table(path, given), given) for path in files]
    for row in rows:
        path = row["file"].resolve()
        row["file"] = str(path.relative_to(here) if path.is_relative_to(here) else path)
    if form == "json":
        return json.dumps(rows, ensure_ascii=False, indent=2)
    headings = ["paper", "item", "file", "rows", "missing here"]
    texts = [[r["paper"], r["item"], r["file"], str(r["rows"]), "; ".join(r["missing"])] for r in rows]
    items = sum(r["item"] != OURS for r in rows)
    papers = len({r["paper"] for r in rows})
    title = f"{items} tables and figures of {papers} papers, {len(rows) - items} tables of ours"
    return markdown_table(headings, texts) if form == "markdown" else plain_table(headings, texts, title, WIDTH)


class Progress:
    """A bar for the index, one for the questions of a row, and a note for each row."""

    def __init__(self) -> None:
        self._index, self._bar = IndexProgress(), None

    def __enter__(self) -> Progress:
        self.on_index = self._index.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def on_start(self, row: Row, questions: int) -> None:
        self._close()
        if questions:
            bar: Any = tqdm(total=questions, unit=" questions", desc=row.name, file=sys.stderr, disable=None)
            self._bar = bar

    def on_question(self, _: object) -> None:
        if self._bar is not None:
            self._bar.update()

    def on_row(self, result: Result) -> None:
        self._close()
        note(f"{result.row.name}: {result.error or 'done'}")

    def _close(self) -> None:
        self._index.close()
        if self._bar is not None:
            self._bar.close()
        self._bar = None
