"""What a training says of its model: calibration, the report on questions that it has not seen, and the model card."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.files import read_json, write_json, write_jsonl
from gnnrag.common.records import difference, read_config
from gnnrag.common.untrusted import markdown
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.metrics.plotting import blank_axes, write_figure
from gnnrag.metrics.statistics import bootstrap_interval, with_interval
from gnnrag.pool import promote
from gnnrag.roles.tuned.selection import Selection, chosen

_BINS = 10


@dataclass(frozen=True, eq=False)
class Scored:
    """A task with its scores."""

    # set, question_id: where it is from
    set: str
    question_id: str
    logits: np.ndarray  # of the passages shown, in pool order
    labels: np.ndarray  # whether each should be selected; same length, bool


def auc(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """Return the probability that a positive scores above a negative, ties half; None without one of either."""
    from scipy.stats import rankdata

    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    ranks = rankdata(scores)[labels.astype(bool)].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))


def promotion_metrics(labels: np.ndarray, places: Sequence[int], top_k: int) -> dict[str, float]:
    """Return `selected` (how many), `precision` if any, and, if any label is right, `recall`, `(pool_)recall@k`."""
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


def learn_selection(scored: Sequence[Scored], max_selected: int, top_k: int, calibrate: str) -> Selection:
    """Return the calibration and threshold of best mean recall@`top_k`; ties: best F1 selected, then the highest."""
    kept = [one for one in scored if one.labels.any()]
    if not kept:
        return Selection(0.0, max_selected)  # all `max_selected` best
    scale, shift = _calibration(kept, calibrate)
    probe = Selection(0.0, max_selected, scale, shift)
    chances = [probe.chances(one.logits) for one in kept]
    best, found = (-1.0, -1.0), 0.0
    for threshold in _thresholds(chances, max_selected):
        value = _value(kept, chances, threshold, max_selected, top_k)
        if value >= best:
            best, found = value, threshold
    return Selection(found, max_selected, scale, shift)


def _thresholds(chances: Sequence[np.ndarray], max_selected: int) -> list[float]:
    """Return thresholds from 0 up, between the chances that can be selected."""
    top = np.unique(np.concatenate([np.sort(one)[-max_selected:] for one in chances]))
    if len(top) > 200:
        top = np.unique(np.quantile(top, np.linspace(0, 1, 201)))
    return [0.0, *((top[1:] + top[:-1]) / 2).tolist()]


def _value(
    scored: Sequence[Scored], chances: Sequence[np.ndarray], threshold: float, max_selected: int, top_k: int
) -> tuple[float, float]:
    """Return mean recall after promotion and F1 of the selected passages."""
    recalls, hits, selected, right = [], 0, 0, 0
    for one, chance in zip(scored, chances, strict=True):
        places = chosen(chance, threshold, max_selected)
        recalls.append(promotion_metrics(one.labels, places, top_k)[f"recall@{top_k}"])
        hits += int(one.labels[places].sum()) if places else 0
        selected, right = selected + len(places), right + int(one.labels.sum())
    f1 = 2 * hits / (selected + right) if selected + right else 0.0
    return round(math.fsum(recalls) / len(recalls), 9), round(f1, 9)


def _calibration(scored: Sequence[Scored], how: str) -> tuple[float, float]:
    """Return scale and shift that minimise the log loss: both (`platt`), the scale (`temperature`), or neither."""
    if how == "none":
        return 1.0, 0.0
    from scipy.optimize import minimize

    logits = np.concatenate([one.logits for one in scored])
    labels = np.concatenate([one.labels for one in scored]).astype(np.float64)

    def loss(given: np.ndarray) -> float:
        values = np.exp(given[0]) * logits + (given[1] if how == "platt" else 0.0)
        return float(np.mean(np.logaddexp(0.0, values) - labels * values))

    found = minimize(loss, np.zeros(2 if how == "platt" else 1), method="Nelder-Mead", options={"xatol": 1e-4}).x
    return float(np.exp(found[0])), float(found[1]) if how == "platt" else 0.0


def calibration_bins(chances: np.ndarray, labels: np.ndarray) -> list[dict[str, float]]:
    """Return mean probability, share of positives and number of each of ten bins that is not empty."""
    bins = np.minimum((chances * _BINS).astype(int), _BINS - 1)
    return [
        {"chance": float(chances[of].mean()), "share": float(labels[of].mean()), "number": float(of.sum())}
        for b in range(_BINS)
        if (of := bins == b).any()
    ]


def calibration_error(chances: np.ndarray, labels: np.ndarray) -> float:
    """Return the expected calibration error: mean gap of probability and share of positives, by the bins' numbers."""
    rows = calibration_bins(chances, labels)
    return math.fsum(abs(r["chance"] - r["share"]) * r["number"] for r in rows) / max(len(chances), 1)


