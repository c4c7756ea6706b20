"""Intervals and tests over questions: bootstrap, paired differences, McNemar, Wilson, and the agreement of raters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist, fmean, stdev
from typing import Any

import numpy as np

# Bounds memory: a block of resampled indices holds at most this many numbers (16 MB), however many questions there are.
_BLOCK = 2_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its percentile bootstrap interval."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of `b - a` over questions, its interval, and the two-sided bootstrap p-value of "no difference".

    `p_floor` is the smallest p-value these resamples and differing questions can give: there p is "at most".
    """

    difference: float
    low: float
    high: float
    p_value: float
    n: int
    p_floor: float


@dataclass(frozen=True, slots=True)
class McNemar:
    """How often only one of two runs was right, and the exact two-sided p-value of "equally often"."""

    only_a: int
    only_b: int
    p_value: float


def with_interval(value: float, interval: Sequence[float] | None = None, digits: int = 3) -> str:
    """Return a value for a table: `0.123`, and `0.123 [0.100, 0.150]` where its interval (low, high) is known."""
    return f"{value:.{digits}f}" + (f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]" if interval else "")


def bootstrap_interval(
    values: Sequence[float] | np.ndarray, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Return the mean of `values` (n,) with its percentile interval of coverage `confidence` over resampled questions.

    The same seed and n draw the same samples, so intervals of several metrics belong together. Raises ValueError for no
    values, one that is not finite, or a setting out of range.
    """
    data = _checked(values, "values")
    low, high = _percentiles(_resampled_means(data, resamples, seed), confidence)
    return Interval(float(data.mean()), low, high, len(data))


def paired_difference(
    a: Sequence[float] | np.ndarray,
    b: Sequence[float] | np.ndarray,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Difference:
    """Compare two runs, `a` and `b` (n,) on the same questions in order; positive means that `b` is better.

    Raises ValueError where the lengths differ, or as in `bootstrap_interval`.
    """
    first, second = _paired(a, b)
    delta = second - first
    means = _resampled_means(delta, resamples, seed)
    low, high = _percentiles(means, confidence)
    # One is added to both counts: with finitely many resamples a p-value of exactly 0 would claim too much.
    tails = [(int(np.count_nonzero(side)) + 1) / (resamples + 1) for side in (means <= 0.0, means >= 0.0)]
    # So few questions tell so little: a test that flips the signs of all of them could not give less.
    floor = min(1.0, max(2.0 / (resamples + 1), 2.0 ** (1 - int(np.count_nonzero(delta)))))
    return Difference(float(delta.mean()), low, high, min(1.0, max(floor, 2.0 * min(tails))), len(delta), floor)


def mcnemar(a: Sequence[bool] | np.ndarray, b: Sequence[bool] | np.ndarray) -> McNemar:
    """Test whether two runs are right equally often (exact binomial test on the questions where they differ).

    `a` and `b` are (n,) 0/1 or booleans, in one order. Raises ValueError for other values, none, or unequal lengths.
    """
    first, second = _paired(a, b)
    if not np.isin(np.concatenate((first, second)), (0.0, 1.0)).all():
        raise ValueError("McNemar's test needs right or wrong (1 or 0) per question, such as exact match")
    only_a, only_b = int(np.sum(first > second)), int(np.sum(second > first))
    return McNemar(only_a, only_b, _binomial_two_sided(min(only_a, only_b), only_a + only_b))


def _binomial_two_sided(smaller: int, n: int) -> float:
    """Return the two-sided p-value of `smaller` successes in n fair draws; exact integers, so no underflow."""
    term = total = 1
    outcomes: int = 2**n  # typed, as a power of integers may be a fraction
    for i in range(smaller):
        term = term * (n - i) // (i + 1)
        total += term
    return min(1.0, 2 * total / outcomes)


def _resampled_means(data: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    if resamples < 1:
        raise ValueError(f"resamples={resamples}: must be at least 1")
    rng = np.random.default_rng(seed)
    n = len(data)
    rows = max(1, _BLOCK // n)
    sizes = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    return np.concatenate([data[rng.integers(0, n, size=(size, n))].mean(axis=1) for size in sizes])


def _percentiles(means: np.ndarray, confidence: float) -> tuple[float, float]:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}: must lie between 0 and 1, for example 0.95")
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(means, (tail, 100.0 - tail))
    return float(low), float(high)


def _paired(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first, second = _checked(a, "a"), _checked(b, "b")
    if len(first) != len(second):
        raise ValueError(f"a has {len(first)} questions, b has {len(second)}: both runs must cover the same questions")
    return first, second


def _checked(values: Sequence[float] | np.ndarray, name: str) -> np.ndarray:
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not len(data):
        raise ValueError(f"{name} has shape {data.shape}: one value per question is needed, for at least one question")
    if not np.isfinite(data).all():
        raise ValueError(f"{name} holds a value that is not finite (question {int(np.argmin(np.isfinite(data)))})")
    return data


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of a share (Wilson 1927): the shares that a normal test would not reject.

    (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), p = successes / n; within [0, 1] even at 0 or n. Raises
    ValueError for no trials, more successes than trials, or a confidence out of range.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n}: give at least one trial, and no more successes than trials")
    z = _quantile(confidence)
    p = successes / n
    middle, width = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At 0 and n the two terms cancel, but for rounding.
    low = 0.0 if successes == 0 else (middle - width) / scale
    return low, 1.0 if successes == n else (middle + width) / scale


def _quantile(confidence: float) -> float:
    """Return the normal quantile of a two-sided interval, to two digits as published ones have it: 1.96 for 0.95."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}: must lie between 0 and 1, for example 0.95")
    return round(NormalDist().inv_cdf(0.5 + confidence / 2), 2)


