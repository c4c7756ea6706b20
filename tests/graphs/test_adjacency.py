"""Rows of neighbours with the relations that lead there."""

from itertools import pairwise

import numpy as np
import pytest

from gnnrag.graphs.knowledge import Adjacency
from tests.helpers.each import each

# 0 - 1 - 2 - 3, 1 = 4 (two relations, one each way round), 4 - 3, a self-loop on 2, 5 alone.
ENDS = np.array([[0, 1], [2, 1], [2, 3], [1, 4], [4, 1], [4, 3], [2, 2]])


def test_slots_are_sorted_and_know_their_relation():
    adjacency = Adjacency(ENDS, 6)
    slots = list(zip(adjacency.neighbours.tolist(), adjacency.relations.tolist(), strict=True))
    rows = [slots[a:b] for a, b in pairwise(adjacency.indptr.tolist())]
    assert rows == [[(1, 0)], [(0, 0), (2, 1), (4, 3), (4, 4)], [(1, 1), (3, 2)], [(2, 2), (4, 5)],
                    [(1, 3), (1, 4), (3, 5)], []]  # fmt: skip
    assert adjacency.degree.tolist() == [1, 3, 2, 2, 2, 0]
    assert adjacency.neighbours_of(1).tolist() == [0, 2, 4]
    assert adjacency.relations_between(4, 1).tolist() == adjacency.relations_between(1, 4).tolist() == [3, 4]
    assert adjacency.relations_between(0, 3).tolist() == adjacency.relations_between(5, 0).tolist() == []
    assert adjacency.reach(np.array([4, 0])).tolist() == [1, 3, 1]


def test_a_graph_may_be_empty():
    adjacency = Adjacency(np.zeros((0, 2), dtype=np.int32), 2)
    assert adjacency.degree.tolist() == [0, 0]
    assert adjacency.neighbours_of(1).tolist() == []


@each("ends, message", [([[0, 6]], "0 to 5"), ([[-1, 0]], "0 to 5"), ([0, 1], r"\(num_relations, 2\)")])
def test_ends_are_checked(ends, message):
    with pytest.raises(ValueError, match=message):
        Adjacency(np.array(ends), 6)
