"""Results of a table: rows are run (`run_rows`), read by column (`read_result`), and shown as cells (`cell`)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from gnnrag.config import EvaluateConfig
from gnnrag.errors import ConfigError, described
from gnnrag.metrics.comparison import load_runs, overlap
from gnnrag.metrics.plotting import blank_axes, write_figure
from gnnrag.metrics.replies import remarks
from gnnrag.reports.papers import AVERAGE, COLUMNS, Column, PaperTable, Row
from gnnrag.run.rundir import trained_note

Line = tuple[str, list[str], list[float], list[float]]
STEP = "sub-query"  # the axis of a figure that has a point for each sub-query


@dataclass(frozen=True)
class Result:
    """The figures of a row by column (None: the run has none), with 95% intervals, or the `error` that it ended with.

    `failed` of the `questions` ended with an error (they score zero). `trained_on` says which parts these questions
    trained: the figures are then no result. `steps` is evidence recall after each sub-query, by side
    (`metrics.traces.by_step`); `parts` the figures by type or hops; `counted`, by judged column, of how many questions
    a figure is; `remarks` are those of `metrics.replies.remarks`.
    """

    row: Row
    label: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    questions: int = 0
    failed: int = 0
    run: str = ""
    error: str = ""
    trained_on: str = ""
    steps: Mapping[str, Sequence[float]] = field(default_factory=dict)
    parts: Sequence[Result] = ()
    counted: Mapping[str, int] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    @property
    def is_done(self) -> bool:
        """Whether there are figures."""
        return bool(self.run) and not self.error


def run_rows(
    rows: Iterable[Row],
    run: Callable[[Row], Result],
    label: Callable[[Row], str] = lambda row: "",
    on_row: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Run rows one after the other; one that fails is a result with its error, under its `label`."""
    results = []
    for row in rows:
        try:
            result = run(row)
        except Exception as problem:  # noqa: BLE001 - one broken row must not cost the others theirs
            result = Result(row, label(row), error=described(problem))
        results.append(result)
        on_row(result)
    return results


