from __future__ import annotations

from collections import Counter

import pytest

from gnnrag.datasets.base import stratified_sample
from gnnrag.types import Question

POPULATION = [Question(f"q{i}", "?", type="common" if i < 90 else "rare") for i in range(100)]


@pytest.mark.parametrize(
    "n, quota", [(20, {"common": 18, "rare": 2}), (500, {"common": 90, "rare": 10}), (1, {"common": 1})]
)
def test_types_are_drawn_in_proportion(n: int, quota: dict[str, int]) -> None:
    assert Counter(q.type for q in stratified_sample(POPULATION, n, 0)) == quota


def test_the_draw_depends_on_the_seed_alone() -> None:
    first = stratified_sample(POPULATION, 20, 0)
    assert first == stratified_sample(POPULATION, 20, 0) != stratified_sample(POPULATION, 20, 1)
    assert [q for q in POPULATION if q in first] == first, "in the order of the population"
