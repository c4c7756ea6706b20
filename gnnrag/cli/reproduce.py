"""Reproduce a table or figure of a paper: run its rows and print them beside the published figures.

    gnnrag reproduce configs/papers/bdtr/table5.yaml [key=value ...] [verifier=RUN ...] [--only TEXT]
                                  [--finished] [--dry-run] [--markdown | --json] [--plot FILE]
    gnnrag reproduce --dry-run [FILE or FOLDER ...] [key=value ...] [--markdown | --json]    # lists all

Without overrides the rows ask the paper's models; with roles=offline, or roles=oracle, no language model. Settings go
to every row: data.limit=50, index.root=FOLDER, run.root=FOLDER. Runs of a training go to the rows that ask that part:
gnn=RUN, verifier=RUN, thoughts=RUN, reader=RUN; no question meets a checkpoint that trained on it. --only runs the rows
whose names hold TEXT, which may be given again; --finished answers nothing and shows rows whose run has not ended as
missing; --dry-run only checks every row, or lists several tables; --plot draws the figure. The same command goes on
where it stopped. A row that fails is shown with its error, and the exit code is 1. Published figures stand in brackets.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gnnrag.cli.console import IndexProgress, note, split_arguments
from gnnrag.cli.tables import markdown_table, plain_table
from gnnrag.cluster.grid import only_done, refuse_questions
from gnnrag.config import shipped
from gnnrag.errors import GnnragError
from gnnrag.metrics.replies import is_error
from gnnrag.reports.cross import split_trained
from gnnrag.reports.papers import PaperTable, Row, load_table
from gnnrag.reports.reproduction import OWN, outline, reproduce, survey
from gnnrag.reports.results import Result, as_json, cell, draw, overlaps

WIDTH = 180
FOLDER = shipped("configs/papers")
PLACES = ("run.", "data.path=", "index.path=", "index.root=", "llm_cache=", "concurrency=")  # change no figure


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--plot", type=Path)
    for flag in ("--finished", "--dry-run", "--markdown", "--json"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_intermixed_args(arguments)
    trained, settings = split_trained(options.settings)
    named = [item for item in settings if "=" not in item]
    if options.dry_run and (len(named) != 1 or Path(named[0]).is_dir()):
        form = "json" if options.json else "markdown" if options.markdown else ""
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
    if options.finished:  # what has failed in its own run stays as it is
        overrides = [*(o for o in overrides if not o.startswith("run.retry_failed=")), "run.retry_failed=false"]
        table = only_done(table, overrides, trained)
    with _Progress() as p:
        on_start = refuse_questions if options.finished else p.on_start
        listeners = (p.on_index, on_start, p.on_question, p.on_row)
        results = reproduce(table, overrides, chosen, *listeners, trained=trained)
    print(as_json(table, results) if options.json else text(table, results, options.markdown))
    if options.plot:
        draw(table, results, options.plot)
        print(options.plot, file=sys.stderr)
    return int(any((r.error and not r.row.missing) or r.failed or is_error(r.remarks) for r in results))


def retitled(table: PaperTable, given: Sequence[str]) -> PaperTable:
    """Return the table with a title that says what was set otherwise than its file has it, but for places."""
    shown = [item for item in given if not item.startswith(PLACES)]
    return replace(table, title=f"{table.title} [here with {' '.join(shown)}]") if shown else table


def text(table: PaperTable, results: Sequence[Result], as_markdown: bool) -> str:
    """Return the results as a table, with what a reader should know below it."""
    headings = ["row", *(column.heading for column in table.columns)]
    rows = [[r.row.name, *(cell(r, column) for column in table.columns)] for r in results]
    asked = "" if table.counts == "hierarchy" else f": {max((r.questions for r in results), default=0)} questions"
    title = f"{table.title}{asked}; published figures in brackets"
    out = (
        [f"{title}\n\n{markdown_table(headings, rows)}\n"]
        if as_markdown
        else [plain_table(headings, rows, title, WIDTH)]
    )
    out.append("The paper used " + "; ".join(f"{job}: {model}" for job, model in table.used.items()) + ".")
    if labels := dict.fromkeys(r.label for r in results if r.label):
        verb, what = ("Counted", "data") if table.counts else ("Run", "questions")
        out.append(f"{verb} here: {'; '.join(labels)}. The published figures are of the paper's own {what}.")
    else:
        out.append("Nothing was run.")
    for pair, shares in overlaps(table, results).items():
        out.append(f"{pair}: " + ", ".join(f"{name} {share:.1%}" for name, share in shares.items()))
    for r in results:
        out += [
            f"{r.row.name}, {side}, recall after each sub-query: {list(points)}" for side, points in r.steps.items()
        ]
    out += [f"{r.row.name}: {r.error}" for r in results if r.error]
    out += [f"{r.row.name}: {r.failed} of {r.questions} questions failed" for r in results if r.failed]
    out += [f"{r.row.name}: {r.trained_on}: no result" for r in results if r.trained_on]
    out += [f"{r.row.name}: {line}" for r in results for line in r.remarks]
    return "\n".join([*out, *([table.note.strip()] if table.note else [])])


def listed(places: Sequence[str], given: Sequence[str], form: str = "") -> str:
    """Return the tables and figures in files and folders, by default all that the papers have to reproduce.

    Args:
        places: files and folders.
        given: the caller's settings.
        form: `markdown`, `json`, or for people.

    Raises:
        GnnragError: a folder holds no table; or a file is none.
    """
    files: list[Path] = []
    for place in map(Path, places or [str(FOLDER)]):
        tables = sorted(place.rglob("*.yaml")) if place.is_dir() else [place]
        if not tables:
            raise GnnragError(f"{place} holds no table of a paper, such as configs/papers/bdtr/table5.yaml")
        files += tables
    rows = [survey(load_table(path, given), given) for path in files]
    if form == "json":
        return json.dumps([asdict(r) | {"file": _shown(r.file)} for r in rows], ensure_ascii=False, indent=2)
    headings = ["paper", "item", "file", "rows", "preset", "missing here"]
    cells = [[r.paper, r.item, _shown(r.file), str(r.rows), ", ".join(r.presets), "; ".join(r.missing)] for r in rows]
    items = sum(r.item != OWN for r in rows)
    title = f"{items} tables and figures of {len({r.paper for r in rows})} papers, {len(rows) - items} tables of ours"
    return markdown_table(headings, cells) if form == "markdown" else plain_table(headings, cells, title, WIDTH)


def _shown(path: Path) -> str:
    whole, here = path.resolve(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else path)


class _Progress:
    """A bar for the index, one for the questions of a row, and a note for each row."""

    def __init__(self) -> None:
        self._index, self._bar = IndexProgress(), None

    def __enter__(self) -> _Progress:
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
