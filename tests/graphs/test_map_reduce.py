"""Golden examples of Microsoft GraphRAG's global and local search (ranking, batching, reduce order, budgets)."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.graphs.communities import Communities
from gnnrag.retrievers.graphrag.reports import deepest, fill_batches, keep_points, shuffled


def test_report_ranking_and_batching() -> None:
    none, passages = np.zeros(3, np.int32), Lists.of([[0, 1, 2], [3], [0, 3, 4, 5]])
    communities = Communities(("a", "b", "c"), none, none, passages, passages, passages)
    assert communities.occurrence.tolist() == pytest.approx([0.75, 0.25, 1.0], abs=1e-6)
    batches = fill_batches(shuffled(3), [400, 500, 300], 1000, 20)
    assert [set(b) for b in batches] == [{2, 1}, {0}]


@pytest.mark.parametrize(
    "count, order", [(3, [2, 1, 0]), (4, [3, 1, 2, 0]), (5, [1, 4, 3, 2, 0]), (8, [3, 1, 5, 6, 7, 2, 4, 0])]
)
def test_permutations_of_seed_86(count: int, order: list[int]) -> None:
    random.seed(7)
    state = random.getstate()
    assert shuffled(count) == order
    assert random.getstate() == state, "global random state is nobody's"


def test_an_oversized_report_travels_alone() -> None:
    """Q-NG-2: nano-graphrag's grouping would never end."""
    assert fill_batches([0, 1, 2, 3], [50, 5000, 60, 30], 100, 10) == [[0], [1], [2, 3]]
    assert fill_batches([1], [5000, 5000], 100) == [[1]]
    assert fill_batches([], [], 100) == []


def test_reduce_order() -> None:
    names = ["p1", "x", "p2", "p3", "p4"]
    scores, tokens = [80, 0, 55, 80, 20], [30, 5, 50, 40, 10]
    ranked, kept = keep_points(scores, tokens, 110)
    assert [names[i] for i in ranked] == ["p1", "p3", "p2", "p4"], "stable on ties, 0 dropped"
    assert [names[i] for i in kept] == ["p1", "p3"] and sum(tokens[i] for i in kept) == 70
    assert [names[i] for i in keep_points(scores, tokens, 110, skip_large=True)[1]] == ["p1", "p3", "p4"]


def hierarchy() -> Communities:
    """Two communities at the top, of two parts each; the first part of the first has two parts again."""
    members = [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3], [4, 5], [6, 7], [8, 9], [0, 1], [2, 3]]
    levels, parents = [0, 0, 1, 1, 1, 1, 2, 2], [-1, -1, 0, 0, 1, 1, 2, 2]
    none = Lists.of([[]] * 8)
    return Communities(tuple("abcdefgh"), np.array(levels), np.array(parents), Lists.of(members), none, none)


def test_roll_up_to_the_deepest_report() -> None:
    """Q-MS-6."""
    c = hierarchy()
    assert deepest(c, 0) == [0, 1] and deepest(c, 1) == [2, 3, 4, 5] and deepest(c, 2) == [3, 4, 5, 6, 7]
    alone = replace(c, members=Lists.of([[0, 1, 2, 3, 4, 5, 10], *(c.members[i].tolist() for i in range(1, 8))]))
    assert deepest(alone, 2) == [0, 3, 4, 5, 6, 7], "entity 10 is in no part"
