"""What a query gains over a pool."""

from __future__ import annotations

import pytest

from gnnrag.training.rows import DEPTH, Gain, ThoughtsRow, gain, gain_of, gold_ranks, query_gains
from tests.helpers.each import each
from tests.helpers.parts import ToyRetriever


@each(
    "ranking, pool, expected",
    [
        ("axy", "xyz", Gain(1.0, ("a",))),  # missing, and found first
        ("xay", "xyz", Gain(0.5, ("a",))),
        ("axy", "xay", Gain(0.5)),  # raised from the second place to the first
        ("xay", "axy", Gain(0.0)),  # lowered: nothing is lost, the pool keeps it
        ("abx", "bxy", Gain(1.0, ("a",))),  # b falls from 1 to 2, which counts as nothing
        ("bax", "xya", Gain(1 + 1 / 2 - 1 / 3, ("b",))),
        ("xyz", "xyz", Gain()),
        ("", "xyz", Gain()),
        ("ba", "", Gain(1.5, ("b", "a"))),
    ],
)
def test_a_gain_is_what_reciprocal_ranks_rise_by(ranking: str, pool: str, expected: Gain) -> None:
    found = gain(ranking, pool, {"a", "b"})
    assert found.value == pytest.approx(expected.value) and found.new == expected.new
    assert found.helped == (expected.value > 0)


def test_only_the_first_passages_count() -> None:
    deep = [f"x{n}" for n in range(DEPTH)] + ["a"]
    assert gain(deep, [], {"a"}) == Gain() and gold_ranks(deep, {"a"}, DEPTH + 1) == {"a": DEPTH + 1}
    assert gain(["a"], deep, {"a"}) == Gain(1.0, ("a",)), "what no verifier sees is missing"
    assert gain_of({"a": 2}, ["x", "a"], depth=1) == Gain(0.5, ("a",))


def test_queries_are_labelled_at_a_recorded_decision() -> None:
    data = {"id": "r", "set": "s", "question_id": "q", "question": "Q", "passages": (), "fast": "f"}
    row = ThoughtsRow.model_validate(data | {"pool": ("x", "a"), "gold": ("a", "b")})
    retriever = ToyRetriever({"good": {"b": 2.0, "a": 1.0}, "bad": {"x": 1.0}})
    assert query_gains(row, ["bad", " ", "good"], retriever.retrieve) == [Gain(), Gain(), Gain(1.0, ("b",))]
    assert retriever.asked == ["bad", "good"] and retriever.batches == [2]
    assert query_gains(row, [""], lambda queries: pytest.fail(str(queries))) == [Gain()]
