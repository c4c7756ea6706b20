from __future__ import annotations

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.errors import DataError
from gnnrag.gnn.stages import TripleTable
from gnnrag.graphs.messages import MessageGraph
from gnnrag.training.networks import deal
from tests.helpers.trainings import batches

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
    drawn = [item.example for item in deal({"a": range(5)}, steps=10, batch_size=2, seed=3)]
    assert all(sorted(drawn[i : i + 5]) == [0, 1, 2, 3, 4] for i in range(0, 20, 5))
    assert drawn[:5] != drawn[5:10]
    with pytest.raises(DataError, match="nothing to train on in a"):
        deal({"a": ()}, 1, 1, seed=0)


def test_draws_follow_from_the_seed_and_the_square_root_of_sizes() -> None:
    sets = {"small": range(100), "none": range(0), "large": range(900)}
    items = deal(sets, 500, 8, seed=0)
    assert items == deal(sets, 500, 8, seed=0) != deal(sets, 500, 8, seed=1)
    assert items[7].rng.random() == items[7].rng.random() != items[8].rng.random()
    names = [item.set for item in items]
    assert names.count("large") / len(names) == pytest.approx(0.75, abs=0.02)
    assert set(names) == {"small", "large"}
    apart = deal(sets, 50, 8, seed=0, together=True)
    assert all(len({item.set for item in batch}) == 1 for batch in batches(apart, 8))
    half = deal(sets, 500, 8, seed=0, shares={"large": 1 / 3})
    assert sum(item.set == "large" for item in half) / 4000 == pytest.approx(0.5, abs=0.03)
