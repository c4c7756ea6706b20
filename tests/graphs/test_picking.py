"""Goldens 15.3 and 15.4 of the specification, and the classic rules by hand."""

from __future__ import annotations

import numpy as np

from gnnrag.graphs.knowledge import Lists
from gnnrag.graphs.rendering import (
    classic_passages,
    distinct,
    gathered,
    own_passages,
    passages_in_order,
    pick,
    pick_by_vector,
    pick_by_weight,
    round_robin,
    shares,
)
from tests.helpers.each import each

ROWS = [[1, 2, 3], [2, 4, 5, 6, 7, 8], [4, 9], [10, 11, 2]]  # golden 15.4: k1, k2, ...


def test_golden_merges() -> None:
    local, other = ["E1", "E2", "E3", "E4"], ["E3", "E5", "E1", "E6", "E7"]
    assert round_robin(local, other) == ["E1", "E3", "E2", "E5", "E4", "E6", "E7"]
    merged = round_robin(["AB", "BC", "CD"], ["CB", "DE"], key=lambda pair: "".join(sorted(pair)))
    assert merged == ["AB", "CB", "DE", "CD"]
    assert round_robin(["c1", "c2", "c3"], ["c4", "c1", "c5"], ["c6", "c2"]) == ["c1", "c4", "c6", "c2", "c3", "c5"]
    assert round_robin() == round_robin([], []) == []
    assert distinct([*["E3", "E5"], *["E1", "E3"]]) == ["E3", "E5", "E1"], "classic fusion keeps the first row"


def test_golden_occurrence_and_owners() -> None:
    owned, cited = own_passages(ROWS)
    assert owned == [[2, 1, 3], [4, 5, 6, 7, 8], [9], [10, 11]]
    assert cited[2] == 3 and cited[4] == 2 and all(n == 1 for p, n in cited.items() if p not in (2, 4))


@each(
    "count, expected",
    [
        (1, [5]),
        (4, [5, 4, 2, 1]),
        (5, [5, 4, 3, 2, 1]),
        (6, [5, 4, 3, 3, 2, 1]),
        (10, [5, 5, 4, 4, 3, 3, 2, 2, 1, 1]),
        (0, []),
    ],
)
def test_golden_shares(count: int, expected: list[int]) -> None:
    assert shares(count) == expected


def test_golden_weight_and_vector() -> None:
    assert pick_by_weight(own_passages(ROWS)[0]) == [2, 1, 3, 4, 5, 6, 7, 9, 10, 8, 11]
    cosines = np.array([0.0, 0.1, 0.9, 0.2, 0.2, 0.8, 0.3, 0.05, 0.7, 0.6, 0.5, 0.4])
    assert pick_by_vector(own_passages(ROWS)[0], cosines) == [2, 5, 8, 9, 10, 11, 6, 3, 4, 1], "ten, ties in row order"


def test_a_row_left_without_passages_still_counts() -> None:
    rows = [[1, 2, 3, 4, 5, 6, 7], [1], [], [2]]
    assert pick(rows, np.zeros(8)) == [1, 2, 3, 4, 5, 6, 7], "floor(5 * 3 / 2) are asked for"
    assert pick(rows, None) == [1, 2, 3, 4, 5, 6, 7], "shares 5, 3, 1, and four of them are unused"
    assert pick(rows[:1], np.arange(8.0)) == [7, 6], "floor(5 / 2)"
    cosines = np.array([0.0, 0.1, np.nan, 0.3])
    assert pick([[1, 2, 3]], cosines) == [1, 2, 3], "weights, where a vector is missing"
    assert pick([[1, 3]], cosines) == [3, 1]
    assert pick([[1, 2, 3]], cosines, without=[2]) == [3, 1]
    assert pick([], cosines) == pick([[]], None) == []


PASSAGES = Lists.of([[0, 1, 2], [1], [1, 2], [3]])
NEIGHBOURS = Lists.of([[1, 2, 3], [0], [0], [0]])


def test_classic_passages_by_hand() -> None:
    # Passage 1 is cited by both neighbours that have it, 2 by one, 0 by none.
    assert classic_passages([0, 3], PASSAGES, NEIGHBOURS) == [1, 2, 0, 3]
    assert classic_passages([3, 2], PASSAGES, NEIGHBOURS) == [3, 1, 2]
    assert classic_passages([], PASSAGES, NEIGHBOURS) == []
    hyper = Lists.of([[2], [2, 0], [0]])
    assert classic_passages([0], PASSAGES, Lists.of([[0, 1, 2], [], [], []]), hyper) == [0, 2, 1], "of hyperedges"
    assert passages_in_order([2, 0], PASSAGES) == [1, 2, 0]
    assert passages_in_order([], PASSAGES) == []
    assert gathered(PASSAGES, np.array([3, 0, 3])).tolist() == [3, 0, 1, 2, 3]
