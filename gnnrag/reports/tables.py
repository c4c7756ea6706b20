"""Tables as files: the rows of `configs/papers/PAPER/TABLE.yaml` are settings, its columns figures of their runs.

A file holds `base` (settings as in `configs/evaluate`), `models` (settings that choose the paper's models), and rows:
named ones (`rows`), a `grid` of axes, or both. A row is a name for dotted settings:

    rows: {DTR: {method: bdtr, method.use_bgec: false}, none: {method: single}}
    grid: {method.max_rounds: [0, 1, 2]}                      # an axis: the values of one setting
          {k: [10, 20]}                                       # or of what "{k}" stands for in the rows
          {retriever: {BM25: {retriever: bm25}, ...}}         # or named settings, as in `rows`

Order of application: base, models, axes in the order of the file, rows, the caller's settings. `{missing: WHY}` marks
a row that cannot be run; with `unless: gnn`, only while the caller gives no setting of `gnn`. `follows: WHAT` names the
release or the equations that a row follows; that of the table, those of its axes and its own are joined. `used` names
the paper's models, job by job. `published` holds the paper's figures. `by: type` or `by: hops` splits each row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from gnnrag.config import EvaluateConfig, load_config, read_yaml
from gnnrag.errors import ConfigError, nearest
from gnnrag.judge import CRITERIA, DIMENSIONS
from gnnrag.metrics.long_answers import COVERAGE

KEYS = (
    "title", "paper", "used", "follows", "base", "models", "grid", "rows", "columns", "by", "published",
    "note",
)  # fmt: skip
REQUIRED = ("title", "base", "columns")
SEPARATOR = " / "
ROOT = "runs/papers"
_AT_K = re.compile(r"(recall|all)@([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a row: its heading, its key among the figures of a run, its digits."""

    name: str
    heading: str
    key: str
    digits: int = 3

    @property
    def is_share(self) -> bool:
        """Whether it is a share of one, which papers print as a percentage."""
        return self.key.startswith(("retrieval/", "answer/", "text/"))


COLUMNS = {
    column.name: column
    for column in (
        Column("em", "EM", "answer/em"),
        Column("f1", "F1", "answer/f1"),
        Column("sub_em", "SubEM", "answer/sub_em"),
        Column("sub_em_tok", "SubEM, whole words", "answer/sub_em_tok"),
        *(
            Column(f"{kind}_{name}{ending}", f"node {word}{passages}{says}", f"retrieval/{kind}_{name}{ending}")
            for ending, says in (("", ""), ("_with_anchor", ", the start in the gold"))
            for kind, passages in (("node", ""), ("resolved", ", passages resolved"))
            for name, word in (("recall", "recall"), ("precision", "precision"), ("f1", "F1"))
        ),
        Column("resolved_nodes", "nodes, passages resolved", "context/nodes", 1),
        Column("coverage", "coverage", COVERAGE),  # of the references, where there is no gold
        Column("context_size", "passages read", "context/size", 1),
        Column("retriever_calls", "retriever calls", "cost/retriever_calls", 1),
        Column("fallbacks", "queries that fell back", "run/fallbacks"),
        Column("llm_calls", "LLM calls", "cost/llm_calls", 1),
        Column("prompt_tokens", "prompt tokens", "cost/prompt_tokens", 0),
        Column("search_calls", "LLM calls before the reader", "run/search_calls", 1),
        Column("search_prompt_tokens", "prompt tokens before the reader", "run/search_prompt_tokens", 0),
        Column("search_completion_tokens", "reply tokens before the reader", "run/search_completion_tokens", 0),
        Column("seconds", "s/question", "cost/seconds_per_question", 2),
        Column("run_seconds", "s/run", "run/seconds", 0),
        Column("semantic_recall", "evidence recall, text side", "step/semantic"),
        Column("relational_recall", "evidence recall, graph side", "step/relational"),
        # Of the artefacts that the row reads, cached replies counted: per corpus, not per question.
        Column("index_mb", "index MB", "index/mb", 1),
        Column("build_seconds", "build s", "index/seconds", 1),
        Column("index_prompt_tokens", "prompt tokens of the index", "index/prompt_tokens", 0),
        Column("index_completion_tokens", "reply tokens of the index", "index/completion_tokens", 0),
        Column("a_score", "A-Score", "judge/a_score", 2),
        Column("e_score", "E-Score", "judge/e_score", 2),
        *(Column(name, name.replace("_", " "), f"judge/{name}", 2) for name in CRITERIA),
        Column("win_rate", "win rate", "judge/win_rate", 0),
        *(Column(f"win_{name}", f"win rate, {name}", f"judge/win_{name}", 0) for name in DIMENSIONS[:-1]),
    )
}


