from __future__ import annotations

import pytest

from gnnrag.metrics.statistics import cohen_kappa, fleiss_kappa, share_interval, wilson_interval
from tests.helpers.each import each


@each(
    "successes, n, low, high",
    [(176, 200, 0.827656, 0.918021), (52, 100, 0.423164, 0.615356), (6, 40, 0.070611, 0.290726)],
)
def test_golden_intervals(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=1e-6)


def test_the_ends_stay_in_range_and_mirror_each_other() -> None:
    none, every = wilson_interval(0, 7), wilson_interval(7, 7)
    assert none[0] == 0.0 and every[1] == 1.0 and 0 < none[1] < 1
    assert (1 - every[1], 1 - every[0]) == pytest.approx(none)


def test_more_confidence_and_fewer_trials_are_wider() -> None:
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


def test_kappa_wants_the_same_items() -> None:
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
