from __future__ import annotations

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.errors import DataError
from gnnrag.gnn.stages import TripleTable
from gnnrag.graphs.messages import MessageGraph
from gnnrag.training.networks import Draws

# The graph of specs/gfm_rag.md 8.1.
TRIPLES = np.array(sorted([(0, 0, 1), (1, 1, 2), (0, 1, 3), (3, 0, 2), (4, 1, 3), (0, 0, 3)]), dtype=np.int32)
GRAPH = MessageGraph(tuple("abcde"), 0, 0, ("r", "s"), TRIPLES, Lists.of([[] for _ in range(5)]))


def row(*triple: int) -> int:
    return int(np.flatnonzero((triple == TRIPLES).all(1))[0])


@pytest.mark.parametrize("lost_head, expected", [(False, {0, 2, 4}), (True, {1, 2, 3, 4})])
def test_strict_negatives_are_those_of_the_specification(lost_head: bool, expected: set[int]) -> None:
    query = TripleTable(GRAPH).complete(row(0, 0, 1), lost_head, 9000, np.random.default_rng(0))
    assert set(query.negatives.tolist()) == expected
    shares = np.bincount(query.negatives, minlength=5)[sorted(expected)] / 9000
    assert np.allclose(shares, 1 / len(expected), atol=0.02), "drawn evenly"
    assert (query.head, query.relation, query.tail) == ((1, 2, 0) if lost_head else (0, 0, 1))


@pytest.mark.parametrize("lost_head", [False, True])
def test_the_edges_that_give_the_answer_away_are_hidden_in_both_directions(lost_head: bool) -> None:
    table = TripleTable(GRAPH)
    query = table.complete(row(0, 1, 3), lost_head, 1, np.random.default_rng(0))
    source, relation, target = GRAPH.edges
    edges = table.hidden([query])
    assert {tuple(e) for e in np.stack([source, relation, target], 1)[edges].tolist()} == {(0, 1, 3), (3, 3, 0)}
    left = np.delete(np.stack([source, relation, target], 1), edges, axis=0)
    assert not ((left[:, 0] == query.head) & (left[:, 1] == query.relation) & (left[:, 2] == query.tail)).any()


def test_draws_use_every_item_before_any_again() -> None:
    draws = Draws({"a": 5}, batch_size=2, steps=10, seed=3)
    drawn = [item for step in range(10) for _, item in draws[step]]
    assert all(sorted(drawn[i : i + 5]) == [0, 1, 2, 3, 4] for i in range(0, 20, 5))
    assert drawn[:5] != drawn[5:10]
    with pytest.raises(DataError, match="nothing to train on in a"):
        Draws({"a": 0}, 1, 1, seed=0)


def test_draws_follow_from_the_seed_and_the_square_root_of_sizes() -> None:
    sizes = {"small": 100, "none": 0, "large": 900}
    draws = Draws(sizes, 8, 500, seed=0)
    assert [draws[s] for s in range(5)] == [Draws(sizes, 8, 500, seed=0)[s] for s in range(5)]
    names = [name for step in range(500) for name, _ in draws[step]]
    assert names.count("large") / len(names) == pytest.approx(0.75, abs=0.02)
    assert set(names) == {"small", "large"}
    apart = Draws(sizes, 8, 50, seed=0, together=True)
    assert all(len({name for name, _ in apart[s]}) == 1 for s in range(50))
    half = Draws(sizes, 8, 500, seed=0, shares={"large": 1 / 3})
    assert sum(n == "large" for s in range(500) for n, _ in half[s]) / 4000 == pytest.approx(0.5, abs=0.03)
