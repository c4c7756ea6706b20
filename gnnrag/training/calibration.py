"""How good a verifier's scores are: AUC, calibration, and what promotion by them brings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.metrics.plotting import blank_axes, write_figure
from gnnrag.pool import promote
from gnnrag.roles.tuned.cross_encoder import Selection, chosen

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
