"""Runs the rows of a table, each an evaluation of its own, and gathers the figures that its columns show."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gnnrag.config import EvaluateConfig
from gnnrag.datasets.base import find_source
from gnnrag.errors import ConfigError, StoppedError, described
from gnnrag.index.index import Index, closure, index_path
from gnnrag.judge import judged_figures
from gnnrag.metrics.replies import remarks
from gnnrag.reports.cross import cross_evaluate, read_part, with_training_runs
from gnnrag.reports.tables import Result, Row, Table, row_config
from gnnrag.run.evaluate import Observer, check_fit, index_settings, load_data_for, needed_stages
from gnnrag.run.rundir import predicted_seconds, read_predictions, run_label, trained_note
from gnnrag.types import OnProgress, Prediction, no_progress


def resolved(table: Table, row: Row, overrides: Sequence[str] = ()) -> EvaluateConfig:
    """Return a row's settings, checked as far as goes without data or index. Raises ConfigError naming the row."""
    config = row_config(table, row, overrides)
    try:
        check_fit(config)
        needed_stages(config)
    except ConfigError as error:
        raise ConfigError(f"{table.path}: row {row.name!r}: {error}") from error
    return config


def run_table(
    table: Table,
    overrides: Sequence[str] = (),
    chosen: Callable[[Row], bool] = lambda row: True,
    on_index: OnProgress = no_progress,
    on_start: Callable[[Row, int], None] = lambda row, questions: None,
    on_question: Callable[[Prediction], None] = lambda prediction: None,
    on_row: Callable[[Result], None] = lambda result: None,
    trained: Mapping[str, Path] | None = None,
) -> list[Result]:
    """Run the rows of a table that are `chosen`, one after the other, with dotted `overrides` of them all.

    A row that cannot be run is a result with the reason, a failed one with its error; a signal ends the table.
    `on_start` is given a row and the number of its questions left. `trained` are training runs by part (`gnn`, or a
    role), used in every row: no question is answered with a checkpoint that was trained on it. Raises ConfigError
    before any work where settings are wrong.
    """
    rows = [row for row in table.rows if chosen(row)]
    configs = {row.name: resolved(table, row, overrides) for row in rows if not row.missing}
    results, is_stopped = [], False
    for row in rows:
        config = configs.get(row.name)
        try:
            if config is None:
                result = Result(row, error=f"cannot be run: {row.missing}")
            else:
                check_fit(config)
                data = load_data_for(config)
                parts = [read_part(name, path, data) for name, path in (trained or {}).items()]
                observer = Observer(on_index, on_question, on_start=partial(on_start, row))
                path, metrics = cross_evaluate(config, parts, data, observer)
                result = measured(table, row, with_training_runs(config, parts), path, metrics)
        except Exception as problem:  # noqa: BLE001 - one broken row must not cost the others theirs
            result = Result(row, _label(config) if config else "", error=described(problem))
            is_stopped = isinstance(problem, StoppedError)
        results.append(result)
        on_row(result)
        gc.collect()  # cycles hold the index of a row
        if is_stopped:
            break
    return [part for result in results for part in (result, *result.parts)]


def measured(table: Table, row: Row, config: EvaluateConfig, run: Path, metrics: Mapping[str, Any]) -> Result:
    sections = {column.key.partition("/")[0] for column in table.columns}
    figures = {**metrics, **run_figures(run), **judged_figures(run)}
    figures |= {f"step/{name}": points[-1] for name, points in metrics.get("by_step", {}).items() if points}
    if "index" in sections:
        figures |= index_figures(config)

    def values(of: Mapping[str, Any]) -> dict[str, Any]:
        return {column.name: of.get(column.key) for column in table.columns}

    label = _label(config)
    parts = [
        Result(replace(row, name=f"{row.name}: {name}", published={}), label, values(group), questions=group["count"])
        for name, group in (metrics.get(f"by_{table.by}", {}) if table.by else {}).items()
    ]
    return Result(
        row, label, values(figures),
        {c.name: tuple(figures[key]) for c in table.columns if (key := f"{c.key}_ci") in figures},  # type: ignore[misc]
        metrics["questions"], metrics["failed"], str(run), "", trained_note(run),
        parts,
        {c.name: figures[key] for c in table.columns if (key := f"{c.key}_counted") in figures},
        tuple(remarks(metrics.get("replies", {}), config.run.warn_bad_replies, config.run.max_bad_replies)),
    )  # fmt: skip


def _label(config: EvaluateConfig) -> str:
    return f"{run_label(config)} on {Path(config.data.path).name} {config.data.split}"


def run_figures(run: Path) -> dict[str, float]:
    """Return what a run spent before its reader, per question, its seconds, and the share of queries that fell back."""
    predictions = read_predictions(run)
    sums: dict[str, float] = defaultdict(float)
    for prediction in predictions:
        for role, used in prediction.usage.get("roles", {}).items():
            for name in ("calls", "prompt_tokens", "completion_tokens") if role != "reader" else ():
                sums[name] += used.get(name, 0)
        sums["queries"] += prediction.usage.get("retriever_calls", 0)
        flags = prediction.usage.get("flags", {})
        sums["fallbacks"] += sum(count for flag, count in flags.items() if flag.endswith("_fallback"))
    names = ("calls", "prompt_tokens", "completion_tokens")
    means = {f"run/search_{name}": round(sums[name] / len(predictions), 4) for name in names}
    fallbacks = round(sums["fallbacks"] / max(sums["queries"], 1), 4)
    return means | {"run/fallbacks": fallbacks, "run/seconds": predicted_seconds(run)}


def index_figures(config: EvaluateConfig) -> dict[str, float]:
    """Return size, build time and tokens of language models of the artefacts that a run reads, and of their inputs."""
    name = find_source(Path(config.data.path)).data_name(config.data.split)
    index = Index(index_path(config.index, name), index_settings(config))
    needed = needed_stages(config)
    sums: Counter[str] = Counter({"index/prompt_tokens": 0, "index/completion_tokens": 0})
    for stage in closure(needed, index.config):
        record = index.record(stage)
        sums["index/seconds"] += record["seconds"]
        for name, count in record["counts"].items():
            kind = name.rpartition(" ")[2]  # such as `triples prompt_tokens`
            if kind in ("prompt_tokens", "completion_tokens"):
                sums[f"index/{kind}"] += count
    files = [file for stage in needed for file in index.folder(stage).rglob("*") if file.is_file()]
    return {**sums, "index/mb": sum(file.stat().st_size for file in files) / 1e6}


def outline(table: Table, rows: Sequence[Row], overrides: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line of what all rows set, then one for each row, which is not run: what it follows, parts, its settings.

    Raises ConfigError on wrong settings.
    """
    if isinstance(table.base, Mapping):
        yield f"all rows: {', '.join(_flat(table.base))}"
    label_says = {"method", "retriever", "roles", "data.path", "index.root"}
    hidden = {*label_says, *(override.partition("=")[0] for override in overrides)}
    for row in rows:
        if row.missing:
            yield f"{row.name}: {row.missing}"
            continue
        config = resolved(table, row, overrides)
        settings = [item.replace('"', "") for item in row.settings if item.partition("=")[0] not in hidden]
        follows = f" ({row.follows})" if row.follows else ""
        yield f"{row.name}{follows}: {', '.join([_label(config), *settings])}"


def _flat(section: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}={value}"
