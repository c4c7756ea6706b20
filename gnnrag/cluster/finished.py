"""Which rows of a table have a run that is scored: a job that only prints the table leaves the others alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gnnrag.cluster.state import Runs, is_scored
from gnnrag.cluster.wanted import evaluation_of, target_of
from gnnrag.errors import GnnragError
from gnnrag.reports.inputs import absent_from
from gnnrag.reports.papers import PaperTable, Row
from gnnrag.reports.reproduction import resolved

UNFINISHED = "its run has not ended, and --finished starts none"


def only_finished(table: PaperTable, overrides: Sequence[str], trained: Collection[str] = ()) -> PaperTable:
    """Return the table with the rows as missing whose run is not there, or not scored.

    Args:
        table: see `papers.load_table`.
        overrides: dotted settings of all rows.
        trained: parts that training runs do.

    Raises:
        ConfigError: a row's settings are wrong.
        GnnragError: with trained parts a row is several runs, which are not looked for.
    """
    if trained:
        raise GnnragError(f"--finished shows no runs of trained parts ({', '.join(trained)}=RUN); leave it out")
    known: dict[str, Runs] = {}

    def looked_at(row: Row) -> Row:
        if row.missing or absent_from(config := resolved(table, row, overrides)):
            return row
        target = target_of(evaluation_of(config, row.name))
        run = known.setdefault(target.path, Runs(target.path)).find(target)
        return row if run and is_scored(run) else replace(row, missing=UNFINISHED)

    return replace(table, rows=tuple(looked_at(row) for row in table.rows))


def refuse_questions(row: Row, left: int) -> None:
    """Raise GnnragError where questions of a row are left: prompts have changed since, or it asks more of them."""
    if left:
        raise GnnragError(f"{left} questions have no answer yet, and --finished asks none")
