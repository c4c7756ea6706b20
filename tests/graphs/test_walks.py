from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.extract.base import Extraction
from gnnrag.graphs.folding import fold
from gnnrag.graphs.rendering import Edges
from gnnrag.retrievers.minirag.walks import Votes, WalkGraph, score_passages


def golden(city: str = "PARIS"):
    """Return graph, positions and votes of the golden example; its passages c1 to c4 are 0 to 3."""
    triples = (("ALICE", "leads", "PROJECT X"), ("PROJECT X", "has", "BOB"), ("ALICE", "lives in", city))
    graph = fold([Extraction(("CAROL",), triples), *([Extraction()] * 3)])
    held = {"ALICE": [0, 1], "PROJECT X": [2], "BOB": [3], city: [1], "CAROL": []}
    at = graph.position
    voted = at["ALICE"], at["PROJECT X"]
    stated = [[0] if tuple(e) == voted else [] for e in graph.ends.tolist()]
    rows = Lists.of([held[n] for n in graph.names])
    edges = Edges(replace(graph, entity_passages=rows, relation_passages=Lists.of(stated)))
    size = (graph.num_entities, len(edges))
    return WalkGraph(edges), at, Votes.of([at["BOB"], at["CAROL"]], edges.between(*voted), size)


def test_golden_evidence() -> None:
    graph, at, votes = golden()
    assert graph.evidence([at["ALICE"]], votes, np.zeros(4)).tolist() == [[7, 5, 3, 3]]
    assert graph.passages([at["ALICE"]], votes, np.zeros(4)) == [[0, 1, 2]]


def test_golden_q_mr_4_released_counts_the_last_walk_only() -> None:
    graph, at, votes = golden("ROME")  # walks are ordered by their nodes; in the example this one comes last
    assert graph.passages([at["ALICE"]], votes, np.zeros(4)) == [[0, 1, 2]]
    (last,) = graph.last_evidence([at["ALICE"]], votes, "q")
    assert last.most_common() == [(1, 2), (0, 1)]


@pytest.mark.parametrize("sticky, second", [(False, 1.64), (True, 16.4)])
def test_golden_q_mr_5_scores(sticky: bool, second: float) -> None:
    scores = score_passages([[(0.82, [0, 1, 2])]], {0, 7}, sticky)
    assert list(scores) == [0, 1, 2]
    assert list(scores.values()) == pytest.approx([16.4, second, second], abs=1e-6)


def test_scores_add_up_over_mentions_and_the_first_candidate_counts_twice() -> None:
    scores = score_passages([[(0.5, [4, 5]), (0.4, [5])], [], [(0.3, [5, 4])]], {5})
    assert scores == pytest.approx({4: 1.0 + 0.6, 5: 1.0 + 4.0 + 6.0})


def test_the_heaviest_edges_of_a_hub_are_walked() -> None:
    triples = [("hub", "r", f"n{i}") for i in range(6)] + [("hub", "s", "n4"), ("hub", "s", "n2")]
    graph = fold([Extraction(triples=tuple(triples))])
    walks = WalkGraph(Edges(graph), fan_out=3).walks(graph.position["hub"])
    assert [graph.names[m] for m in walks.middle] == ["n0", "n2", "n4"]
    walks = WalkGraph(Edges(graph), fan_out=3).walks(graph.position["n5"])
    assert [graph.names[e] for e in walks.end] == ["n0", "n2", "n4"], "the cap holds for each node by itself"


def test_isolated_starts_have_their_own_passages() -> None:
    graph = WalkGraph(Edges(fold([Extraction(("a",)), Extraction(("a",)), Extraction(("b",))])))
    votes = Votes.of([], [], (2, 0))
    assert not len(graph.walks(0))
    assert graph.passages([0, 1], votes, np.array([0.1, 0.2, 0.0])) == [[1, 0], [2]]
    assert [list(c) for c in graph.last_evidence([0, 1], votes, "q")] == [[0, 1], [2]]
    assert graph.evidence([], votes, np.zeros(3)).shape == (0, 3)
    assert graph.best_walks(0, votes, 3) == []