def draw_calibration(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw how often passages of each probability are right, one line for each set; nothing without rows."""
    names = sorted({row["set"] for row in rows})
    if not names:
        return
    figure, axes = blank_axes()
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":", label="calibrated")
    for name in names:
        chances, labels = pooled_arrays([row for row in rows if row["set"] == name])
        bins = calibration_bins(chances, labels)
        label = f"{name}: ECE {calibration_error(chances, labels):.3f}"
        axes.plot([b["chance"] for b in bins], [b["share"] for b in bins], marker="o", label=label)
    axes.set(xlabel="predicted probability", ylabel="share of right passages", xlim=(0, 1), ylim=(0, 1))
    axes.legend(fontsize="small")
    write_figure(figure, path)


def pooled_arrays(rows: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return `probabilities` and `truths` of all rows together."""
    return (
        np.array([c for row in rows for c in row["probabilities"]], dtype=np.float64),
        np.array([t for row in rows for t in row["truths"]], dtype=bool),
    )


def pooled_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what cannot be measured question by question: the AUC and the calibration of all pairs together."""
    rows = [row for row in rows if "probabilities" in row]
    if not rows:
        return {}
    chances, labels = pooled_arrays(rows)
    value = auc(chances, labels)
    return {} if value is None else {"pooled_auc": value, "calibration_error": calibration_error(chances, labels)}


# ------------------------------------------------------------------------------------------------------------- report
Report = list[dict[str, Any]]
PRIVATE = ("chances", "is_right", "probabilities", "truths")  # what a threshold was learned from: not for the report
UNSTATED = "not stated by whoever trained it; ask before you pass it on"


def told(row: Mapping[str, Any], steps: int) -> str:
    """Return a row of metrics as a person reads it."""
    shown = {name.rpartition("/")[2]: value for name, value in row.items() if name not in ("step", "seconds")}
    values = ", ".join(f"{name} {value:.3g}" for name, value in shown.items())
    return f"step {row['step']} of {steps}, {row['seconds']:.0f} s: {values}"


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
        metrics[name] = {"questions": len(measured), **pooled_metrics(group)}  # the pooled ones have no interval
        for key in dict.fromkeys(key for row in measured for key in row):
            interval = bootstrap_interval(np.array([row[key] for row in measured if key in row]))
            metrics[name] |= {key: interval.mean, f"{key}_ci": [interval.low, interval.high]}
    write_json(path / "metrics.json", metrics)
    return metrics


def score_rows(record: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the rows of a model card's evaluation table from a checkpoint's record."""
    scores = [{"set": "all", "part": "validation", "metric": k, "value": v} for k, v in record["validation"].items()]
    for name, row in record.get("report", {}).items():
        for key, value in row.items():
            if f"{key}_ci" in row:
                shown = with_interval(value, row[f"{key}_ci"])
                scores.append({"set": name, "part": "report", "metric": key, "value": shown, "n": row["questions"]})
    return tuple(scores)


def measured_rows(runs: Sequence[str], settings: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return a card's evaluation rows of finished runs. Raises ConfigError: not finished, or `settings` differ."""
    rows: list[dict[str, Any]] = []
    for name in runs:
        path = Path(name)
        try:
            held = read_config(path / "fold0" if (path / "fold0").is_dir() else path)
            metrics = dict(read_json(path / "metrics.json"))
            is_crossed = len(metrics.pop("folds")) > 1
        except (OSError, ValueError, TypeError, KeyError, GnnragError) as error:
            raise ConfigError(f"run.measured: {name} is no finished training run ({error})") from error
        if problem := difference(held, settings):
            raise ConfigError(f"run.measured: {name}: {problem}; name a run with the settings of this one")
        part = "cross-validated" if is_crossed else "left out of training"
        rows += [row | {"part": part} for row in score_rows({"validation": {}, "report": metrics})]
    return tuple(rows)


@dataclass(frozen=True)
class Card:
    """A model card."""

    name: str  # heading
    summary: str  # one paragraph on what the model does
    # Short statements by name: parameters, encoder, commit, the command that makes it
    facts: Mapping[str, Any] = field(default_factory=dict)
    # One row per set of training data: name, questions of each part, passages, licence
    data: Sequence[Mapping[str, Any]] = ()
    # One row per evaluation: set, part, metric, value with its interval, number of questions
    scores: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()  # limits, and what else a user should know
    licence: str = ""  # under which the weights may be used (`run.licence`)

    def render(self) -> str:
        """Return the card as Markdown."""
        parts = [f"# {markdown(self.name)}", self.summary]
        parts.append("\n".join(f"- {markdown(name)}: {markdown(str(value))}" for name, value in self.facts.items()))
        of_data = {str(row.get("set")): str(row.get("licence") or UNSTATED) for row in self.data}
        licences = [f"- weights: {markdown(self.licence or UNSTATED)}"]
        licences += [f"- data, {markdown(name)}: {markdown(licence)}" for name, licence in of_data.items()]
        parts += ["## Licence", "\n".join(licences)]
        if self.data:
            parts += ["## Training data", _table(self.data)]
        if self.scores:
            parts += ["## Evaluation", _table(self.scores)]
        if self.notes:
            parts += ["## Notes", "\n".join(f"- {markdown(note)}" for note in self.notes)]
        return "\n\n".join(part for part in parts if part) + "\n"


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(name)) for name in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else markdown(str(value))
