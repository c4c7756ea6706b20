"""Reports of trainings on questions that the model has not seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.io import write_json, write_jsonl
from gnnrag.methods.base import promote
from gnnrag.metrics.statistics import bootstrap_interval

Report = list[dict[str, Any]]
Rows = dict[str, dict[str, float]]  # metrics by question
TOP = 5  # passages that recall, NDCG and MRR are taken of
PRIVATE = ("chances", "is_right")  # what a threshold was learned from: not for the report


def promotion_metrics(labels: np.ndarray, places: Sequence[int], top_k: int = TOP) -> dict[str, float]:
    """Measure a selection from a pool, and the ranking in which what was selected comes first.

    `labels` (n,) bool tells which passages of the pool are right, `places` are the selected ones. `precision` is left
    out where nothing is selected; `recall`, `recall@k` and `pool_recall@k` (before the promotion) where none is right.
    """
    right = int(labels.sum())
    order = [int(i) for i in promote([str(i) for i in range(len(labels))], [str(i) for i in places])]
    hits = int(labels[list(places)].sum()) if places else 0
    out = {"selected": float(len(places))}
    if places:
        out["precision"] = hits / len(places)
    if right:
        out |= {f"recall@{top_k}": float(labels[order[:top_k]].sum()) / right, "recall": hits / right}
        out[f"pool_recall@{top_k}"] = float(labels[:top_k].sum()) / right
    return out


def by_question(rows: Report) -> Report:
    """Return a row for each question: the means of its rows' metrics, each over the rows that have it."""
    groups: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["id"]), []).append(row["metrics"])
    return [{"set": name, "id": id_, "metrics": means(metrics)} for (name, id_), metrics in groups.items()]


def means(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over the rows that have it."""
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return {name: math.fsum(values) / len(values) for name, values in columns.items()}


def write_report(path: Path, rows: Report, more: Mapping[str, Any]) -> dict[str, Any]:
    """Write `report.jsonl`, `metrics.json`: means and 95% intervals by set and hops, over questions with the metric."""
    groups: dict[str, Report] = {}
    for row in rows:
        for name in [row["set"]] + ([f"{row['set']}/{row['hops']}-hop"] if row.get("hops") else []):
            groups.setdefault(name, []).append(row)
    write_jsonl(path / "report.jsonl", [{k: v for k, v in row.items() if k not in PRIVATE} for row in rows])
    metrics: dict[str, Any] = dict(more)
    for name, group in sorted(groups.items()):
        measured: list[dict[str, float]] = [row["metrics"] for row in group]
        metrics[name] = {"questions": len(measured)}
        for key in dict.fromkeys(key for row in measured for key in row):
            interval = bootstrap_interval(np.array([row[key] for row in measured if key in row]))
            metrics[name] |= {key: interval.mean, f"{key}_ci": [interval.low, interval.high]}
    write_json(path / "metrics.json", metrics)
    return metrics