def column_of(name: str) -> Column:
    """Return a column by name; `recall@K` and `all@K` are there for every K. Raises ConfigError where there is none."""
    if match := _AT_K.fullmatch(name):
        return Column(name, f"{match[1].capitalize()}@{match[2]}", f"retrieval/{name}")
    if name not in COLUMNS:
        raise ConfigError(f"column {name!r} is unknown. {nearest(name, [*COLUMNS, 'recall@5', 'all@5'])}")
    return COLUMNS[name]


@dataclass(frozen=True)
class Row:
    name: str
    settings: tuple[str, ...]  # dotted, in order
    missing: str = ""  # why it cannot be run
    follows: str = ""  # the release or the equations that its settings follow
    published: Mapping[str, Any] = field(default_factory=dict)  # the paper's figures by column, shares of one


@dataclass(frozen=True)
class Table:
    """A table or figure; see the module for its file."""

    title: str
    base: Mapping[str, Any]  # settings of all rows
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    path: Path
    paper: str = ""  # none: a table of one's own
    used: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    by: str = ""
    note: str = ""


def load_table(path: str | Path, given: Sequence[str] = ()) -> Table:
    """Read a table's file; a row missing `unless` a setting is given can be run if `given` has such a setting.

    Raises ConfigError for a file, key, column, axis or published row that does not exist.
    """
    raw: Any = read_yaml(path, "configs/papers/bdtr/table5.yaml")
    try:
        return _table(Path(path), raw, given)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: has not the form of a table ({error}); see gnnrag/reports/tables.py") from error


def _table(path: Path, raw: Any, given: Sequence[str]) -> Table:
    _check("key", raw, KEYS)
    if absent := [key for key in REQUIRED if not raw.get(key)]:
        raise ConfigError(f"{', '.join(absent)} must be given")
    axes = {str(name): _axis(str(name), values) for name, values in (raw.get("grid") or {}).items()}
    if raw.get("rows"):
        axes["row"] = _axis("rows", raw["rows"])
    if not axes:
        raise ConfigError("there are no rows; give rows, grid or both")
    published = _published(raw.get("published") or {})
    follows = str(raw.get("follows") or "")
    rows = tuple(
        _row(choice, published, given, follows) for choice in product(*(axis.items() for axis in axes.values()))
    )
    _check("published row", published, [row.name for row in rows])
    _check("by", [by := raw.get("by") or ""], ("", "type", "hops"))
    return Table(
        title=raw["title"], base={"run": {"root": ROOT}, **raw["base"]}, rows=rows,
        columns=tuple(map(column_of, raw["columns"])), path=path, paper=raw.get("paper") or "",
        used={str(job): str(model) for job, model in (raw.get("used") or {}).items()},
        models=dots(raw.get("models") or {}), by=by,
        note=raw.get("note") or "",
    )  # fmt: skip


def _check(what: str, names: Iterable[Any], allowed: Iterable[str]) -> None:
    for name in names:
        if name not in allowed:
            raise ConfigError(f"{what} {name!r} is unknown. {nearest(str(name), map(str, allowed))}")


def _axis(name: str, values: Any) -> dict[str, Mapping[str, Any]]:
    if isinstance(values, list) and values:
        return {value if isinstance(value, str) else json.dumps(value): {name: value} for value in values}
    if not isinstance(values, dict) or not values or not all(isinstance(v, dict) for v in values.values()):
        raise ConfigError(f"{name}={values!r}: give a list of values, or a section of NAME: {{setting: value}}")
    return {str(label): settings for label, settings in values.items()}


def _row(
    choice: Iterable[tuple[str, Mapping[str, Any]]], published: Mapping[str, Any], given: Sequence[str], all_follow: str
) -> Row:
    labels, missing, follows = [], [], [all_follow] if all_follow else []
    settings: dict[str, Any] = {}
    for label, section in choice:
        labels.append(label)
        part = section.get("unless")
        if "missing" in section and not any(item.startswith((f"{part}.", f"{part}=")) for item in given):
            missing.append(str(section["missing"]))
        follows += [section["follows"]] if "follows" in section else []
        for key, value in section.items():
            settings.pop(key, None)  # what is set again moves to the end: a part's own settings come after its name
            if key not in ("missing", "unless", "follows"):
                settings[key] = value
    sections = {f.name for f in fields(EvaluateConfig)}
    variables = {f"{{{key}}}": settings.pop(key) for key in list(settings) if "." not in key and key not in sections}
    settings = {k: variables.get(v, v) if isinstance(v, str) else v for k, v in settings.items()}
    name = SEPARATOR.join(labels)
    return Row(name, dots(settings), "; ".join(missing), "; ".join(follows), published.get(name, {}))


