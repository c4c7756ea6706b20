"""Runs the rows of a paper's table, each an ordinary run directory, and puts them beside the published figures.

`evaluate` does the work: there is no second loop and no second metric. A row that was finished is only scored again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from gnnrag.absent import absent_from
from gnnrag.comparison import load_runs, overlap
from gnnrag.config import EvaluateConfig
from gnnrag.cross import Watch, cross_evaluate, read_part, swapped
from gnnrag.errors import ConfigError, described
from gnnrag.evaluation import check_metrics, load_questions_for
from gnnrag.index.build import Progress
from gnnrag.judge.folder import judged_figures
from gnnrag.papers import COLUMNS, Column, PaperTable, Row, row_config
from gnnrag.pipeline import check_fit, needed_stages
from gnnrag.plotting import blank_axes, write_figure
from gnnrag.registry import METHODS, resolve
from gnnrag.rundir import predicted_seconds, read_predictions, run_label, trained_note
from gnnrag.types import Prediction

Line = tuple[str, list[str], list[float], list[float]]
STEP = "sub-query"  # the axis of a figure that has a point for each sub-query
SIDES = {"semantic": "run/semantic_recall", "relational": "run/relational_recall"}
LABELLED = ("method", "retriever", "roles", "data.path", "index.root")  # not in a row's outline: its label says them
OUTLINED = 4  # of a row's own settings
TRIPLES = {"pairs": "run/pair_recall", "triples": "run/triple_recall"}  # of the graph side (`metrics.triples`)


@dataclass(frozen=True)
class Result:
    """What became of a row.

    Attributes:
        row: the row.
        label: method, retriever and roles that did it, and on which questions.
        values: by column; None where a run has no such figure.
        intervals: 95% intervals, by column.
        questions, failed: how many were asked, and how many of them ended with an error (they score zero).
        run: the run directory.
        error: why there is no result.
        trained_on: says it where these questions trained a part of the run: its figures are then no result.
        steps: evidence recall after each sub-query, by side (`metrics.rounds.by_step`).
        parts: the same by type or hops of the questions, where the table asks for it.
        counted: by judged column, how many of the questions its figure is of.
    """

    row: Row
    label: str = ""
    values: Mapping[str, float | None] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    questions: int = 0
    failed: int = 0
    run: str = ""
    error: str = ""
    trained_on: str = ""
    steps: Mapping[str, Sequence[float]] = field(default_factory=dict)
    parts: Sequence[Result] = ()
    counted: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether there are figures."""
        return bool(self.run) and not self.error


def resolved(table: PaperTable, row: Row, overrides: Sequence[str] = ()) -> EvaluateConfig:
    """Return the settings of a row, checked against its parts as far as that goes without data or index.

    Raises:
        ConfigError: a setting is unknown or out of range, or parts do not fit; the row is named.
    """
    config = row_config(table, row, overrides)
    try:
        return checked(config)
    except ConfigError as error:
        raise ConfigError(f"{table.path}: row {row.name!r}: {error}") from error


def checked(config: EvaluateConfig) -> EvaluateConfig:
    """Return the settings of a run. Raises ConfigError for what is wrong with them without looking at data or index."""
    check_metrics(config.metrics)
    check_fit(config)
    needed_stages(config)
    method = resolve("method", config.method.name, METHODS)
    getattr(method, "check_settings", lambda settings: None)(config.method.settings)
    return config


