"""Tables and figures of the papers as files: `configs/papers/PAPER/TABLE.yaml` says what is run for each row.

A file holds `base` (settings as in `configs/evaluate`), `models` (settings that choose the paper's models), and rows:
named ones (`rows`), a `grid` of axes, or both. A row is a name for dotted settings:

    rows: {DTR: {method: bdtr, method.bgec: false}, none: {method: single}}
    grid: {method.max_rounds: [0, 1, 2]}                      # an axis of values of one setting
          {k: [10, 20]}                                       # or of what "{k}" stands for in the rows
          {retriever: {BM25: {retriever: bm25}, ...}}         # or of named settings, as in `rows`

Order of application: base, models, axes in the order of the file, rows, the caller's. `{missing: WHY}` marks what
cannot be run; with `unless: gnn`, only while the caller gives no setting of `gnn`. `used` tells the paper's models, job
by job. `average: AXIS` adds a last group `average`: means over that axis. `counts` (see `COUNTS`) asks no question: the
rows' data are counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gnnrag.common.records import MISSHAPEN, in_short
from gnnrag.config import EvaluateConfig, load_config, read_yaml
from gnnrag.errors import ConfigError, nearest

KEYS = (
    *("title", "paper", "used", "base", "models", "grid", "rows", "columns", "by", "published", "plot", "overlap"),
    *("average", "counts", "note"),
)
REQUIRED = ("title", "paper", "used", "base", "columns")
SEPARATOR = " / "
AVERAGE = "average"
COUNTS = {
    "hierarchy": "the graph of the corpus",
    "questions": "corpus and questions",
}  # `gnnrag.reports.reproduction` does it
_SETTINGS = {f.name for f in fields(EvaluateConfig)}


@dataclass(frozen=True)
class Row:
    """One row of a table: `labels`, one for each axis, then that of `rows`; dotted `settings` in order.

    `missing` says why it cannot be run; `published` holds the paper's figures by column, shares of one.
    """

    name: str
    labels: tuple[str, ...]
    settings: tuple[str, ...]
    missing: str = ""
    published: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper; see the module for its file.

    `rows` are in running order. `by` splits each row by `type` or `hops` of the questions. `plot` holds `x` (an axis)
    and `y` (a column) of a figure; `overlap` two `rows`, `metric` and `least`: which questions both, one or neither get
    right. `averages` are the rows of the last group. Empty means none.
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
    """Read a table's file; a row missing `unless` a setting is given counts as there if `given` has such a setting.

    Raises ConfigError for a file, key, column, axis or published row that does not exist.
    """
    raw: Any = OmegaConf.to_container(read_yaml(path, "configs/papers/bdtr/table5.yaml"))
    try:
        return _table(path, raw, given)
    except MISSHAPEN as error:
        raise ConfigError(
            f"{path}: is not of the form of a table ({in_short(error)}); see gnnrag/reports/papers.py"
        ) from error


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
    if over is None:
        return
    if over not in axes:
        raise ConfigError(f"{path}: average={over!r} is no axis. {nearest(str(over), axes)}")
    for labels in product(*((AVERAGE,) if name == over else axis for name, axis in axes.items())):
        yield Row(name := SEPARATOR.join(labels), labels, (), published=published.get(name, {}))


def row_config(table: PaperTable, row: Row, overrides: Sequence[str] = ()) -> EvaluateConfig:
    """Return the settings of a row; it gets a run directory of its own.

    `overrides` win over all others; `roles=offline` among them also leaves out what the table says of models. Raises
    ConfigError naming the row where a setting is unknown or mistyped, or where a name is given for the run.
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
    ks = {int(c.key.rpartition("@")[2]) for c in table.columns if "@" in c.key}
    config.metrics.ks = sorted({*config.metrics.ks, *ks})
    return config