def _published(raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    _check("published", raw, ("scale", "metrics", "rows"))
    columns, scale = [column_of(name) for name in raw.get("metrics", ())], float(raw.get("scale", 1))
    figures: dict[str, dict[str, Any]] = {}

    def read(rows: Mapping[Any, Any], before: tuple[str, ...]) -> None:
        for label, values in rows.items():
            labels = (*before, str(label))
            if isinstance(values, Mapping):
                read(values, labels)
                continue
            name = SEPARATOR.join(labels)
            if len(values) != len(columns):
                raise ConfigError(f"published row {name!r} has {len(values)} figures for {len(columns)} metrics")
            pairs = [(c, v) for c, v in zip(columns, values, strict=True) if v is not None]
            figures[name] = {c.name: float(v) / (scale if c.is_share else 1) for c, v in pairs}

    read(raw.get("rows", {}), ())
    return figures


def dots(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return settings as dotted overrides, in order; strings are quoted, for `off` alone would be read as false."""
    return tuple(f"{key}={json.dumps(value)}" for key, value in settings.items())


def row_config(table: Table, row: Row, overrides: Sequence[str] = ()) -> EvaluateConfig:
    """Return the settings of a row; each row gets a run directory of its own.

    `overrides` win over all others; `roles=offline` among them also leaves out what the table says of models. Raises
    ConfigError naming the row where a setting is unknown or mistyped, or where a name is given for the run.
    """
    values = dict(item.partition("=")[::2] for item in overrides)
    if values.get("run.name", "null") != "null":
        raise ConfigError(f"run.name={values['run.name']}: each row is a run, named by its settings; give run.root")
    is_prompted = values.get("roles", values.get("roles.default", "prompted")) == "prompted"
    models = table.models if is_prompted else ()
    try:
        config = load_config(EvaluateConfig, table.base, [*models, *row.settings, *overrides, "run.name=null"])
    except ConfigError as error:
        raise ConfigError(f"{table.path}: row {row.name!r}: {error}") from error
    if any(column.key == "run/seconds" for column in table.columns):
        # Concurrency changes no prediction, and so not the run's name, but it is what such a table compares.
        config.run.root = str(Path(config.run.root) / f"concurrency-{config.concurrency}")
    ks = {int(column.name.partition("@")[2]) for column in table.columns if "@" in column.name}
    config.metrics.ks = sorted({*config.metrics.ks, *ks})
    return config


@dataclass(frozen=True)
class Result:
    """The figures of a row by column (None: the run has none) with 95% intervals, or the error that it ended with."""

    row: Row
    label: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    questions: int = 0
    failed: int = 0  # questions that ended with an error; they score zero
    run: str = ""
    error: str = ""
    trained_on: str = ""  # which parts were trained on these questions: the figures are then no result
    parts: Sequence[Result] = ()  # the figures by type or hops
    counted: Mapping[str, int] = field(default_factory=dict)  # by judged column: of how many questions a figure is
    remarks: Sequence[str] = ()  # of `metrics.replies.remarks`


def cell(result: Result, column: Column) -> str:
    """Return a figure as text: with its interval, `n=` if not all questions count, and the published one behind it."""

    def shown(value: Any) -> str:
        return f"{value:.{column.digits}f}"

    value, published = result.values.get(column.name), result.row.published.get(column.name)
    text = "" if value is None else shown(value)
    if text and column.name in result.intervals:
        text += f" [{', '.join(map(shown, result.intervals[column.name]))}]"
    if text and (n := result.counted.get(column.name, result.questions)) != result.questions:
        text += f" n={n}"
    if published is not None:
        text = f"{text} ({shown(published)})".strip()
    return text or "-"


def cells(table: Table, results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows as texts; of a table of one's own a column without figures is left out."""
    done = [r for r in results if r.values] or results
    shown = [c for c in table.columns if table.paper or any(r.values.get(c.name) is not None or r.error for r in done)]
    rows = [[r.row.name, *(cell(r, column) for column in shown)] for r in results]
    return ["row", *(column.heading for column in shown)], rows


def notes(table: Table, results: Sequence[Result]) -> list[str]:
    """Return the lines below a table: what was run, what the paper used, what failed, and what is no result."""
    lines = []
    if table.paper:
        lines.append("The paper used " + "; ".join(f"{job}: {model}" for job, model in table.used.items()) + ".")
        if labels := dict.fromkeys(r.label for r in results if r.label):
            lines.append(f"Run here: {'; '.join(labels)}. The published figures are of the paper's own questions.")
        else:
            lines.append("Nothing was run.")
    for r in results:
        problems = [
            r.error,
            f"{r.failed} of {r.questions} questions failed" if r.failed else "",
            f"{r.trained_on}: no result" if r.trained_on else "",
            *r.remarks,
        ]
        lines += [f"{r.row.name}: {line}" for line in problems if line]
    return [*lines, *([table.note.strip()] if table.note else [])]


def as_json(table: Table, results: Sequence[Result]) -> str:
    plain = ("label", "values", "intervals", "questions", "failed", "run", "error", "trained_on", "counted")
    rows = [
        {"name": r.row.name, "published": r.row.published, "remarks": list(r.remarks)}
        | {name: getattr(r, name) for name in plain}
        for r in results
    ]
    about = {"title": table.title, "paper": table.paper, "used": table.used, "note": table.note}
    return json.dumps({**about, "rows": rows}, ensure_ascii=False, indent=2)
