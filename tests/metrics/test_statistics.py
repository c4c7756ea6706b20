"""Intervals, tests and agreement against hand calculations and simple reference code."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.metrics.statistics import bootstrap_interval, mcnemar, paired_difference


def test_interval_equals_a_plain_loop():
    values = np.array([0.0, 1.0, 0.5, 0.25, 1.0, 0.0, 0.75])
    rng = np.random.default_rng(3)
    means = [values[rng.integers(0, 7, size=7)].mean() for _ in range(200)]
    got = bootstrap_interval(values, resamples=200, seed=3)
    assert (got.mean, got.n) == (0.5, 7)
    assert got.low == pytest.approx(np.percentile(means, 2.5))
    assert got.high == pytest.approx(np.percentile(means, 97.5))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_interval_is_ordered_and_inside_the_data(values):
    got = bootstrap_interval(values, resamples=20)
    assert min(values) - 1e-12 <= got.low <= got.high <= max(values) + 1e-12


def test_a_clear_difference_is_found_and_has_a_direction():
    got = paired_difference([0, 1, 1], [0, 1, 1])
    assert (got.difference, got.low, got.high, got.p_value) == (0, 0, 0, 1)
    a = np.tile([0.0, 1.0, 0.0, 0.0], 50)
    b = np.tile([1.0, 1.0, 0.0, 0.0], 50)
    better, worse = paired_difference(a, b), paired_difference(b, a)
    assert better.difference == 0.25
    assert 0 < better.low < 0.25 < better.high
    assert better.p_value == better.p_floor == pytest.approx(2 / 1001)
    assert paired_difference(a, b, resamples=100).p_floor == pytest.approx(2 / 101)
    assert (worse.difference, worse.low, worse.high) == (-better.difference, -better.high, -better.low)


def test_a_p_value_counts_the_data_themselves_among_the_resamples():
    """Nine resamples and the data make ten, hence p is twice a number of tenths."""
    deltas = np.array([1.0, 1.0, 1.0, 0.5, -0.2, -0.9, -0.4])
    values = [paired_difference(np.zeros(7), deltas + shift, resamples=9).p_value for shift in (-0.4, -0.2, 0.0, 0.1)]
    assert [round(5 * p, 9) % 1 for p in values] == [0.0] * 4 and len(set(values)) > 2


@pytest.mark.parametrize("only_a, only_b", [(0, 0), (5, 0), (0, 5), (3, 9), (10, 10), (400, 500)])
def test_mcnemar_is_the_exact_binomial_test(only_a, only_b):
    n = only_a + only_b
    tail = sum(comb(n, i) for i in range(min(only_a, only_b) + 1)) / 2**n
    p_value = mcnemar([1] * only_a + [0] * only_b + [1, 0], [0] * only_a + [1] * only_b + [1, 0])
    assert p_value == pytest.approx(min(1.0, 2 * tail))