def read_result(
    row: Row,
    label: str,
    columns: Sequence[Column],
    config: EvaluateConfig,
    run: Path,
    metrics: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Result:
    """Return the figures of a finished run: its `metrics`, and `more` figures by the keys of columns."""
    figures = {**metrics, **more}
    return Result(
        row,
        label,
        values_of(columns, figures),
        {c.name: tuple(figures[key]) for c in columns if (key := f"{c.key}_ci") in figures},  # type: ignore[misc]
        metrics["questions"],
        metrics["failed"],
        str(run),
        trained_on=trained_note(run),
        counted={c.name: figures[key] for c in columns if (key := f"{c.key}_counted") in figures},
        remarks=tuple(remarks(metrics.get("replies", {}), config.run.warn_bad_replies, config.run.max_bad_replies)),
    )


def values_of(columns: Sequence[Column], figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figure of each column by its name, None where there is none."""
    return {column.name: figures.get(column.key) for column in columns}


def overlaps(table: PaperTable, results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Return, for each group of rows that differ only as `table.overlap` says, who is right where."""
    if not table.overlap:
        return {}
    done = {r.row.name: Path(r.run) for r in reversed(results) if r.is_done}
    names = table.overlap["rows"]
    if len(names) != 2 or not done.keys() >= {*names}:
        return {}
    first, second = load_runs([done[name] for name in names])
    column = COLUMNS[table.overlap.get("metric", "em")]
    shares = overlap(first, second, column.key, float(table.overlap.get("least", 1.0)))
    return {" and ".join(names): shares}


def averages(table: PaperTable, results: Sequence[Result]) -> Iterator[Result]:
    """Yield a table's last group: means over finished rows; a published average stands beside complete ones only."""
    for row in table.averages:
        axis = row.labels.index(AVERAGE)

        def around(row: Row, axis: int = axis) -> tuple[str, ...]:
            return row.labels[:axis] + row.labels[axis + 1 :]

        whole = sum(around(other) == around(row) for other in table.rows)
        of = [r for r in results if around(r.row) == around(row) and r.is_done and not r.trained_on]
        known = {c.name: [v for r in of if (v := r.values.get(c.name)) is not None] for c in table.columns}
        if of:
            published = row.published if len(of) == whole else {}
            own = replace(row, name=f"{row.name}, {len(of)} of {whole}", published=published)
            yield Result(own, values={name: fmean(v) if v else None for name, v in known.items()})


def lines(table: PaperTable, results: Sequence[Result]) -> Iterator[Line]:
    """Yield the lines of a table's figure: name, labels of the swept axis, measured and published values (or NaN)."""
    axis, column = table.axes.index(table.plot["x"]), table.plot["y"]
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[" / ".join(label for i, label in enumerate(result.row.labels) if i != axis)].append(result)
    nan = float("nan")
    for name, members in groups.items():
        here = [nan if (value := r.values.get(column)) is None else value for r in members]
        published = [r.row.published.get(column, nan) for r in members]
        yield name or column, [r.row.labels[axis] for r in members], here, published


def draw(table: PaperTable, results: Sequence[Result], path: Path) -> None:
    """Draw a table's figure, what the paper published dashed. Raises ConfigError where the file defines none."""
    if not table.plot:
        raise ConfigError(f"{table.path} is a table: it has no plot with x and y, so there is nothing to draw")
    figure, axes = blank_axes()
    ticks: dict[str, int] = {}
    for name, labels, here, there in _steps(results) if table.plot["x"] == STEP else lines(table, results):
        places = [ticks.setdefault(label, len(ticks)) for label in labels]
        (line,) = axes.plot(places, here, marker="o", markersize=4, label=name)
        if any(value == value for value in there):
            axes.plot(places, there, linestyle="--", color=line.get_color(), label=f"{name}, published")
    axes.set_xticks(list(ticks.values()), list(ticks))
    axes.set_xlabel(table.plot["x"])
    axes.set_ylabel(_heading(table, table.plot["y"]))
    axes.set_title(table.title, fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    write_figure(figure, path)


def _steps(results: Sequence[Result]) -> Iterator[Line]:
    for result in results:
        for side, points in result.steps.items():
            labels = [str(i) for i in range(1, len(points) + 1)]
            yield f"{result.row.name}, {side}", labels, list(points), [float("nan")] * len(points)


def _heading(table: PaperTable, name: str) -> str:
    return next(column.heading for column in table.columns if column.name == name)


def as_json(table: PaperTable, results: Sequence[Result]) -> str:
    """Return table and results as JSON."""
    plain = ("label", "values", "intervals", "questions", "failed", "run", "error", "trained_on", "steps", "counted")
    rows = [
        {name: getattr(r, name) for name in plain}
        | {"remarks": list(r.remarks), "name": r.row.name, "published": r.row.published}
        for r in results
    ]
    about = {"title": table.title, "paper": table.paper, "used": table.used, "note": table.note}
    return json.dumps({**about, "rows": rows, "overlap": overlaps(table, results)}, ensure_ascii=False, indent=2)


def cell(result: Result, column: Column) -> str:
    """Return a figure as text: with its interval, `n=` if not all questions count, and the published one behind it."""

    def shown(value: Any) -> str:
        return str(value) if column.is_text else f"{value:.{column.digits}f}"

    value, published = result.values.get(column.name), result.row.published.get(column.name)
    text = "" if value is None else shown(value)
    if text and column.name in result.intervals:
        low, high = result.intervals[column.name]
        text += f" [{low:.{column.digits}f}, {high:.{column.digits}f}]"
    if text and (n := result.counted.get(column.name, result.questions)) != result.questions:
        text += f" n={n}"
    if published is not None:
        text = f"{text} ({shown(published)})".strip()
    return text or "-"