def share_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of a mean of shares from 0 to 1: wins 1, losses 0, and what lies between.

    The normal interval with a 0 and a 1 added (Bonett and Price 2012, for paired proportions): wide where values are
    few, even if all are the same. Raises ValueError for no values, one out of range, or a confidence out of range.
    """
    if not values or not all(0.0 <= value <= 1.0 for value in values):
        raise ValueError(f"{list(values)[:5]}: give at least one value, and each from 0 to 1")
    z = _quantile(confidence)
    n = len(values) + 2
    mean = (math.fsum(values) + 1) / n
    variance = (math.fsum(value * value for value in values) + 1) / n - mean * mean
    width = z * math.sqrt(variance / n)
    return max(0.0, mean - width), min(1.0, mean + width)


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Return the agreement of two annotators beyond chance (Cohen 1960): (observed - expected) / (1 - expected).

    1.0 where every label is the same (kappa is undefined). Raises ValueError for no items or different lengths.
    """
    if not first or len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} labels: both annotators must label the same items")
    n = len(first)
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / n
    a, b = Counter(first), Counter(second)
    expected = sum(a[label] * b[label] for label in a) / (n * n)
    return 1.0 if expected == 1.0 else (observed - expected) / (1.0 - expected)


def fleiss_kappa(ratings: Sequence[Sequence[Hashable]]) -> float:
    """Return the agreement of several raters beyond chance (Fleiss 1971): (P - P_e) / (1 - P_e).

    P is the mean share of equal pairs of an item's ratings, P_e the sum of squared shares of labels; 1.0 where every
    rating is the same. Raises ValueError for no items, fewer than two ratings, or different numbers of them.
    """
    sizes = {len(row) for row in ratings}
    if len(sizes) != 1 or min(sizes) < 2:
        raise ValueError(f"items with {sorted(sizes)} ratings: each needs the same number of them, at least two")
    n, raters = len(ratings), sizes.pop()
    counts = [Counter(row) for row in ratings]
    observed = sum(c * (c - 1) for row in counts for c in row.values()) / (n * raters * (raters - 1))
    totals = sum(counts, Counter())
    expected = sum((c / (n * raters)) ** 2 for c in totals.values())
    return 1.0 if len(totals) == 1 else (observed - expected) / (1.0 - expected)


def self_agreement(ratings: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return how well a judge agrees with itself over repeats; an item with a None among its ratings is left out.

    `judged` counts items (alone where there are none); `agreement` is the share of equal pairs of repeats; `kappa` is
    Fleiss's (Cohen's for two repeats). Numbers also have `within_one`, the share of pairs at most 1 apart, and
    `deviation`, the mean standard deviation.
    """
    whole = [list(row) for row in ratings if len(row) > 1 and None not in row]
    if not whole:
        return {"judged": 0}
    pairs = [pair for row in whole for pair in combinations(row, 2)]
    kappa = cohen_kappa(*zip(*whole, strict=True)) if len(whole[0]) == 2 else fleiss_kappa(whole)
    agreement: dict[str, Any] = {
        "judged": len(whole),
        "agreement": round(fmean(a == b for a, b in pairs), 6),
        "kappa": round(kappa, 6),
    }
    if all(isinstance(value, int) for row in whole for value in row):
        agreement["within_one"] = round(fmean(abs(a - b) <= 1 for a, b in pairs), 6)
        agreement["deviation"] = round(fmean(stdev(row) for row in whole), 6)
    return agreement
