"""The golden cases of specs/bdtr.md 14, and the edge cases of its section 9."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.methods.base import CutResult, Pool, mean_deviation_cut, passages_behind, promote
from gnnrag.types import Ranking
from tests.helpers.parts import ranking

# Common input A: the question, then fast and slow of two rounds.
INPUT_A = [
    {"d1": 0.90, "d2": 0.80, "d3": 0.55, "d4": 0.50, "d5": 0.30},
    {"d2": 0.85, "d6": 0.70, "d3": 0.60},
    {"d7": 0.95, "d4": 0.45, "d8": 0.40},
    {"d9": 0.65, "d1": 0.88, "d10": 0.20},
    {"d11": 0.35, "d8": 0.75, "d12": 0.10},
]
INPUT_C = [
    {"a": 0.060, "b": 0.040, "c": 0.020, "e": 0.010},
    {"f": 1.0, "a": 0.7, "g": 0.6, "h": 0.0},
    {"c": 0.050, "i": 0.030, "b": 0.010},
]
G = {"d11", "d5"}


def merged(lists: list[dict[str, float]], norm: Any = "raw") -> Pool:
    pool = Pool()
    for scores in lists:
        pool.merge(ranking(scores), norm)
    return pool


def cut_of(pool: Pool, selected: Any, **settings: Any) -> CutResult:
    return mean_deviation_cut(promote(pool.ranked(), selected), pool.scores, selected, **settings)


def shown(pool: Pool) -> list[tuple[str, float]]:
    return [(i, round(pool.scores[i], 6)) for i in pool.ranked()]


def split(text: str) -> list[str]:
    return text.replace(",", " ").split()


def test_g2_a_pools() -> None:
    assert shown(merged(INPUT_A[:1])) == [("d1", 0.9), ("d2", 0.8), ("d3", 0.55), ("d4", 0.5), ("d5", 0.3)]
    assert shown(merged(INPUT_A[:3])) == [
        ("d7", 0.95), ("d1", 0.90), ("d2", 0.85), ("d6", 0.70), ("d3", 0.60), ("d4", 0.50), ("d8", 0.40), ("d5", 0.30)
    ]  # fmt: skip
    assert shown(merged(INPUT_A)) == [
        ("d7", 0.95), ("d1", 0.90), ("d2", 0.85), ("d8", 0.75), ("d6", 0.70), ("d9", 0.65), ("d3", 0.60), ("d4", 0.50),
        ("d11", 0.35), ("d5", 0.30), ("d10", 0.20), ("d12", 0.10)
    ]  # fmt: skip


def test_g2_a_promotion() -> None:
    order = promote(merged(INPUT_A).ranked(), G)
    assert order == split("d11, d5, d7, d1, d2, d8, d6, d9, d3, d4, d10, d12")


@pytest.mark.parametrize(
    "selected, promotion, mean, deviation, threshold, kept",
    [
        (G, "exempt", 0.570833, 0.269613, 0.840446, "d11 d5 d7 d1 d2"),
        (G, "order_only", 0.570833, 0.269613, 0.840446, "d11 d5 d7 d1 d2"),
        (G, "boost", 0.675000, 0.275000, 0.950000, "d11 d5 d7 d1 d2"),
        ((), "exempt", 0.570833, 0.269613, 0.840446, "d7 d1 d2 d8 d6"),
    ],
)
def test_g2_a(selected, promotion, mean, deviation, threshold, kept) -> None:  # type: ignore[no-untyped-def]
    cut = cut_of(merged(INPUT_A), selected, promotion=promotion)
    assert (cut.mean, cut.deviation) == (pytest.approx(mean, abs=1e-6), pytest.approx(deviation, abs=1e-6))
    assert cut.mean + cut.deviation == pytest.approx(threshold, abs=1e-6)
    assert list(cut.kept) == split(kept)


def test_g2_a_without_the_floor() -> None:
    """order_only keeps three by score; the promoted ones come back through the floor alone."""
    assert cut_of(merged(INPUT_A), G, promotion="order_only", floor=0).kept == ("d7", "d1", "d2")
    assert cut_of(merged(INPUT_A), (), floor=0).kept == ("d7", "d1", "d2")


G2_B = {
    "d1": 1, "d2": 1, "d7": 1, "d8": 1, "d9": 0.661765, "d3": 0.416667, "d6": 0.4, "d11": 0.384615, "d4": 0.333333,
    "d5": 0, "d10": 0, "d12": 0,
}  # fmt: skip


def test_g2_b_pool_of_truncated_lists() -> None:
    pool = merged(INPUT_A, "minmax_full")
    assert pool.scores == {k: pytest.approx(v, abs=1e-6) for k, v in G2_B.items()}
    assert pool.ranked() == list(G2_B)


@pytest.mark.parametrize(
    "promotion, threshold, kept",
    [
        ("exempt", 0.906983, "d11 d5 d1 d2 d7 d8"),
        ("order_only", 0.906983, "d11 d1 d2 d7 d8"),  # d5 is lost
        ("boost", 1.037993, "d11 d5 d1 d2 d7"),  # beyond the best score: none passes unpromoted
    ],
)
def test_g2_b(promotion, threshold, kept) -> None:  # type: ignore[no-untyped-def]
    cut = cut_of(merged(INPUT_A, "minmax_full"), G, promotion=promotion)
    assert cut.mean + cut.deviation == pytest.approx(threshold, abs=1e-6) and list(cut.kept) == split(kept)
    if promotion != "boost":
        assert (cut.mean, cut.deviation) == (pytest.approx(0.516365, abs=1e-6), pytest.approx(0.390618, abs=1e-6))


@pytest.mark.parametrize(
    "norm, order, mean, deviation, threshold, kept",
    [
        ("raw", [("f", 1), ("a", 0.7), ("g", 0.6), ("c", 0.05), ("b", 0.04), ("i", 0.03), ("e", 0.01), ("h", 0)],
         0.303750, 0.373662, 0.677412, "i f a g c"),
        ("minmax_full", [("a", 1), ("c", 1), ("f", 1), ("b", 0.6), ("g", 0.6), ("i", 0.5), ("e", 0), ("h", 0)],
         0.587500, 0.388708, 0.976208, "i a c f b"),
        ("max_scale", [("a", 1), ("c", 1), ("f", 1), ("b", 0.666667), ("g", 0.6), ("i", 0.6), ("e", 0.166667),
                       ("h", 0)],
         0.629167, 0.358018, 0.987185, "i a c f b"),
        ("rank", [("a", 0.016393), ("c", 0.016393), ("f", 0.016393), ("b", 0.016129), ("i", 0.016129), ("g", 0.015873),
                  ("e", 0.015625), ("h", 0.015625)],
         0.016070, 0.000307, 0.016378, "i a c f b"),
    ],
)  # fmt: skip
def test_g2_c_incomparable_scales(norm, order, mean, deviation, threshold, kept) -> None:  # type: ignore[no-untyped-def]
    pool = merged(INPUT_C, norm)
    assert {i: s for i, s in shown(pool)} == {i: pytest.approx(s, abs=1e-6) for i, s in order}
    assert pool.ranked() == [i for i, _ in order]
    cut = cut_of(pool, {"i"})
    assert (cut.mean, cut.deviation, cut.mean + cut.deviation) == (
        pytest.approx(mean, abs=1e-6), pytest.approx(deviation, abs=1e-6), pytest.approx(threshold, abs=1e-6)
    )  # fmt: skip
    assert list(cut.kept) == split(kept)


HARMONIC = Pool({f"n{i:02}": 1 / i for i in range(1, 61)})


def test_g2_d_order() -> None:
    order = promote(HARMONIC.ranked(), {"n55", "n58"})
    assert order[:4] == ["n55", "n58", "n01", "n02"] and order[49] == "n48"


@pytest.mark.parametrize(
    "selected, promotion, mean, deviation, threshold, kept",
    [
        ({"n55", "n58"}, "exempt", 0.089884, 0.156268, 0.246152, "n55 n58 n01 n02 n03 n04"),
        ({"n55", "n58"}, "order_only", 0.089884, 0.156268, 0.246152, "n55 n01 n02 n03 n04"),  # n58 is lost
        ({"n55", "n58"}, "boost", 0.129176, 0.236220, 0.365396, "n55 n58 n01 n02 n03"),
        ((), "exempt", 0.089984, 0.156223, 0.246207, "n01 n02 n03 n04 n05"),
    ],
)
def test_g2_d(selected, promotion, mean, deviation, threshold, kept) -> None:  # type: ignore[no-untyped-def]
    cut = cut_of(HARMONIC, selected, promotion=promotion)
    assert (cut.mean, cut.deviation, cut.mean + cut.deviation) == (
        pytest.approx(mean, abs=1e-6), pytest.approx(deviation, abs=1e-6), pytest.approx(threshold, abs=1e-6)
    )  # fmt: skip
    assert list(cut.kept) == split(kept)


def test_g2_e_equal_scores() -> None:
    cut = cut_of(Pool({f"x{i}": 0.4 for i in range(1, 8)}), {"x6"})
    assert cut.kept == ("x6", "x1", "x2", "x3", "x4")


def test_g2_f_fewer_than_the_floor() -> None:
    cut = cut_of(Pool({"u": 0.9, "v": 0.5, "w": 0.1}), {"w"})
    assert (cut.mean, cut.deviation, cut.mean + cut.deviation) == (
        0.5, pytest.approx(0.326599, abs=1e-6), pytest.approx(0.826599, abs=1e-6)
    )  # fmt: skip
    assert cut.kept == ("w", "u", "v")


def test_g2_g_two_values() -> None:
    pool = Pool({f"m{i:02}": float(i < 25) for i in range(50)})
    cut = cut_of(pool, ())
    assert (cut.mean, cut.deviation, cut.mean + cut.deviation) == (0.5, 0.5, 1.0)
    assert cut.kept == tuple(f"m{i:02}" for i in range(10))
    assert len(cut_of(pool, (), max_final=None).kept) == 25


@pytest.mark.parametrize("high", [1.0, 0.9, 0.7, 1e-7])
def test_two_values_reach_the_literal_threshold_whatever_rounding_does(high: float) -> None:
    pool = Pool({f"m{i:02}": high if i < 25 else high / 3 for i in range(50)})
    assert len(cut_of(pool, (), promotion="order_only", max_final=None).kept) == 25


# ----------------------------------------------------------------------------------------- section 9, edge cases
def test_statistics_over_the_window_but_the_cut_over_the_whole_pool() -> None:
    """Ten low promoted passages fill half the window; passages past it pass all the same."""
    low = {f"g{i}": 0.0 for i in range(5)}
    pool = Pool({f"h{i:02}": 1.0 for i in range(6)} | low)
    cut = cut_of(pool, low, window=10, max_final=None)
    assert cut.mean == 0.5 and cut.deviation == 0.5
    assert cut.kept == (*low, *(f"h{i:02}" for i in range(6)))


@pytest.mark.parametrize("value", [0.4, 0.7, 0.1, 1e-12, 0.0, -3.0])
@pytest.mark.parametrize("promotion", ["exempt", "boost"])
def test_equal_scores_are_no_coin_toss(value: float, promotion: Any) -> None:
    """By the letter all of them reach mean + 0; ours keeps what was promoted, and fills to the floor."""
    pool = Pool({f"x{i:02}": value for i in range(60)})
    assert cut_of(pool, {"x40"}, promotion=promotion).kept == ("x40", "x00", "x01", "x02", "x03")
    assert cut_of(pool, (), promotion=promotion).kept == ("x00", "x01", "x02", "x03", "x04")
    literal = cut_of(pool, {"x40"}, promotion="order_only", max_final=None)
    assert literal.kept == ("x40", *(i for i in pool.scores if i != "x40"))


def test_an_empty_pool() -> None:
    assert cut_of(Pool(), ()) == CutResult((), 0.0, 0.0)
    assert cut_of(Pool(), {"gone"}) == CutResult((), 0.0, 0.0)


def test_a_selection_outside_the_pool_is_ignored() -> None:
    assert cut_of(Pool({"a": 1.0, "b": 0.5}), {"z", "b"}).kept == ("b", "a")


# ------------------------------------------------------------------------------------------------------- merging
def test_merge_takes_the_best_and_counts_the_new() -> None:
    pool = Pool()
    assert pool.merge(ranking({"a": 3.0, "b": 1.0}), "raw") == 2
    assert pool.merge(ranking({"b": 2.0, "a": 1.0, "c": 0.5}), "raw") == 1
    assert pool.scores == {"a": 3.0, "b": 2.0, "c": 0.5} and len(pool) == 3
    assert pool.ranked() == ["a", "b", "c"] and pool.top(2) == ["a", "b"] and pool.top(9) == ["a", "b", "c"]


def test_merge_weighs_normalised_scores() -> None:
    pool = Pool()
    pool.merge(ranking({"a": 10.0, "b": 0.0}))
    pool.merge(ranking({"c": 5.0, "b": 0.0}), weight=0.95)
    assert pool.scores == {"a": 1.0, "b": 0.0, "c": 0.95}


def test_a_passage_behind_several_hits_has_the_best_ones_score() -> None:
    sources = (("p", "q"), ("q",), ("r", "p"))
    hits = Ranking(("e1", "e2", "e3"), np.array([0.9, 0.5, 0.5]), "entity", sources=sources)
    behind = passages_behind(hits)
    assert behind.ids == ("p", "q", "r") and behind.scores.tolist() == [0.9, 0.9, 0.5] and behind.kind == "passage"


def test_merge_drops_nan() -> None:
    pool = Pool()
    scores = Ranking(("a", "b", "c"), np.array([2.0, np.nan, 1.0]))
    for norm in ("raw", "rank", "max_scale", "minmax_full"):
        pool = Pool()
        assert pool.merge(scores, norm) == 2 and set(pool.scores) == {"a", "c"}  # type: ignore[arg-type]


def test_ties_keep_the_first_seen_in_front() -> None:
    pool = Pool()
    pool.merge(ranking({"z": 1.0, "y": 0.5}), "raw")
    pool.merge(ranking({"a": 1.0, "x": 0.5}), "raw")
    assert pool.ranked() == ["z", "a", "y", "x"]


lists = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 4).map(float), max_size=8), max_size=3)


@given(lists, lists.filter(bool), st.sampled_from(["raw", "rank", "max_scale", "minmax_full"]))
def test_exchanging_fast_and_slow_changes_ties_at_most(before, thoughts, norm) -> None:  # type: ignore[no-untyped-def]
    one, other = merged([*before, *thoughts], norm), merged([*before, *reversed(thoughts)], norm)
    assert one.scores == other.scores
    assert [one.scores[i] for i in one.ranked()] == [other.scores[i] for i in other.ranked()]


@given(
    st.dictionaries(st.text("abcdefghij", min_size=1, max_size=2), st.floats(-1, 1), max_size=30),
    st.sets(st.text("abcdefghij", min_size=1, max_size=2), max_size=5),
    st.sampled_from(["exempt", "order_only", "boost"]),
    st.integers(0, 6),
    st.none() | st.integers(1, 12),
)
def test_what_holds_for_every_cut(scores, selected, promotion, floor, max_final) -> None:  # type: ignore[no-untyped-def]
    pool = Pool(scores)
    order = promote(pool.ranked(), selected)
    cut = mean_deviation_cut(order, scores, selected, promotion=promotion, floor=floor, max_final=max_final)
    assert sorted(order) == sorted(scores)
    assert list(cut.kept) == [i for i in order if i in set(cut.kept)], "reading order"
    least = min(floor, len(order), max_final or len(order))
    assert least <= len(cut.kept) <= (max_final or len(order))
    if promotion == "exempt" and (max_final is None or len(selected) <= max_final):
        assert selected & set(scores) <= set(cut.kept)
