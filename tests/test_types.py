from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.types import Hit, Passage, Ranking

SCORES = np.array([8.0, 4.0, 2.0])


def make(scores: np.ndarray = SCORES, **more) -> Ranking:  # type: ignore[no-untyped-def]
    return Ranking(tuple("abcdefgh"[: len(scores)]), scores, **more)


@pytest.mark.parametrize(
    "norm, low, high, want",
    [
        ("raw", None, None, [8, 4, 2]),
        ("raw", 0.0, 10.0, [8, 4, 2]),
        ("rank", None, None, [1 / 61, 1 / 62, 1 / 63]),
        ("rank", 0.0, 10.0, [1 / 61, 1 / 62, 1 / 63]),
        ("max_scale", None, None, [1, 0.5, 0.25]),
        ("max_scale", 0.0, 16.0, [0.5, 0.25, 0.125]),
        ("minmax_full", None, None, [1, 1 / 3, 0]),
        ("minmax_full", 0.0, None, [1, 0.5, 0.25]),
        ("minmax_full", 0.0, 16.0, [0.5, 0.25, 0.125]),
        ("minmax_full", -2.0, 8.0, [1, 0.6, 0.4]),
    ],
)
def test_normalised(norm, low, high, want) -> None:  # type: ignore[no-untyped-def]
    assert make(low=low, high=high).normalised(norm).tolist() == pytest.approx(want)


@pytest.mark.parametrize("norm", ["minmax_full", "max_scale", "rank", "raw"])
def test_nothing_retrieved(norm) -> None:  # type: ignore[no-untyped-def]
    assert make(np.zeros(0)).normalised(norm).tolist() == []


def test_equal_scores_are_all_the_best() -> None:
    assert make(np.full(3, 0.7)).normalised().tolist() == [1, 1, 1]
    assert make(np.zeros(2), low=0.0, high=0.0).normalised().tolist() == [1, 1]
    assert make(np.zeros(2)).normalised("max_scale").tolist() == [1, 1]
    assert make(np.array([-1.0, -2.0])).normalised("max_scale").tolist() == [1, 1]


@pytest.mark.parametrize("norm", ["minmax_full", "max_scale", "rank", "raw"])
def test_nan_stays_and_harms_no_other(norm) -> None:  # type: ignore[no-untyped-def]
    values = make(np.array([8.0, np.nan, 2.0])).normalised(norm)
    clean = make(np.array([8.0, 5.0, 2.0])).normalised(norm)
    assert np.isnan(values[1]) and values[[0, 2]].tolist() == clean[[0, 2]].tolist()
    assert np.isnan(make(np.array([np.nan, np.nan])).normalised(norm)).all()


scores = st.lists(st.integers(-1000, 1000), min_size=1, max_size=8).map(
    lambda v: np.array(sorted(v, reverse=True), dtype=np.float64)
)


@given(scores, st.integers(1, 64), st.integers(-1000, 1000))
def test_minmax_does_not_know_scale_and_shift(s: np.ndarray, scale: int, shift: int) -> None:
    # Powers of two and whole numbers keep floating point exact.
    other = make(s * 2.0**scale + shift) if scale < 20 else make(s * 4 + shift)
    assert other.normalised().tolist() == make(s).normalised().tolist()


def test_hits() -> None:
    assert make().hits == [Hit("a", 8.0, 1), Hit("b", 4.0, 2), Hit("c", 2.0, 3)]
    paths = make(SCORES[:1], kind="path", texts=("a -> b",), sources=(("p1", "p2"),))
    assert paths.hits == [Hit("a", 8.0, 1, "path", "a -> b", ("p1", "p2"))]
    assert len(make()) == 3


def test_content_is_title_and_text() -> None:
    assert Passage("p", "T", "x").content == "T\nx"
    assert Passage("p", "", "x").content == "x"
