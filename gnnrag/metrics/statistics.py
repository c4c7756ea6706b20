"""Intervals and tests over questions: bootstrap, paired differences, and McNemar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Values = Sequence[float] | np.ndarray


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95% percentile bootstrap interval."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of `b - a` over questions, its interval, and the two-sided bootstrap p-value of "no difference"."""

    difference: float
    low: float
    high: float
    p_value: float
    p_floor: float  # the smallest p-value that so many resamples and differing questions can give


def with_interval(value: float, interval: Sequence[float] | None = None, digits: int = 3) -> str:
    """Return a value for a table: `0.123`, and `0.123 [0.100, 0.150]` where its interval (low, high) is known."""
    return f"{value:.{digits}f}" + (f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]" if interval else "")


def bootstrap_interval(values: Values, resamples: int = 1000, seed: int = 0) -> Interval:
    """Return the mean of `values` (n,) and its percentile interval over resampled questions.

    The same seed and n draw the same samples, so that intervals of several metrics belong together.
    """
    data = _one_per_question(values)
    low, high = np.percentile(_resampled_means(data, resamples, seed), (2.5, 97.5))
    return Interval(float(data.mean()), float(low), float(high), len(data))


def paired_difference(a: Values, b: Values, resamples: int = 1000, seed: int = 0) -> Difference:
    """Compare two runs, `a` and `b` (n,) on the same questions in order; positive means that `b` is better."""
    first, second = _one_per_question(a), _one_per_question(b)
    delta = second - first
    means = _resampled_means(delta, resamples, seed)
    low, high = np.percentile(means, (2.5, 97.5))
    # One is added to both counts: with finitely many resamples a p-value of exactly 0 would claim too much.
    tails = [(int(np.count_nonzero(side)) + 1) / (resamples + 1) for side in (means <= 0.0, means >= 0.0)]
    # A test that flips the signs of the differing questions could not give less than this either.
    floor = min(1.0, max(2.0 / (resamples + 1), 2.0 ** (1 - int(np.count_nonzero(delta)))))
    p_value = min(1.0, max(floor, 2.0 * min(tails)))
    return Difference(float(delta.mean()), float(low), float(high), p_value, floor)


def mcnemar(a: Values, b: Values) -> float:
    """Return the exact two-sided p-value of "two runs, 0 or 1 per question (n,), are right equally often"."""
    from scipy.stats import binomtest

    first, second = _one_per_question(a), _one_per_question(b)
    only_a, differing = int(np.sum(first > second)), int(np.sum(first != second))
    return float(binomtest(only_a, differing).pvalue) if differing else 1.0


def _resampled_means(data: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    rng, n = np.random.default_rng(seed), len(data)
    step = max(1, 1_000_000 // n)  # resamples at once, of 16 MB
    sizes = (min(step, resamples - start) for start in range(0, resamples, step))
    return np.concatenate([data[rng.integers(0, n, size=(size, n))].mean(axis=1) for size in sizes])


def _one_per_question(values: Values) -> np.ndarray:
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not len(data) or not np.isfinite(data).all():
        raise ValueError(f"values of shape {data.shape}: give one finite value per question, for at least one question")
    return data
