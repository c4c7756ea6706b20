"""Goldens 15.3 and 15.4 of specs/graph_kbs.md, the classic rules by hand; edges, their ranking, how they are shown."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.graphs.rendering import (
    GraphHits,
    Renderer,
    distinct,
    passages_in_order,
    round_robin,
)
from gnnrag.retrievers.knowledge import classic_passages
from gnnrag.retrievers.lightrag import (
    current_passages,
    own_passages,
    pick,
    pick_by_vector,
    pick_by_weight,
    seed_edges,
    shares,
)
from gnnrag.text.tokens import TokenCounter
from gnnrag.types import Passage
from tests.helpers.knowledge import knowledge

ROWS = [[1, 2, 3], [2, 4, 5, 6, 7, 8], [4, 9], [10, 11, 2]]  # golden 15.4: k1, k2, ...


def test_golden_merges() -> None:
    local, other = ["E1", "E2", "E3", "E4"], ["E3", "E5", "E1", "E6", "E7"]
    assert round_robin(local, other) == ["E1", "E3", "E2", "E5", "E4", "E6", "E7"]
    assert round_robin(["c1", "c2", "c3"], ["c4", "c1", "c5"], ["c6", "c2"]) == ["c1", "c4", "c6", "c2", "c3", "c5"]
    assert round_robin() == round_robin([], []) == []
    assert distinct([*["E3", "E5"], *["E1", "E3"]]) == ["E3", "E5", "E1"], "of equal ones the first stays"


def test_golden_owners() -> None:
    assert own_passages(ROWS) == [[2, 1, 3], [4, 5, 6, 7, 8], [9], [10, 11]]


def test_golden_weight_and_vector() -> None:
    assert shares(6) == [5, 4, 3, 3, 2, 1] and shares(0) == []
    assert pick_by_weight(own_passages(ROWS)) == [2, 1, 3, 4, 5, 6, 7, 9, 10, 8, 11]
    cosines = np.array([0.0, 0.1, 0.9, 0.2, 0.2, 0.8, 0.3, 0.05, 0.7, 0.6, 0.5, 0.4])
    assert pick_by_vector(own_passages(ROWS), cosines) == [2, 5, 8, 9, 10, 11, 6, 3, 4, 1], "ten, ties in row order"


def test_a_row_left_without_passages_still_counts() -> None:
    rows = [[1, 2, 3, 4, 5, 6, 7], [1], [], [2]]
    assert pick(rows, np.zeros(8)) == [1, 2, 3, 4, 5, 6, 7], "floor(5 * 3 / 2) are asked for"
    assert pick(rows, None) == [1, 2, 3, 4, 5, 6, 7], "shares 5, 3, 1, and four of them are unused"
    assert pick(rows[:1], np.arange(8.0)) == [7, 6], "floor(5 / 2)"
    cosines = np.array([0.0, 0.1, 0.2, 0.3])
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
    assert PASSAGES.at([3, 0, 3]).tolist() == [3, 0, 1, 2, 3]


# Positions: A 0, B 1, C 2, D 3. Relations in order: A B meets, A B sees, A C r, B A likes, D D is.
GRAPH = knowledge(
    [("A", "meets", "B"), ("B", "likes", "A")],
    [("A", "sees", "B"), ("A", "meets", "B")],
    [("A", "r", "C"), ("D", "is", "D")],
)


def lists(found: Lists) -> list[list[int]]:
    return [found[i].tolist() for i in range(len(found))]


def test_what_edges_gather() -> None:
    assert GRAPH.edge_weights.tolist() == [4.0, 1.0] and lists(GRAPH.edge_passages) == [[0, 1], [2]]
    assert GRAPH.edges.degree_sums.tolist() == [3, 3]
    assert GRAPH.edges.best(np.array([0.1, 0.5, 0.2, 0.4, 0.9])).tolist() == [0.5, 0.2]


def test_no_edges() -> None:
    for graph in (knowledge([]), knowledge([("D", "is", "D")])):
        edges = graph.edges
        assert len(edges) == len(edges.best(np.zeros(graph.num_relations))) == 0
        assert lists(graph.edge_passages) == []
        assert seed_edges(edges, range(graph.num_entities), [graph.edge_weights]) == []


def test_seed_edges_are_ranked_capped_and_in_order_of_appearance() -> None:
    edges = GRAPH.edges
    assert seed_edges(edges, [2, 0], [np.array([1, 1])]) == [1, 0], "a tie: C brings its edge first"
    assert seed_edges(edges, [0], [edges.degree_sums, GRAPH.edge_weights]) == [0, 1]
    assert seed_edges(edges, [0, 2], [np.array([1.0, 0.5])], cap=1) == [0, 1], "the second comes with C"
    assert seed_edges(edges, [0], [np.array([1.0, 2.0])], cap=1) == [1]
    assert seed_edges(edges, [3], [GRAPH.edge_weights]) == seed_edges(edges, [], [GRAPH.edge_weights], cap=2) == []


def shown(classic: bool = False) -> Renderer:
    passages = [Passage(f"p{i}", "T", f"text {i}") for i in range(3)]
    return Renderer(GRAPH, passages, TokenCounter(), classic)


def test_rows() -> None:
    assert json.loads(shown().entity_row(0)) == {"entity": "A", "type": "", "description": ""}
    assert json.loads(shown().edge_row(1)) == {"entity1": "A", "entity2": "C", "description": "A r C"}
    assert json.loads(shown().passage_row(0)) == {"content": "T\ntext 0"}
    assert shown(classic=True).edge_row(0) == "A meets B; A sees B; B likes A"
    assert (shown(classic=True).entity_row(0), shown(classic=True).passage_row(0)) == ("", "T\ntext 0")
    assert shown().tokens([0], [1]) == -(-(len(shown().entity_row(0)) + 1 + len(shown().edge_row(1))) // 4)


@pytest.mark.parametrize("classic, kept", [(True, [0, 1]), (False, [])])
def test_classic_budgets_count_descriptions_only(classic: bool, kept: list[int]) -> None:
    assert shown(classic).fit([0, 1], shown(classic).edge_row, 10) == kept


def test_hits_and_paths() -> None:
    hit = shown().entity_hit(0)
    assert (hit.id, hit.kind, hit.text, hit.sources) == ("A", "entity", "A", ("p0", "p1", "p2"))
    assert [h.id for h in shown().relation_hits(0)] == ["A | meets | B", "A | sees | B", "B | likes | A"]
    assert shown().path_text([1, 0, 2]) == "B -- meets, sees, likes -- A -- r -- C"
    path = shown().path_hit([1, 0, 2])
    assert (path.id, path.kind, path.sources) == ("B -> A -> C", "path", ("p0", "p1", "p2"))
    assert {(h.score, h.rank) for h in (hit, path, *shown().relation_hits(0))} == {(0.0, 0)}, "nobody has scored them"
    paths = [[1, 0], [1, 0, 2], [0, 2]]
    long = shown().counter.count("\n".join(shown().path_text(nodes) for nodes in paths[:2]))
    assert [len(shown().fit(paths, shown().path_text, long + more)) for more in (-1, 0)] == [1, 2]


def test_passages_of_hits() -> None:
    local = GraphHits([0, 1], [0])
    # A cites all three passages, B the first two: floor(5 * 2 / 2) of them by cosine. The edge's are among them.
    assert current_passages(shown(), local, [2], np.array([0.1, 0.3, 0.2]), 5) == [2, 1, 0]
    assert current_passages(shown(), GraphHits([0], [0]), [], None, 1) == [0, 1], "the edge has one that A did not pick"
    assert current_passages(shown(), GraphHits([0], [0]), [], None, 1, shared=True) == [0], "or picks the same"
