"""Several runs on the same questions: differences with their significance, and a plot."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.files import read_journal, read_json, read_object
from gnnrag.common.records import TRAINING, interpreting, number, text
from gnnrag.errors import GnnragError, nearest
from gnnrag.metrics.long_answers import TEXT, UNCONFIRMED
from gnnrag.metrics.plotting import blank_axes, write_figure
from gnnrag.metrics.replies import check_section
from gnnrag.metrics.retrieval import is_node_metric
from gnnrag.metrics.statistics import mcnemar, paired_difference

MAIN = ("retrieval/recall@5", "answer/em", "answer/f1")


@dataclass(frozen=True)
class Run:
    """A scored run; `name` is unique among those loaded; `types` and each of `scores` (n,) in the order of `ids`.

    A score is NaN where the metric is not defined for the question.
    """

    name: str
    metrics: dict[str, Any]
    ids: tuple[str, ...]
    types: np.ndarray
    scores: dict[str, np.ndarray]


def load_runs(paths: Sequence[Path]) -> list[Run]:
    """Read scored runs. Raises GnnragError where a folder is none, or they answered different questions."""
    runs = [_load(path, name) for path, name in zip(paths, _names(paths), strict=True)]
    for run in runs[1:]:
        if set(run.ids) != set(runs[0].ids):
            both = len(set(run.ids) & set(runs[0].ids))
            raise GnnragError(
                f"{run.name} and {runs[0].name} answered different questions ({both} in common of {len(run.ids)} and "
                f"{len(runs[0].ids)}); compare runs on the same data.split, data.questions, data.limit and data.sample"
            )
    for run in runs[1:]:
        mine, theirs = _scoring(run), _scoring(runs[0])
        if mine != theirs:
            raise GnnragError(
                f"{run.name} was scored with {mine}, {runs[0].name} with {theirs}; run gnnrag evaluate again on one of "
                "them with the metrics settings of the other (nothing is predicted again)"
            )
    order = {id_: i for i, id_ in enumerate(runs[0].ids)}
    return [_reorder(run, order) for run in runs]


def _scoring(run: Run) -> Any:
    """Return what a run was scored with; where all questions have gold passages, nothing is skipped or counted 0."""
    settings = run.metrics.get("settings")
    if isinstance(settings, dict) and run.metrics.get("no_gold") == 0:
        return {name: value for name, value in settings.items() if name != "skip_no_gold"}
    return settings


def _names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each run, no two alike: as much of the path's end as it takes, and a number for repeats."""
    places = [path.resolve() for path in paths]
    names = []
    for at, place in enumerate(places):
        others, depth = {other.parts for other in places if other != place}, 1
        while any(parts[-depth:] == place.parts[-depth:] for parts in others):
            depth += 1
        before = places[:at].count(place)
        names.append("/".join(place.parts[-depth:]) + (f" ({before + 1})" if before else ""))
    return names


def _load(path: Path, name: str) -> Run:
    if not (path / "metrics.json").is_file() or not (path / "scores.jsonl").is_file():
        raise GnnragError(_what_is_wrong(path))
    with interpreting(path / "metrics.json"):
        metrics: dict[str, Any] = read_json(path / "metrics.json")
        if not isinstance(metrics, dict):
            raise ValueError("no figures by name")
        _check_figures(metrics)
        check_section(metrics.get("replies", {}))
    with interpreting(path / "scores.jsonl"):
        rows = read_journal(path / "scores.jsonl")
        names = [text(k) for k in rows[0] if k not in ("question_id", "type", "has_gold")]
        columns = {name: np.array([_score(row[name]) for row in rows]) for name in names}
        gold = np.array([bool(row["has_gold"]) for row in rows])
        if metrics.get("settings", {}).get("skip_no_gold"):  # such zeros are in runs scored by older code
            for key in columns:
                if key.startswith("retrieval/") and not is_node_metric(key):
                    columns[key][~gold] = np.nan
        ids = tuple(text(row["question_id"]) for row in rows)
        types = np.array([text(row["type"]) for row in rows])
        if len(set(ids)) < len(ids):
            raise ValueError("a question has two rows")
    return Run(name, metrics, ids, types, columns)


def _score(value: Any) -> float:
    """Return a question's value, NaN where the metric is not defined for it."""
    return math.nan if value is None else number(value)


def _check_figures(metrics: Mapping[str, Any]) -> None:
    """Raise ValueError or the like where metrics, or those of a group or round among them, are not of their form."""
    for key, value in metrics.items():
        is_group = key.startswith("by_") and key != "by_step"
        for row in (value.values() if isinstance(value, Mapping) else value) if is_group else ():
            _check_figures({**row, **({"round": row["round"]} if key == "by_round" else {"count": row["count"]})})
        if value is not None and ("/" in key or key in ("questions", "failed", "count", "round")):
            low, high = value if key.endswith("_ci") else (value, value)
            number(low), number(high)


def _what_is_wrong(path: Path) -> str:
    if not path.is_dir():
        beside = f"; did you mean {Path('runs', path)}?" if Path("runs", path).is_dir() else ""
        return f"run {path} does not exist{beside}"
    if TRAINING.is_one(path, read_object(path / "meta.json")):
        return f"{path} is a training's folder, no evaluation: give a folder that gnnrag evaluate printed"
    if (path / "meta.json").exists() or (path / "predictions.jsonl").exists():
        return f"run {path} has not ended: run its command again"
    inside = sorted(child.name for child in path.iterdir() if (child / "metrics.json").is_file())
    hint = f"; runs in it are {', '.join(inside[:5])}" + (", ..." if len(inside) > 5 else "") if inside else ""
    return f"{path} is no run: give a folder that gnnrag evaluate printed{hint}"