def dots(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return settings as dotted overrides, in order; strings are quoted, for `off` alone would be read as false."""
    return tuple(f"{key}={json.dumps(value)}" for key, value in settings.items())


def are_prompted(overrides: Sequence[str]) -> bool:
    """Tell whether the caller's settings leave the roles to language models."""
    chosen = [o.partition("=")[2] for o in overrides if o.partition("=")[0] in ("roles", "roles.default")]
    return not chosen or chosen[-1] == "prompted"


def _axis(path: str | Path, name: str, values: Any) -> dict[str, Mapping[str, Any]]:
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
    figures = {}
    for name, values in _leaves(raw.get("rows", {})):
        if len(values) != len(columns):
            raise ConfigError(f"{path}: published row {name!r} has {len(values)} figures for {len(columns)} metrics")
        given = [(c, str(v) if c.is_text else float(v)) for c, v in zip(columns, values, strict=True) if v is not None]
        figures[name] = {c.name: value / scale if c.is_share else value for c, value in given}  # type: ignore[operator]
    return figures


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


# The columns of the papers' tables: what a file of `configs/papers` may show of a run.

# What the judges of `gnnrag.judge` rate: the six qualities of GraphSearch, and DotRAG's beside the overall verdict.
_CRITERIA = ("correctness", "logical_coherence", "comprehensiveness", "relevance", "knowledgeability", "factuality")
_DIMENSIONS = ("comprehensiveness", "logicality", "relevance", "coherence")
_COUNTED = ("passages", "sentences", "phrases", "passage_sentence_edges", "sentence_phrase_edges")
_AT_K = re.compile(r"(recall|all)@([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a row: its heading, where a run has it (empty: no run has it), digits (-1: it is a text)."""

    name: str
    heading: str
    key: str = ""
    digits: int = 3

    @property
    def is_share(self) -> bool:
        """Whether it is a share of one, which papers print as a percentage."""
        return self.key.startswith(("retrieval/", "answer/", "text/"))

    @property
    def is_text(self) -> bool:
        """Whether it is a text, not a number."""
        return self.digits < 0


COLUMNS = {
    column.name: column
    for column in (
        Column("em", "EM", "answer/em"),
        Column("f1", "F1", "answer/f1"),
        Column("sub_em", "SubEM", "answer/sub_em"),
        Column("sub_em_tok", "SubEM, whole words", "answer/sub_em_tok"),
        Column("mrr", "MRR", "retrieval/mrr"),
        Column("node_recall", "node recall", "retrieval/node_recall"),
        Column("node_precision", "node precision", "retrieval/node_precision"),
        Column("node_f1", "node F1", "retrieval/node_f1"),
        Column("resolved_recall", "node recall, passages resolved", "retrieval/resolved_recall"),
        Column("resolved_precision", "node precision, passages resolved", "retrieval/resolved_precision"),
        Column("resolved_f1", "node F1, passages resolved", "retrieval/resolved_f1"),
        Column("resolved_nodes", "nodes, passages resolved", "context/nodes", 1),
        Column("context_size", "passages read", "context/size", 1),
        Column("retriever_calls", "retriever calls", "cost/retriever_calls", 1),
        Column("fallbacks", "queries that fell back", "run/fallbacks"),
        Column("llm_calls", "LLM calls", "cost/llm_calls", 1),
        Column("prompt_tokens", "prompt tokens", "cost/prompt_tokens", 0),
        Column("completion_tokens", "reply tokens", "cost/completion_tokens", 0),
        Column("search_calls", "LLM calls before the reader", "run/search_calls", 1),
        Column("search_prompt_tokens", "prompt tokens before the reader", "run/search_prompt_tokens", 0),
        Column("search_completion_tokens", "reply tokens before the reader", "run/search_completion_tokens", 0),
        Column("seconds", "s/question", "cost/seconds_per_question", 2),
        Column("run_seconds", "s/run", "run/seconds", 0),
        Column("semantic_recall", "evidence recall, text side", "run/semantic_recall"),
        Column("relational_recall", "evidence recall, graph side", "run/relational_recall"),
        Column("pair_recall", "gold triples whose names a hit joins, graph side", "run/pair_recall"),
        Column("triple_recall", "gold triples found, graph side", "run/triple_recall"),
        # Of the index that the row read, cached replies counted: per corpus, not per question.
        Column("index_prompt_tokens", "prompt tokens of the index", "index/prompt_tokens", 0),
        Column("index_completion_tokens", "reply tokens of the index", "index/completion_tokens", 0),
        # Counted without a run (`gnnrag.reports.reproduction`).
        *(
            Column(name, name.replace("_", " "), f"count/{name}", 0)
            for name in (*_COUNTED, "corpus_tokens", "questions")
        ),
        Column("types", "types", "count/types", -1),
        Column("gold_passages", "passages of evidence", "count/gold_passages", -1),
        Column("gold_triples", "triples of evidence", "count/gold_triples", -1),
        # Rated by a language model, which judges predictions afterwards (gnnrag judge).
        Column("a_score", "A-Score", "judge/a_score", 2),
        Column("e_score", "E-Score", "judge/e_score", 2),
        *(Column(name, name.replace("_", " "), f"judge/{name}", 2) for name in _CRITERIA),
        Column("win_rate", "win rate", "judge/win_rate", 0),
        *(Column(f"win_{name}", f"win rate, {name}", f"judge/win_{name}", 0) for name in _DIMENSIONS),
    )
}


def column_of(path: str | Path, name: str) -> Column:
    """Return a column by name. Raises ConfigError where there is none."""
    if match := _AT_K.fullmatch(name):
        return Column(name, f"{match[1].capitalize()}@{match[2]}", f"retrieval/{name}")
    if name not in COLUMNS:
        raise ConfigError(f"{path}: column {name!r} is unknown. {nearest(name, [*COLUMNS, 'recall@5', 'all@5'])}")
    return COLUMNS[name]
