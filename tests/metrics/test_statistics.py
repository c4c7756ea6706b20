"""Intervals, tests and agreement against hand calculations and simple reference code."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.metrics import statistics as bootstrap
from gnnrag.metrics.statistics import (
    bootstrap_interval,
    cohen_kappa,
    fleiss_kappa,
    mcnemar,
    paired_difference,
    share_interval,
    wilson_interval,
    with_interval,
)
from tests.helpers.each import each


def test_interval_equals_a_plain_loop():
    values = np.array([0.0, 1.0, 0.5, 0.25, 1.0, 0.0, 0.75])
    rng = np.random.default_rng(3)
    means = [values[rng.integers(0, 7, size=7)].mean() for _ in range(200)]
    got = bootstrap_interval(values, resamples=200, confidence=0.9, seed=3)
    assert (got.mean, got.n) == (0.5, 7)
    assert got.low == pytest.approx(np.percentile(means, 5))
    assert got.high == pytest.approx(np.percentile(means, 95))


def test_interval_has_the_width_of_the_normal_one():
    values = np.arange(1000) % 2  # standard error 0.5 / sqrt(1000)
    got = bootstrap_interval(values)
    assert got.high - got.low == pytest.approx(2 * 1.96 * 0.5 / 1000**0.5, rel=0.1)
    assert got == bootstrap_interval(values)
    assert got != bootstrap_interval(values, seed=1)


def test_memory_blocks_do_not_change_the_result(monkeypatch):
    values = np.random.default_rng(0).random(40)
    whole = bootstrap_interval(values, resamples=100)
    monkeypatch.setattr(bootstrap, "_BLOCK", 200)
    assert bootstrap_interval(values, resamples=100) == whole


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
    found = [paired_difference(np.zeros(7), deltas + shift, resamples=9).p_value for shift in (-0.4, -0.2, 0.0, 0.1)]
    assert [round(5 * p, 9) % 1 for p in found] == [0.0] * 4 and len(set(found)) > 2


def test_pairing_beats_comparing_two_intervals():
    a = np.random.default_rng(0).random(200)
    b = a + 0.01
    assert bootstrap_interval(a).high > bootstrap_interval(b).low  # the separate intervals overlap
    assert paired_difference(a, b).low == pytest.approx(0.01)


@each("only_a, only_b", [(0, 0), (5, 0), (0, 5), (3, 9), (10, 10), (400, 500)])
def test_mcnemar_is_the_exact_binomial_test(only_a, only_b):
    n = only_a + only_b
    tail = sum(comb(n, i) for i in range(min(only_a, only_b) + 1)) / 2**n
    a = [1] * only_a + [0] * only_b + [1, 0]
    b = [0] * only_a + [1] * only_b + [1, 0]
    got = mcnemar(a, b)
    assert (got.only_a, got.only_b) == (only_a, only_b)
    assert got.p_value == pytest.approx(min(1.0, 2 * tail))


@each(
    "call, message",
    [
        (lambda: bootstrap_interval([]), "at least one question"),
        (lambda: bootstrap_interval([1.0, float("nan")]), r"not finite \(question 1\)"),
        (lambda: bootstrap_interval([1.0], resamples=0), "resamples=0: must be at least 1"),
        (lambda: bootstrap_interval([1.0], confidence=95), "confidence=95: must lie between 0 and 1"),
        (lambda: paired_difference([1.0, 0.0], [1.0]), "a has 2 questions, b has 1"),
        (lambda: mcnemar([0.5], [1.0]), "needs right or wrong"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_value_with_its_interval():
    assert with_interval(0.12345) == "0.123"
    assert with_interval(0.5, (0.25, 0.75)) == "0.500 [0.250, 0.750]"
    assert with_interval(2.0, [1.0, 3.25], digits=1) == "2.0 [1.0, 3.2]"


def test_few_questions_are_never_significant() -> None:
    """A resample of three equal differences is those differences again."""
    few = paired_difference([1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 1.0])
    assert few.p_value == few.p_floor == 0.25
    assert paired_difference([1.0, 0.5], [1.0, 0.5]).p_value == 1.0


@each(
    "successes, n, low, high",
    [(176, 200, 0.827656, 0.918021), (52, 100, 0.423164, 0.615356), (6, 40, 0.070611, 0.290726)],
)
def test_golden_intervals(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=1e-6)


def test_ends_stay_in_range_and_more_confidence_and_fewer_trials_are_wider() -> None:
    none, every = wilson_interval(0, 7), wilson_interval(7, 7)
    assert none[0] == 0.0 and every[1] == 1.0 and 0 < none[1] < 1
    assert (1 - every[1], 1 - every[0]) == pytest.approx(none)
    low, high = wilson_interval(5, 10)
    assert wilson_interval(5, 10, 0.99)[0] < low and wilson_interval(50, 100)[0] > low
    assert (low + high) / 2 == pytest.approx(0.5)


@each("outcomes", [(0, 0), (3, 2), (-1, 2), (1, 2, 1.0)])
def test_what_has_no_interval(outcomes: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"give at least one trial|must lie between"):
        wilson_interval(*outcomes)


@each("values, confidence", [([], 0.95), ([1.5], 0.95), ([-0.1], 0.95), ([1.0], 1.0)])
def test_what_has_no_interval_of_shares(values: list[float], confidence: float) -> None:
    with pytest.raises(ValueError, match=r"give at least|must lie between"):
        share_interval(values, confidence)


def test_kappa_by_hand() -> None:
    first = ["a"] * 25 + ["b"] * 25
    second = ["a"] * 20 + ["b"] * 5 + ["a"] * 10 + ["b"] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)  # observed 0.7, expected 0.5 * 0.6 + 0.5 * 0.4
    assert cohen_kappa(["a", "b"], ["b", "a"]) == pytest.approx(-1.0)
    assert cohen_kappa([1, 2, 3], [1, 2, 3]) == 1.0 and cohen_kappa(["a", "a"], ["a", "a"]) == 1.0
    with pytest.raises(ValueError, match="2 and 1 labels"):
        cohen_kappa(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="0 and 0 labels"):
        cohen_kappa([], [])


def test_fleiss_kappa() -> None:
    # 3 raters, 4 items: pairs that agree 1, 1/3, 1/3, 1; labels a 7, b 5 of 12.
    ratings = ["aaa", "aab", "aab", "bbb"]
    expected = (7 / 12) ** 2 + (5 / 12) ** 2
    assert fleiss_kappa(ratings) == pytest.approx(((1 + 1 / 3 + 1 / 3 + 1) / 4 - expected) / (1 - expected))
    assert fleiss_kappa(["ab", "ba"]) == -1.0 and fleiss_kappa(["aa", "aa"]) == 1.0 == fleiss_kappa(["aa", "bb"])
    for broken in ([], ["a", "b"], ["ab", "abc"]):
        with pytest.raises(ValueError, match="the same number"):
            fleiss_kappa(broken)


def test_the_interval_of_shares() -> None:
    # Bonett and Price for 46 won, 54 lost of 100: d = (47 - 55) / 102, half the width 1.96 sqrt((1 - d^2) / 102).
    d = -8 / 102
    width = 1.96 * ((1 - d * d) / 102) ** 0.5
    assert share_interval([1.0] * 46 + [0.0] * 54) == pytest.approx((0.5 + (d - width) / 2, 0.5 + (d + width) / 2))
    low, high = share_interval([1.0])
    assert low < 0.2 and high == 1.0, "one win is no proof"
    low, high = share_interval([0.5] * 5)
    assert low < 0.45 and high == pytest.approx(1 - low)
    widths = [high - low for low, high in (share_interval([0.5] * n) for n in (1, 10, 100))]
    assert widths == sorted(widths, reverse=True) and widths[-1] < 0.03
    assert share_interval([1.0, 0.5], 0.99)[0] < share_interval([1.0, 0.5])[0]