def _reorder(run: Run, order: dict[str, int]) -> Run:
    rows = np.argsort([order[id_] for id_ in run.ids])
    columns = {name: values[rows] for name, values in run.scores.items()}
    return Run(run.name, run.metrics, tuple(run.ids[i] for i in rows), run.types[rows], columns)


class Comparison:
    """Differences between the first run and each of the others."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs

    def main_metrics(self) -> list[str]:
        """Return what to compare where nobody says: recall, EM and F1, as far as the questions have them, and texts."""
        texts = [name for name in self.runs[0].scores if name.startswith(TEXT) and not name.endswith("words")]
        names = [*MAIN, *(name for name in texts if name not in UNCONFIRMED)]
        has = [{name for name, values in run.scores.items() if not np.isnan(values).all()} for run in self.runs]
        return [name for name in names if all(name in one for one in has)]

    def by_type(self, metrics: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of `differences` for each type of question, with the `type`; none where a type has none."""
        found = []
        for name in np.unique(self.runs[0].types).tolist():
            rows = self.runs[0].types == name
            runs = [replace(r, scores={k: v[rows] for k, v in r.scores.items()}) for r in self.runs]
            within = Comparison(runs)
            known = [m for m in metrics if not any(np.isnan(r.scores[m]).all() for r in runs)]
            found += [{"type": name, **row} for row in within.differences(known)]
        return found

    def differences(self, metrics: Sequence[str]) -> list[dict[str, Any]]:
        """Return one row per run and metric: mean difference, its bootstrap interval, p, and who was better where.

        `at` is the run's place, from 0. p is McNemar's for right-or-wrong metrics, else the paired bootstrap's;
        `p_floor` is the smallest it can be (0 for McNemar's). `questions` are those for which both runs have a figure.
        Raises GnnragError for an unknown metric, and one that no question has.
        """
        rows = []
        for at, run in enumerate(self.runs[1:], start=1):
            for metric in metrics:
                for each in (self.runs[0], run):
                    if metric not in each.scores:
                        raise GnnragError(f"{each.name} has no metric {metric!r}. {nearest(metric, each.scores)}")
                rows.append({"run": run.name, "at": at, **_difference(self.runs[0], run, metric)})
        return rows


def _difference(base: Run, run: Run, metric: str) -> dict[str, Any]:
    a, b = _both(base, run, metric)
    test = paired_difference(a, b)
    is_binary = np.isin(np.concatenate([a, b]), (0.0, 1.0)).all()
    return {
        "metric": metric,
        "questions": len(a),
        "difference": round(test.difference, 6),
        "interval": [round(test.low, 6), round(test.high, 6)],
        "p": round(mcnemar(a, b).p_value if is_binary else test.p_value, 6),
        "p_floor": 0.0 if is_binary else round(test.p_floor, 6),
        "test": "mcnemar" if is_binary else "paired bootstrap",
        "better": int((b > a).sum()),
        "worse": int((b < a).sum()),
        "same": int((b == a).sum()),
    }


def _both(first: Run, second: Run, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of two runs on the questions for which both have one."""
    rows = ~np.isnan(first.scores[metric]) & ~np.isnan(second.scores[metric])
    if not rows.any():
        has = [name for name, values in first.scores.items() if not np.isnan(values).all()]
        raise GnnragError(f"no question of {first.name} and {second.name} has {metric}; they have {', '.join(has)}")
    return first.scores[metric][rows], second.scores[metric][rows]


def recall_plot(runs: Sequence[Run], path: Path) -> None:
    """Write a picture of recall against the number of passages."""
    figure, axes = blank_axes()
    ticks: set[int] = set()
    for run in runs:
        points = sorted(
            (int(name.removeprefix("retrieval/recall@")), value)
            for name, value in run.metrics.items()
            if re.fullmatch(r"retrieval/recall@[0-9]{1,9}", name) and value is not None
        )
        ticks.update(k for k, _ in points)
        axes.plot([k for k, _ in points], [v for _, v in points], marker="o", markersize=4, label=run.name)
    axes.set_xscale("log")
    axes.set_xticks(sorted(ticks), [str(k) for k in sorted(ticks)])
    axes.minorticks_off()
    axes.set_xlabel("passages (k)")
    axes.set_ylabel("recall@k")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    write_figure(figure, path)


def overlap(first: Run, second: Run, metric: str, least: float = 1.0) -> dict[str, float]:
    """Return the shares of questions that both runs, one, or neither get right: the metric is `least` or more.

    Raises GnnragError for an unknown metric, and one that no question has.
    """
    for run in (first, second):
        if metric not in run.scores:
            raise GnnragError(f"{run.name} has no metric {metric!r}. {nearest(metric, run.scores)}")
    a, b = (values >= least for values in _both(first, second, metric))
    groups = {"both": a & b, "first only": a & ~b, "second only": ~a & b, "neither": ~a & ~b}
    return {name: round(float(rows.mean()), 4) for name, rows in groups.items()}
