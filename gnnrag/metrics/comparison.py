"""Several runs on the same questions: differences with their significance, and a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.errors import GnnragError, nearest
from gnnrag.io import read_journal, read_json
from gnnrag.metrics.long_answers import TEXT
from gnnrag.metrics.statistics import mcnemar, paired_difference

MAIN = ("retrieval/recall@5", "answer/em", "answer/f1")


@dataclass(frozen=True)
class Run:
    """A scored run; `types` and each of `scores` are (n,), in the order of `ids`."""

    name: str  # unique among those loaded
    metrics: dict[str, Any]
    ids: tuple[str, ...]
    types: np.ndarray
    scores: dict[str, np.ndarray]  # NaN: the metric is not defined for the question


def load_runs(paths: Sequence[Path]) -> list[Run]:
    """Read scored runs. Raises GnnragError where a folder is none, or they answered different questions."""
    runs = [_load(path, name) for path, name in zip(paths, _names(paths), strict=True)]
    first = runs[0]
    for run in runs[1:]:
        if set(run.ids) != set(first.ids):
            raise GnnragError(f"{run.name} and {first.name} answered different questions")
        if (mine := run.metrics.get("settings")) != (theirs := first.metrics.get("settings")):
            problem = f"{run.name} was scored with {mine}, {first.name} with {theirs}"
            raise GnnragError(f"{problem}; run gnnrag evaluate again on one with the metrics settings of the other")
    place = {id_: i for i, id_ in enumerate(first.ids)}
    ordered = []
    for run in runs:
        rows = np.argsort([place[id_] for id_ in run.ids])
        scores = {name: values[rows] for name, values in run.scores.items()}
        ordered.append(replace(run, ids=first.ids, types=run.types[rows], scores=scores))
    return ordered


def _names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each run, no two alike: as much of the path's end as it takes, and a number for repeats."""
    places = [path.resolve() for path in paths]
    names = []
    for i, place in enumerate(places):
        others, depth = {other.parts for other in places if other != place}, 1
        while any(parts[-depth:] == place.parts[-depth:] for parts in others):
            depth += 1
        before = places[:i].count(place)
        names.append("/".join(place.parts[-depth:]) + (f" ({before + 1})" if before else ""))
    return names


def _load(path: Path, name: str) -> Run:
    if not (path / "metrics.json").is_file() or not (path / "scores.jsonl").is_file():
        raise GnnragError(f"{path} is no run that has ended: give a folder that gnnrag evaluate printed")
    rows = read_journal(path / "scores.jsonl")
    names = [key for key in rows[0] if key not in ("question_id", "type", "has_gold")]
    scores = {key: np.array([math.nan if row[key] is None else row[key] for row in rows], float) for key in names}
    types = np.array([row["type"] for row in rows])
    return Run(name, read_json(path / "metrics.json"), tuple(row["question_id"] for row in rows), types, scores)


def main_metrics(runs: Sequence[Run]) -> list[str]:
    """Return what to compare where nobody says: recall, EM and F1, as far as the questions have them, and texts."""
    texts = [name for name in runs[0].scores if name.startswith(TEXT) and not name.endswith("words")]
    return [
        name for name in (*MAIN, *texts)
        if all(name in run.scores and not np.isnan(run.scores[name]).all() for run in runs)
    ]  # fmt: skip


def differences(runs: Sequence[Run], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Compare the first run with each of the others: one row per run and metric.

    A row has the mean difference, its bootstrap interval, p, and who was better where. `at` is the run's place, from 0.
    p is McNemar's for right-or-wrong metrics, else the paired bootstrap's; `p_floor` is the smallest it can be (0 for
    McNemar's). `questions` are those for which both runs have a figure. Raises GnnragError for an unknown metric, and
    one that no question has.
    """
    rows = []
    for at, run in enumerate(runs[1:], start=1):
        for metric in metrics:
            a, b = _both(runs[0], run, metric)
            test = paired_difference(a, b)
            is_binary = np.isin(np.concatenate([a, b]), (0.0, 1.0)).all()
            rows.append(
                {
                    "run": run.name,
                    "at": at,
                    "metric": metric,
                    "questions": len(a),
                    "difference": round(test.difference, 6),
                    "interval": [round(test.low, 6), round(test.high, 6)],
                    "p": round(mcnemar(a, b) if is_binary else test.p_value, 6),
                    "p_floor": 0.0 if is_binary else round(test.p_floor, 6),
                    "test": "mcnemar" if is_binary else "paired bootstrap",
                    "better": int((b > a).sum()),
                    "worse": int((b < a).sum()),
                    "same": int((b == a).sum()),
                }
            )
    return rows


def _both(first: Run, second: Run, metric: str) -> tuple[np.ndarray, np.ndarray]:
    for run in (first, second):
        if metric not in run.scores:
            raise GnnragError(f"{run.name} has no metric {metric!r}. {nearest(metric, run.scores)}")
    rows = ~np.isnan(first.scores[metric]) & ~np.isnan(second.scores[metric])
    if not rows.any():
        raise GnnragError(f"no question of {first.name} and {second.name} has {metric}")
    return first.scores[metric][rows], second.scores[metric][rows]
