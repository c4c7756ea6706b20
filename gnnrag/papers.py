"""Tables and figures of the papers as files: `configs/papers/PAPER/TABLE.yaml` says what is run for each row.

A file holds `base` (settings as in `configs/evaluate`), `models` (settings that choose the paper's models), and rows:
named ones (`rows`), a `grid` of axes, or both. A row is a name for dotted settings:

    rows: {DTR: {method: bdtr, method.bgec: false}, none: {method: single}}
    grid: {method.max_rounds: [0, 1, 2]}                      # an axis of values of one setting
          {k: [10, 20]}                                       # or of what "{k}" stands for in the rows
          {retriever: {BM25: {retriever: bm25}, ...}}         # or of named settings, as in `rows`

Settings apply in this order: base, models, axes in the order of the file, rows, the caller's. `{missing: WHY}` marks
what cannot be run because a part is not here; with `unless: gnn`, only while the caller gives no setting of `gnn`.
`used` tells what the paper used, job by job.

With `average: AXIS` the group `average` stands last: means over the labels of that axis. `counts` (see `COUNTS`) says
that no question is asked: the rows' data are counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gnnrag.columns import Column, column_of
from gnnrag.config import EvaluateConfig, load_config, read_yaml
from gnnrag.errors import ConfigError, nearest
from gnnrag.records import MISSHAPEN, in_short

KEYS = (
    *("title", "paper", "used", "base", "models", "grid", "rows", "columns", "by", "published", "plot", "overlap"),
    *("average", "counts", "note"),
)
REQUIRED = ("title", "paper", "used", "base", "columns")
SEPARATOR = " / "
AVERAGE = "average"
COUNTS = {"hierarchy": "the graph of the corpus", "questions": "corpus and questions"}  # `gnnrag.counting` does it
_SETTINGS = {f.name for f in fields(EvaluateConfig)}


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        name: its labels joined.
        labels: one for each axis, then that of `rows`.
        settings: dotted overrides in order.
        missing: why it cannot be run; empty where it can.
        published: the paper's figures, by column; shares are of one.
    """

    name: str
    labels: tuple[str, ...]
    settings: tuple[str, ...]
    missing: str = ""
    published: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper; see the module for what its file holds.

    Attributes:
        path: its file.
        title, paper: what it reproduces.
        used: the paper's models, by job.
        base: settings of every row, nested.
        models: dotted settings that choose such models.
        axes: names of the axes, the one of `rows` last.
        rows: in the order in which they run.
        columns: what is shown.
        by: split each row by `type` or `hops` of the questions; empty does not.
        plot: `x` (an axis) and `y` (a column) of the figure; empty where it is a table.
        overlap: `rows` (two), `metric` and `least`: which questions both, one or neither get right.
        note: what a reader of the figures should know.
        averages: rows of the last group, whose label is `average` on one axis.
        counts: what is counted instead of run, one of `COUNTS`; empty where questions are asked.
    """

    path: Path
    title: str
    paper: str
    used: Mapping[str, str]
    base: Mapping[str, Any]
    models: tuple[str, ...]
    axes: tuple[str, ...]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    by: str = ""
    plot: Mapping[str, str] = field(default_factory=dict)
    overlap: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    averages: tuple[Row, ...] = ()
    counts: str = ""


def load_table(path: str | Path, given: Sequence[str] = ()) -> PaperTable:
    """Read a table's file.

    Args:
        path: the file.
        given: the caller's settings, `key=value`: what is missing unless one of them is given is then there.

    Raises:
        ConfigError: there is no such file, or a key, a column, an axis or a published row that does not exist.
    """
    raw: Any = OmegaConf.to_container(read_yaml(path, "configs/papers/bdtr/table5.yaml"))
    try:
        return _table(path, raw, given)
    except MISSHAPEN as error:
        raise ConfigError(f"{path}: is not of the form of a table ({in_short(error)}); see gnnrag/papers.py") from error


def _table(path: str | Path, raw: Any, given: Sequence[str]) -> PaperTable:
    _only(path, "", raw, KEYS)
    if absent := [key for key in REQUIRED if not raw.get(key)]:
        raise ConfigError(f"{path}: {', '.join(absent)} must be given")
    axes = {str(name): _axis(path, str(name), values) for name, values in (raw.get("grid") or {}).items()}
    if raw.get("rows"):
        axes["row"] = _axis(path, "rows", raw["rows"])
    if not axes:
        raise ConfigError(f"{path}: there are no rows; give rows, grid or both")
    published = _published(path, raw.get("published") or {})
    rows = tuple(_row(choice, published, given) for choice in product(*(axis.items() for axis in axes.values())))
    averages = tuple(_averages(path, raw.get("average"), axes, published))
    names = [row.name for row in (*rows, *averages)]
    for name in published:
        if name not in names:
            raise ConfigError(f"{path}: published row {name!r} is no row of the table. {nearest(name, names)}")
    plot, overlap = raw.get("plot") or {}, raw.get("overlap") or {}
    _only(path, "plot", plot, ("x", "y"))
    _only(path, "overlap", overlap, ("rows", "metric", "least"))
    for where, name, known in (
        ("plot.x", plot.get("x"), [*axes, "sub-query"]),
        ("plot.y", plot.get("y"), raw["columns"]),
        *(("overlap.rows", name, names) for name in overlap.get("rows", ())),
    ):
        if (plot if where.startswith("plot") else overlap) and name not in known:
            raise ConfigError(f"{path}: {where}={name!r} is unknown. {nearest(str(name), map(str, known))}")
    if (by := raw.get("by") or "") not in ("", "type", "hops"):
        raise ConfigError(f"{path}: by={by!r}: allowed are type, hops")
    if (counts := raw.get("counts") or "") not in ("", *COUNTS):
        raise ConfigError(f"{path}: counts={counts!r}: allowed are {', '.join(COUNTS)}")
    used = {str(job): str(model) for job, model in raw["used"].items()}
    columns = tuple(column_of(path, name) for name in raw["columns"])
    models, note = dots(raw.get("models") or {}), raw.get("note") or ""
    return PaperTable(Path(path), raw["title"], raw["paper"], used, raw["base"], models, tuple(axes), rows, columns,
                      by, plot, overlap, note, averages, counts)  # fmt: skip


def _averages(
    path: str | Path, over: str | None, axes: Mapping[str, Any], published: Mapping[str, Mapping[str, Any]]
) -> Iterable[Row]:
    """Yield the rows of the group that averages over an axis."""
    if over is None:
        return
    if over not in axes:
        raise ConfigError(f"{path}: average={over!r} is no axis. {nearest(str(over), axes)}")
    for labels in product(*((AVERAGE,) if name == over else axis for name, axis in axes.items())):
        yield Row(name := SEPARATOR.join(labels), labels, (), published=published.get(name, {}))


def row_config(table: PaperTable, row: Row, overrides: Sequence[str] = ()) -> EvaluateConfig:
    """Return the settings of a row; it gets a run directory of its own.

    Args:
        table: the table.
        row: one of its rows.
        overrides: dotted settings that go before all others. `roles=offline` also leaves out what the table says of
            models.

    Raises:
        ConfigError: a setting is unknown or has the wrong type; the row is named. Or a name is given for the run.
    """
    if named := [o for o in overrides if o.partition("=")[0] == "run.name" and o.partition("=")[2] != "null"]:
        raise ConfigError(f"{named[0]}: each row is a run, named by its settings; its place is run.root=FOLDER")
    models = table.models if are_prompted(overrides) else ()
    own = ["run.root=runs/papers", *models, *row.settings, *overrides, "run.name=null"]
    try:
        config = load_config(EvaluateConfig, table.base, own)
    except ConfigError as error:
        raise ConfigError(f"{table.path}: row {row.name!r}: {error}") from error
    if any(column.key == "run/seconds" for column in table.columns):
        # Concurrency changes no prediction, and so not the run's name, but it is what such a table compares.
        config.run.root = str(Path(config.run.root) / f"concurrency-{config.concurrency}")
    wanted = {int(c.key.rpartition("@")[2]) for c in table.columns if "@" in c.key}
    config.metrics.ks = sorted({*config.metrics.ks, *wanted})
    return config


def dots(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return settings as dotted overrides, in order; strings are quoted, for `off` alone would be read as false."""
    return tuple(f"{key}={json.dumps(value)}" for key, value in settings.items())


