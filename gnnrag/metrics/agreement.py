"""Counts with their uncertainty: intervals of shares, and how well two annotators agree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from statistics import NormalDist


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of a share (Wilson 1927): the shares that a normal test would not reject.

    (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), p = successes / n, z the normal quantile to two digits, 1.96
    for 0.95, as published intervals have it. Unlike the textbook interval it stays within [0, 1] and does not collapse
    at 0 or n.

    Raises:
        ValueError: no trials, more successes than trials, or a confidence out of range.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n}: give at least one trial, and no more successes than trials")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}: must lie between 0 and 1, for example 0.95")
    z = round(NormalDist().inv_cdf(0.5 + confidence / 2), 2)
    p = successes / n
    middle, width = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At 0 and n the two terms cancel, but for rounding.
    low = 0.0 if successes == 0 else (middle - width) / scale
    return low, 1.0 if successes == n else (middle + width) / scale


def share_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of a mean of shares: wins 1, losses 0, and what lies between.

    The normal interval of the values with a 0 and a 1 added (Bonett and Price 2012 for paired proportions, where
    1/2 + (won - lost) / 2n is the mean). Unlike a bootstrap it is wide where values are few, even if all are the same.

    Args:
        values: (n,) each from 0 to 1.
        confidence: coverage of the interval.

    Raises:
        ValueError: no values, one out of range, or a confidence out of range.
    """
    if not values or not all(0.0 <= value <= 1.0 for value in values):
        raise ValueError(f"{list(values)[:5]}: give at least one value, and each from 0 to 1")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}: must lie between 0 and 1, for example 0.95")
    z = round(NormalDist().inv_cdf(0.5 + confidence / 2), 2)
    n = len(values) + 2
    mean = (math.fsum(values) + 1) / n
    variance = (math.fsum(value * value for value in values) + 1) / n - mean * mean
    width = z * math.sqrt(variance / n)
    return max(0.0, mean - width), min(1.0, mean + width)


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Return the agreement of two annotators beyond chance (Cohen 1960): (observed - expected) / (1 - expected).

    Where both gave everything one and the same label, chance explains all: kappa is undefined, and 1.0 returned.

    Raises:
        ValueError: no items, or lists of different length.
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

    P is the mean over items of the share of pairs of its ratings that are equal, P_e the sum of the squared shares of
    the labels. Where every rating is one and the same label, kappa is undefined, and 1.0 returned.

    Args:
        ratings: the labels of each item, the same number (at least two) for each.

    Raises:
        ValueError: no items, fewer than two ratings of an item, or different numbers of them.
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
