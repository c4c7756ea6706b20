"""What is printed of the papers' tables: a table with its results, and the list of all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gnnrag.errors import GnnragError
from gnnrag.reports.papers import PaperTable, load_table
from gnnrag.reports.reproduction import OWN, survey
from gnnrag.reports.results import Result, cells, overlaps
from inference.tables import markdown_table, plain_table

WIDTH = 180
FOLDER = Path(__file__).resolve().parents[1] / "configs" / "papers"


def text(table: PaperTable, results: Sequence[Result], as_markdown: bool) -> str:
    """Return the results as a table, with what a reader should know below it."""
    headings = ["row", *(column.heading for column in table.columns)]
    rows = [[r.row.name, *(cells(r, column) for column in table.columns)] for r in results]
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
        found = sorted(place.rglob("*.yaml")) if place.is_dir() else [place]
        if not found:
            raise GnnragError(f"{place} holds no table of a paper, such as configs/papers/bdtr/table5.yaml")
        files += found
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
