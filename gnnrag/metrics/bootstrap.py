"""Uncertainty of a mean over questions, and of the difference between two runs on the same questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

    `p_floor` is the smallest p-value that so many resamples, and so many questions that differ, can give: one at the
    floor is "at most", not "equal".
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
    """Return the mean of `values` with its percentile interval over resampled questions.

    Args:
        values: (n,) one value per question.
        resamples: how many samples of n questions are drawn, with replacement.
        confidence: coverage of the interval.
        seed: the same seed and n draw the same samples, so intervals of several metrics belong together.

    Raises:
        ValueError: no values, a value is not finite, or a setting is out of range.
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
    """Compare two runs question by question; positive means that `b` is better.

    Args:
        a: (n,) values of the first run.
        b: (n,) values of the second run, for the same questions in the same order.
        resamples: as in `bootstrap_interval`.
        confidence: as in `bootstrap_interval`.
        seed: as in `bootstrap_interval`.

    Raises:
        ValueError: the lengths differ, or as in `bootstrap_interval`.
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

    Args:
        a: (n,) whether the first run was right; 0/1 or booleans.
        b: (n,) the same for the second run, same questions, same order.

    Raises:
        ValueError: the lengths differ, there are no values, or a value is neither 0 nor 1.
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