def outline(table: PaperTable, rows: Sequence[Row], overrides: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each row without running it: its parts, its data, and its own settings that not all rows have.

    Raises:
        ConfigError: a row's settings are wrong.
    """
    shared = set.intersection(*(set(row.settings) for row in table.rows)) if len(table.rows) > 1 else set()
    replaced = {*LABELLED, *(override.partition("=")[0] for override in overrides)}
    for row in rows:
        if row.missing:
            yield f"{row.name}: {row.missing}"
            continue
        config = resolved(table, row, overrides)
        own = [s for s in row.settings if s not in shared and s.partition("=")[0] not in replaced]
        about = [_label(config), *(s.replace('"', "") for s in own[:OUTLINED])]
        about += [f"and {len(own) - OUTLINED} more settings"] if len(own) > OUTLINED else []
        yield f"{row.name}: {', '.join(about)}"


def reproduce(
    table: PaperTable,
    overrides: Sequence[str] = (),
    chosen: Callable[[Row], bool] = lambda row: True,
    on_index: Progress = lambda stage, done, total: None,
    on_start: Callable[[Row, int], None] = lambda row, questions: None,
    on_question: Callable[[Prediction], None] = lambda prediction: None,
    on_row: Callable[[Result], None] = lambda result: None,
    trained: Mapping[str, Path] | None = None,
) -> list[Result]:
    """Run the rows of a table one after the other.

    Rows that cannot be run are results with the reason; one that fails is a result with its error.

    Args:
        table: see `papers.load_table`.
        overrides: dotted settings of all rows.
        chosen: which rows.
        on_index: told about the building of the index.
        on_start: told about each row and how many of its questions are left.
        on_question: told about each question.
        on_row: told each result as it is there.
        trained: training runs by part (`gnn`, or a role): they do it in every row, and no question is answered with a
            checkpoint that it shaped.

    Raises:
        ConfigError: before any work, where a row's settings are wrong.
    """
    rows = [row for row in table.rows if chosen(row)]
    configs = {row.name: resolved(table, row, overrides) for row in rows if not row.missing}
    results = []
    for row in rows:
        if row.missing:
            result = Result(row, error=f"cannot be run: {row.missing}")
        elif absent := absent_from(configs[row.name]):
            result = Result(replace(row, missing=absent), error=f"cannot be run: {absent}")
        else:
            try:
                config = configs[row.name]
                data = load_questions_for(config) if trained else None
                parts = [read_part(name, path, data) for name, path in (trained or {}).items() if data]
                watch = Watch(on_index, on_question, on_start=partial(on_start, row))
                run, metrics = cross_evaluate(config, parts, data, watch)
                result = measured(table, row, swapped(config, parts), run, metrics)
            except Exception as problem:  # noqa: BLE001 - one broken row must not cost the others theirs
                result = Result(row, _label(configs[row.name]), error=described(problem))
        results.append(result)
        on_row(result)
    return [part for result in results for part in (result, *result.parts)]


def _label(config: EvaluateConfig) -> str:
    return f"{run_label(config)} on {Path(config.data.path).name} {config.data.split}"


def measured(table: PaperTable, row: Row, config: EvaluateConfig, run: Path, metrics: Mapping[str, Any]) -> Result:
    """Return the figures of a finished run."""
    figures = {**metrics, **run_figures(run), **judged_figures(run)}
    steps: Mapping[str, Sequence[float]] = {}
    if any(column.key in SIDES.values() for column in table.columns):
        steps = metrics.get("by_step", {})
    for names, section in ((SIDES, "by_step"), (TRIPLES, "triples_by_step")):
        figures |= {names[one]: points[-1] for one, points in metrics.get(section, {}).items() if points}
    label = _label(config)
    asked, failed = metrics["questions"], metrics["failed"]
    parts = [
        Result(replace(row, name=f"{row.name}: {name}", published={}), label, _values(table, own), {}, own["count"])
        for name, own in (metrics.get(f"by_{table.by}", {}) if table.by else {}).items()
    ]
    intervals = {c.name: tuple(figures[key]) for c in table.columns if (key := f"{c.key}_ci") in figures}
    values = _values(table, figures)
    told = ("", trained_note(run))
    counted = {c.name: figures[key] for c in table.columns if (key := f"{c.key}_counted") in figures}
    return Result(row, label, values, intervals, asked, failed, str(run), *told, steps, parts, counted)  # type: ignore[arg-type]


def _values(table: PaperTable, figures: Mapping[str, Any]) -> dict[str, float | None]:
    return {column.name: figures.get(column.key) for column in table.columns}


def run_figures(run: Path) -> dict[str, float]:
    """Return what a run spent before its reader, per question, and the seconds that it took."""
    predictions = read_predictions(run)
    sums: dict[str, float] = defaultdict(float)
    for prediction in predictions:
        for role, used in prediction.usage.get("roles", {}).items():
            for name in ("calls", "prompt_tokens", "completion_tokens") if role != "reader" else ():
                sums[f"run/search_{name}"] += used.get(name, 0)
    names = ("run/search_calls", "run/search_prompt_tokens", "run/search_completion_tokens")
    return {name: round(sums[name] / len(predictions), 4) for name in names} | {"run/seconds": predicted_seconds(run)}


def overlaps(table: PaperTable, results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Return, for each group of rows that differ only as `table.overlap` says, who is right where."""
    if not table.overlap:
        return {}
    wanted = [next((r for r in results if r.row.name == name and r.is_done), None) for name in table.overlap["rows"]]
    if len(wanted) != 2 or None in wanted:
        return {}
    first, second = load_runs([Path(r.run) for r in wanted if r])
    column = COLUMNS[table.overlap.get("metric", "em")]
    shares = overlap(first, second, column.key, float(table.overlap.get("least", 1.0)))
    return {" and ".join(table.overlap["rows"]): shares}


def lines(table: PaperTable, results: Sequence[Result]) -> Iterator[Line]:
    """Yield the lines of a table's figure: name, labels of the swept axis, measured and published values (or NaN)."""
    axis, column = table.axes.index(table.plot["x"]), table.plot["y"]
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[" / ".join(label for i, label in enumerate(result.row.labels) if i != axis)].append(result)
    nan = float("nan")
    for name, members in groups.items():
        measured_ = [nan if (value := r.values.get(column)) is None else value for r in members]
        published = [r.row.published.get(column, nan) for r in members]
        yield name or column, [r.row.labels[axis] for r in members], measured_, published


def draw(table: PaperTable, results: Sequence[Result], path: Path) -> None:
    """Draw a table's figure: a column against an axis, what the paper published dashed.

    Raises:
        ConfigError: the table's file says nothing of a figure.
    """
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
    rows = [
        {
            **{
                f: getattr(r, f)
                for f in ("label", "values", "intervals", "questions", "failed", "run", "error", "trained_on", "steps")
            },
            "counted": r.counted,
            "name": r.row.name,
            "published": r.row.published,
        }
        for r in results
    ]
    about = {"title": table.title, "paper": table.paper, "used": table.used, "note": table.note}
    return json.dumps({**about, "rows": rows, "overlap": overlaps(table, results)}, ensure_ascii=False, indent=2)


def cells(result: Result, column: Column) -> str:
    """Return a figure as text: with its interval, `n=` if not all questions count, and the published one behind it."""
    value, published = result.values.get(column.name), result.row.published.get(column.name)
    text = "" if value is None else f"{value:.{column.digits}f}"
    if text and column.name in result.intervals:
        low, high = result.intervals[column.name]
        text += f" [{low:.{column.digits}f}, {high:.{column.digits}f}]"
    if text and (n := result.counted.get(column.name, result.questions)) != result.questions:
        text += f" n={n}"
    if published is not None:
        text = f"{text} ({published:.{column.digits}f})".strip()
    return text or "-"
