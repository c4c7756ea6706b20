from __future__ import annotations

from collections import Counter

import pytest

from gnnrag.datasets.base import stratified_sample
from gnnrag.types import Question

POPULATION = [Question(f"q{i}", "?", type="common" if i < 90 else "rare") for i in range(100)]


def types(sample: list[Question]) -> dict[str, int]:
    return dict(Counter(q.type for q in sample))


@pytest.mark.parametrize(
    "n, least, quota",
    [
        (20, 0, {"common": 18, "rare": 2}),
        (20, 5, {"common": 15, "rare": 5}),
        (20, 40, {"common": 10, "rare": 10}),
        (50, 40, {"common": 40, "rare": 10}),
        (500, 40, {"common": 90, "rare": 10}),
        (1, 0, {"common": 1}),
    ],
)
def test_quotas(n: int, least: int, quota: dict[str, int]) -> None:
    sample, weights = stratified_sample(POPULATION, n, least, 0)
    assert types(sample) == quota and weights.keys() == {q.id for q in sample}


def test_weights_make_good_what_was_oversampled() -> None:
    sample, weights = stratified_sample(POPULATION, 20, 5, 0)
    by_type = Counter[str]()
    for question in sample:
        by_type[question.type] += weights[question.id]
    assert by_type == pytest.approx({"common": 18.0, "rare": 2.0}), "shares of the population, times 20"


def test_the_draw_depends_on_the_seed_alone() -> None:
    first = stratified_sample(POPULATION, 20, 5, 0)[0]
    assert first == stratified_sample(POPULATION, 20, 5, 0)[0] != stratified_sample(POPULATION, 20, 5, 1)[0]
    assert [q for q in POPULATION if q in first] == first, "in the order of the population"
