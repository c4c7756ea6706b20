from __future__ import annotations

import numpy as np
import pytest

from gnnrag.extract.base import Extraction
from gnnrag.graphs.folding import fold
from gnnrag.retrievers.minirag.walks import Votes, WalkGraph, score_passages


def test_scores_add_up_over_mentions_and_the_first_candidate_counts_twice() -> None:
    scores = score_passages([[(0.5, [4, 5]), (0.4, [5])], [], [(0.3, [5, 4])]], {5})
    assert scores == pytest.approx({4: 1.0 + 0.6, 5: 1.0 + 4.0 + 6.0})


def test_the_heaviest_edges_of_a_hub_are_walked() -> None:
    triples = [("hub", "r", f"n{i}") for i in range(6)] + [("hub", "s", "n4"), ("hub", "s", "n2")]
    graph = fold([Extraction(triples=tuple(triples))])
    walks = WalkGraph(graph, fan_out=3).walks(graph.position["hub"])
    assert [graph.names[m] for m in walks.middle] == ["n0", "n2", "n4"]
    walks = WalkGraph(graph, fan_out=3).walks(graph.position["n5"])
    assert [graph.names[e] for e in walks.end] == ["n0", "n2", "n4"], "the cap holds for each node by itself"


def test_isolated_starts_have_their_own_passages() -> None:
    graph = WalkGraph(fold([Extraction(("a",)), Extraction(("a",)), Extraction(("b",))]))
    votes = Votes.of([], [], (2, 0))
    assert not len(graph.walks(0))
    assert graph.passages([0, 1], votes, np.array([0.1, 0.2, 0.0])) == [[1, 0], [2]]
    assert [list(c) for c in graph.last_evidence([0, 1], votes, "q")] == [[0, 1], [2]]
    assert graph.evidence([0, 1], votes, np.zeros(3)).tolist() == [[1, 1, 0], [0, 0, 1]]
    assert graph.evidence([], votes, np.zeros(3)).shape == (0, 3)
    assert graph.best_walks(0, votes, 3) == []
