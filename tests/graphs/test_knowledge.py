"""The tables of a knowledge graph, and rows of neighbours with the relations that lead there."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.extract.base import EntityRecord, Extraction, HyperedgeRecord, RelationRecord
from gnnrag.graphs.folding import fold
from gnnrag.graphs.knowledge import Edges, KnowledgeGraph

ROWS = (
    Extraction(
        ("Ada", "Byron", "Loner"),
        (("Ada", "child_of", "Byron"), ("Byron", "father of", "Ada"), ("Ada", "is", "ada")),
        details=(EntityRecord("Ada", "person", "A mathematician."),),
    ),
    Extraction(
        relations=(RelationRecord("Byron", "Greece", "Byron died in Greece.", ("death",), 4.0),),
        hyperedges=(HyperedgeRecord("Byron died in Greece", 8.0, (("Byron", 90.0), ("Greece", 60.0))),),
    ),
)


@pytest.fixture
def graph() -> KnowledgeGraph:
    return fold(ROWS)


def test_positions_and_neighbourhoods(graph: KnowledgeGraph) -> None:
    assert graph.position == {"Ada": 0, "Byron": 1, "Greece": 2, "Loner": 3}
    assert (graph.num_passages, graph.num_entities, graph.num_relations) == (2, 4, 4)
    assert [row.tolist() for row in graph.edges.neighbours] == [[1], [0, 2], [1], []]
    assert graph.edges.degrees.tolist() == [1, 2, 1, 0]
    assert [row.tolist() for row in graph.passage_entities] == [[0, 1, 3], [1, 2]]
    assert [row.tolist() for row in graph.entity_hyperedges] == [[], [0], [0], []]


def test_pairs_sum_parallel_relations_and_leave_out_loops(graph: KnowledgeGraph) -> None:
    assert graph.edges.ends.tolist() == [[0, 1], [1, 2]] and graph.edge_weights.tolist() == [2.0, 4.0]
    assert {graph.relation_id(i): int(pair) for i, pair in enumerate(graph.edges.of)} == {
        "Ada | is | Ada": -1,
        "Ada | child_of | Byron": 0,
        "Byron | father of | Ada": 0,
        "Byron | death | Greece": 1,
    }
    assert [len(row) for row in graph.incident] == [2, 3, 1, 0]
    found = [graph.statement(i) for i in range(graph.num_relations)]
    assert sorted(found) == ["Ada child of Byron", "Ada is Ada", "Byron died in Greece.", "Byron father of Ada"]


EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


@given(EDGES)
@settings(max_examples=100, deadline=None)
def test_neighbourhoods_equal_networkx(edges) -> None:
    graph = fold([Extraction(triples=tuple((f"n{a}", "r", f"n{b}") for a, b in edges))])
    peer = nx.Graph()
    peer.add_nodes_from(range(graph.num_entities))
    peer.add_edges_from((graph.position[f"n{a}"], graph.position[f"n{b}"]) for a, b in edges if a != b)
    assert [row.tolist() for row in graph.edges.neighbours] == [sorted(peer[i]) for i in range(graph.num_entities)]
    assert graph.edges.degrees.tolist() == [peer.degree[i] for i in range(graph.num_entities)]
    assert sorted(map(tuple, graph.edges.ends.tolist())) == sorted(tuple(sorted(e)) for e in peer.edges)


# 0 - 1 - 2 - 3, 1 = 4 (two relations, one each way round), 4 - 3, a self-loop on 2, 5 alone.
ENDS = np.array([[0, 1], [2, 1], [2, 3], [1, 4], [4, 1], [4, 3], [2, 2]])


def test_edges_know_their_relations():
    edges = Edges(ENDS, 6)
    assert edges.ends.tolist() == [[0, 1], [1, 2], [1, 4], [2, 3], [3, 4]]
    assert edges.of.tolist() == [0, 1, 3, 2, 2, 4, -1] and edges.degrees.tolist() == [1, 3, 2, 2, 2, 0]
    assert [row.tolist() for row in edges.relations] == [[0], [1], [3, 4], [2], [5]]
    assert edges.neighbours[1].tolist() == [0, 2, 4] and edges.incident[1].tolist() == [0, 1, 2]
    assert edges.relations_between(4, 1) == edges.relations_between(1, 4) == [3, 4]
    assert edges.relations_between(0, 3) == edges.relations_between(5, 0) == []