def are_prompted(overrides: Sequence[str]) -> bool:
    """Tell whether the caller's settings leave the roles to language models."""
    chosen = [o.partition("=")[2] for o in overrides if o.partition("=")[0] in ("roles", "roles.default")]
    return not chosen or chosen[-1] == "prompted"


def _axis(path: str | Path, name: str, values: Any) -> dict[str, Mapping[str, Any]]:
    """Return the settings of each label of an axis."""
    if isinstance(values, list) and values:
        return {_label(value): {name: value} for value in values}
    if not isinstance(values, dict) or not values or not all(isinstance(v, dict) for v in values.values()):
        raise ConfigError(f"{path}: {name}={values!r}: give a list of values, or a section of NAME: {{setting: value}}")
    return {str(label): settings for label, settings in values.items()}


def _label(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _row(
    choice: Iterable[tuple[str, Mapping[str, Any]]],
    published: Mapping[str, Mapping[str, float]],
    given: Sequence[str],
) -> Row:
    labels: list[str] = []
    settings: dict[str, Any] = {}
    missing: list[str] = []
    for label, own in choice:
        labels.append(label)
        part = own.get("unless")
        is_given = any(setting.startswith((f"{part}.", f"{part}=")) for setting in given)
        missing += [str(own["missing"])] if "missing" in own and not is_given else []
        # What is set again moves to the end, so that a part's own settings still come after its name.
        for key, value in own.items():
            settings.pop(key, None)
            settings[key] = value
    for key in ("missing", "unless"):
        settings.pop(key, None)
    variables = {key: settings.pop(key) for key in list(settings) if "." not in key and key not in _SETTINGS}
    settings = {key: variables.get(_variable(value), value) for key, value in settings.items()}
    name = SEPARATOR.join(labels)
    return Row(name, tuple(labels), dots(settings), "; ".join(missing), published.get(name, {}))


def _variable(value: Any) -> str:
    """Return which axis a value stands for: `{k}` is that of the axis k."""
    return value[1:-1] if isinstance(value, str) and value[:1] == "{" and value[-1:] == "}" else ""


def _published(path: str | Path, raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    _only(path, "published", raw, ("scale", "metrics", "rows"))
    columns = [column_of(path, name) for name in raw.get("metrics", ())]
    scale = float(raw.get("scale", 1))
    found = {}
    for name, values in _leaves(raw.get("rows", {})):
        if len(values) != len(columns):
            raise ConfigError(f"{path}: published row {name!r} has {len(values)} figures for {len(columns)} metrics")
        given = [(c, str(v) if c.is_text else float(v)) for c, v in zip(columns, values, strict=True) if v is not None]
        found[name] = {c.name: value / scale if c.is_share else value for c, value in given}  # type: ignore[operator]
    return found


def _leaves(rows: Mapping[Any, Any], before: tuple[str, ...] = ()) -> Iterable[tuple[str, list[Any]]]:
    for label, value in rows.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*before, str(label)))
        else:
            yield SEPARATOR.join((*before, str(label))), value


def _only(path: str | Path, where: str, values: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for key in values:
        if key not in allowed:
            dotted = f"{where}.{key}" if where else str(key)
            raise ConfigError(f"{path}: unknown key {dotted!r}. {nearest(str(key), allowed)}")
