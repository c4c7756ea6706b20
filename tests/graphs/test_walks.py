from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.arrays import Lists
from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.graphs.folding import fold
from gnnrag.graphs.rendering import Edges
from gnnrag.retrievers.minirag.walks import MANY, Votes, WalkGraph, score_passages


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


def test_golden_walks_and_multipliers() -> None:
    graph, at, votes = golden()
    names = graph.graph.names
    walks = graph.walks(at["ALICE"])
    found = [[names[m], names[e] if e >= 0 else None] for m, e in zip(walks.middle, walks.end, strict=True)]
    assert found == [["PARIS", None], ["PROJECT X", "BOB"]]
    assert walks.weigh(votes)[0].tolist() == [1, 3]


def test_golden_evidence() -> None:
    graph, at, votes = golden()
    assert graph.evidence([at["ALICE"]], votes, np.zeros(4)).tolist() == [[7, 5, 3, 3]]
    assert graph.passages([at["ALICE"]], votes, np.zeros(4)) == [[0, 1, 2]]


def test_golden_q_mr_4_released_counts_the_last_walk_only() -> None:
    graph, at, votes = golden("ROME")  # walks are ordered by their nodes; in the example this one comes last
    assert graph.passages([at["ALICE"]], votes, np.zeros(4)) == [[0, 1, 2]]
    (last,) = graph.last_evidence([at["ALICE"]], votes, "q")
    assert last.most_common() == [(1, 2), (0, 1)]


def test_q_mr_4_a_node_gives_its_passages_when_first_met() -> None:
    graph, at, votes = golden()
    first, again = graph.last_evidence([at["ALICE"], at["ALICE"]], votes, "q")
    assert first == {0: 6, 1: 3, 2: 3, 3: 3} and list(first) == [0, 1, 2, 3]
    assert again == {0: 6, 1: 3}


@pytest.mark.parametrize("sticky, second", [(False, 1.64), (True, 16.4)])
def test_golden_q_mr_5_scores(sticky: bool, second: float) -> None:
    scores = score_passages([[(0.82, [0, 1, 2])]], {0, 7}, sticky)
    assert list(scores) == [0, 1, 2]
    assert list(scores.values()) == pytest.approx([16.4, second, second], abs=1e-6)


def test_scores_add_up_over_mentions_and_the_first_candidate_counts_twice() -> None:
    scores = score_passages([[(0.5, [4, 5]), (0.4, [5])], [], [(0.3, [5, 4])]], {5})
    assert scores == pytest.approx({4: 1.0 + 0.6, 5: 1.0 + 4.0 + 6.0})


@pytest.mark.parametrize("directed, counts", [(False, [3]), (True, [2])])
def test_q_mr_3_votes_by_direction(directed: bool, counts: list[int]) -> None:
    edges = Edges(fold([Extraction(triples=(("a", "r", "b"), ("b", "r", "c")))]))
    walks = WalkGraph(edges).walks(2)  # c, b, a
    assert walks.weigh(Votes.of([], [0, 1], (3, 2)))[0].tolist() == [3]
    assert walks.weigh(Votes.of([0], [0], (3, 2), directed))[0].tolist() == counts
    assert walks.weigh(Votes.of([], [0, 1], (3, 2), True))[0].tolist() == [1]
    assert walks.weigh(Votes.of([], [0, 1], (3, 2)))[1].tolist() == [0], "the best voted edge, not the nearest"


def test_isolated_starts_have_their_own_passages() -> None:
    graph = WalkGraph(Edges(fold([Extraction(("a",)), Extraction(("a",)), Extraction(("b",))])))
    votes = Votes.of([], [], (2, 0))
    assert not len(graph.walks(0))
    assert graph.passages([0, 1], votes, np.array([0.1, 0.2, 0.0])) == [[1, 0], [2]]
    assert [list(c) for c in graph.last_evidence([0, 1], votes, "q")] == [[0, 1], [2]]
    assert graph.evidence([], votes, np.zeros(3)).shape == (0, 3)
    assert graph.best_walks(0, votes, 3) == []


def test_the_heaviest_edges_of_a_hub_are_walked() -> None:
    triples = [("hub", "r", f"n{i}") for i in range(6)] + [("hub", "s", "n4"), ("hub", "s", "n2")]
    graph = fold([Extraction(triples=tuple(triples))])
    walks = WalkGraph(Edges(graph), fan_out=3).walks(graph.position["hub"])
    assert [graph.names[m] for m in walks.middle] == ["n0", "n2", "n4"]
    walks = WalkGraph(Edges(graph), fan_out=3).walks(graph.position["n5"])
    assert [graph.names[e] for e in walks.end] == ["n0", "n2", "n4"], "the cap holds for each node by itself"


def test_a_node_with_many_passages_gives_the_nearest_half() -> None:
    rows = [Extraction(triples=(("a", "r", "b"),))] + [Extraction(("b",))] * 13
    graph = WalkGraph(Edges(fold(rows)))
    cosines = np.linspace(0, 1, 14)
    found = graph.evidence([0], Votes.of([], [], (2, 1)), cosines)[0]
    assert found.tolist() == [1] + [0] * 6 + [1] * 7
    assert graph.evidence([1], Votes.of([], [], (2, 1)), cosines)[0].tolist() == [2] + [1] * 13, "its own: all"
    few = WalkGraph(Edges(fold(rows[:MANY])))
    assert few.evidence([0], Votes.of([], [], (2, 1)), cosines[:MANY]).sum() == 1 + MANY


def test_released_narrows_by_words_where_each_passage_has_a_description() -> None:
    rows = [Extraction(triples=(("a", "r", "b"), ("c", "r", "b")))]
    rows += [Extraction(details=(EntityRecord("b", "", f"{w} of the town"),)) for w in "uvwxyz"]
    graph = fold(rows)
    assert len(graph.entity_passages[1]) == 7
    held = WalkGraph(Edges(fold([*rows[1:], Extraction(triples=(("a", "r", "z"),))])))
    assert held._narrowed(1, "Z of the town") == [5, 0, 1, 2, 3]
    assert WalkGraph(Edges(graph))._narrowed(1, "q") is None, "seven passages, six descriptions"


def naive_evidence(walk_graph: WalkGraph, start: int, votes: Votes) -> Counter[int]:
    """Enumerate walks one by one, with their passages."""
    edges, graph = walk_graph.edges, walk_graph.graph
    total: Counter[int] = Counter()
    for path in naive_walks(walk_graph, start) or [()]:
        nodes = [start, *path]
        m = 1 + sum(bool(votes.is_answer[n]) for n in nodes) if path else 1
        units = [p for n in nodes for p in graph.entity_passages[n].tolist()]
        voted = []
        for one, other in itertools.pairwise(nodes):
            (edge,) = edges.between(one, other)
            if votes.rank[edge] < len(edges) and not (votes.directed and one > other):
                voted.append((votes.rank[edge], edge))
        m += len(voted)
        if voted:
            units += edges.passages[min(voted)[1]].tolist()
        total.update({p: n * m for p, n in Counter(units).items()})
    return total


def naive_walks(walk_graph: WalkGraph, start: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for middle in walk_graph.edges.neighbours[start].tolist():
        ends = [e for e in walk_graph.edges.neighbours[middle].tolist() if e != start]
        found += [(middle, e) for e in ends] or [(middle,)]
    return found


TRIPLES = st.lists(st.tuples(st.integers(0, 5), st.just("r"), st.integers(0, 5)), max_size=4)


@pytest.mark.slow
@given(
    st.lists(TRIPLES, min_size=1, max_size=4),
    st.lists(st.integers(0, 5), max_size=3, unique=True),
    st.permutations(range(6)),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_evidence_equals_the_enumeration_of_walks(corpus, answers, voted, directed) -> None:
    rows = [Extraction(triples=tuple((f"n{h}", r, f"n{t}") for h, r, t in triples)) for triples in corpus]
    graph = WalkGraph(Edges(fold(rows)))
    count, size = graph.graph.num_entities, len(graph.edges)
    if not count:
        return
    voted = [v for v in voted if v < size][: size // 2 + 1]
    votes = Votes.of([a for a in answers if a < count], voted, (count, size), directed)
    starts = list(range(count))
    found = graph.evidence(starts, votes, np.zeros(len(rows)))
    for start in starts:
        walks = graph.walks(start)
        mine = [tuple(n for n in w if n >= 0) for w in zip(walks.middle.tolist(), walks.end.tolist(), strict=True)]
        assert mine == naive_walks(graph, start)
        expected = naive_evidence(graph, start, votes)
        assert found[start].tolist() == [expected[p] for p in range(len(rows))]
