"""PathRAG by hand: golden example 15.1 through the retriever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.parts import set_up
from gnnrag.retrievers.knowledge import above
from gnnrag.retrievers.pathrag import PathRAGRetriever
from gnnrag.roles.base import Keywords
from gnnrag.types import Query, Ranking
from tests.helpers.knowledge import index_of, knowledge

# Golden 15.1, and T -> Z for the high-level search. A passage for each edge.
TRIPLES = [("S", "r", "A"), ("S", "r", "B"), ("A", "r", "T"), ("A", "r", "C"), ("B", "r", "C"), ("C", "r", "T")]
GRAPH = knowledge(*([t] for t in TRIPLES), [("T", "u", "Z")], [], entities={7: ("Lone",)})
LOW, HIGH, QUERY = "names", "themes", "what is asked"
ASKED = f"{QUERY} {HIGH}"
COSINES = {
    LOW: {"S": 0.6, "T": 0.5},
    HIGH: {"B | r | C": 0.9, "T | u | Z": 0.3},
    ASKED: {"B | r | C": 0.9, "T | u | Z": 0.3},
    QUERY: {"p7": 0.9, "p3": 0.8},
}
KEYWORDS = Keywords((LOW,), (HIGH,))


def make(graph: Any = GRAPH, cosines: Any = COSINES, **settings: Any) -> PathRAGRetriever:
    return set_up(PathRAGRetriever(**settings), index=index_of(graph, cosines))


def ranked(keywords: Keywords = KEYWORDS, channel: Any = "text", **settings: Any) -> Ranking:
    return make(**settings).rank([(Query(QUERY, channel), keywords)])[0]


def paths(ranking: Ranking) -> list[str]:
    return [hit.id.replace(" -> ", "") for hit in ranking.hits if hit.kind == "path"]


def scores(retriever: PathRAGRetriever) -> list[float]:
    low, high = retriever.index.embedder.encode([LOW, ASKED], is_query=True)
    return [path.score for path in retriever.find(low, high).paths]


def test_golden_15_1_in_the_graph_channel() -> None:
    ranking = ranked(channel="graph")
    assert paths(ranking) == ["TAS", "SBCT", "TCAS"] and ranking.branch == "paths"
    assert scores(make()) == pytest.approx([0.45, 0.406667, 0.366667], abs=1e-6)
    hits = {hit.id: hit for hit in ranking.hits}
    assert hits["T -> A -> S"].sources == ("p2", "p0") and hits["T -> A -> S"].text == "T -- r -- A -- r -- S"
    assert [hit.id for hit in ranking.hits[3:]] == ["S", "B | r | C", "T", "T | u | Z", "B", "C", "Z"]


def test_flow_of_the_paper() -> None:
    # T: 1, A: 0.4 + 0.16 by way of C, S: 0.448 + 0.128 by way of B; T - A - S has two edges.
    assert scores(make(flow="paper"))[0] == pytest.approx((1 + 0.56 + 0.576) / 2, abs=1e-6)


def test_passages_of_relations_and_seeds_then_of_paths() -> None:
    # Relations: p4, p6. S has p0, p1; T has p2, p5, p6. The paths add p3, which only T - C - A - S crosses.
    assert ranked(tail="none").ids == ("p4", "p0", "p6", "p1", "p2", "p5", "p3")
    assert ranked(tail="none", max_paths=0).ids == ("p4", "p0", "p6", "p1", "p2", "p5")
    assert ranked().ids == ("p4", "p0", "p6", "p1", "p2", "p5", "p3", "p7"), "the tail"
    assert ranked(tail="none").scores.tolist() == [1 / r for r in range(1, 8)]
    # Released: T | u | Z has degrees 4 + 1, B | r | C 2 + 3, and of equal sums and weights the more alike comes first.
    assert ranked(tail="none", profile="released").ids == ("p4", "p6", "p0", "p1", "p2", "p5"), "no passages of paths"


def test_budgets() -> None:
    # A passage is 3 tokens, `B r C` is 2, a path of 2 edges 6.
    assert ranked(tail="none", max_paths=0, passage_tokens=3).ids == ("p4", "p0")
    assert ranked(channel="graph", relation_tokens=2).ids[-1] == "C"
    assert paths(ranked(channel="graph", entity_tokens=6)) == ["TAS"]


def test_neighbours_count_in_both_directions() -> None:
    graph = knowledge([("S", "r", "A")], [("B", "r", "S")], [("A", "q", "X")], [("B", "q", "X"), ("S", "q", "Y")])
    cosines = {LOW: {"S": 0.9}, HIGH: {"A | q | X": 0.9}, ASKED: {"A | q | X": 0.9}, QUERY: {}}
    # S is in p0 with A, in p1 and p3 with B: p3 is cited by Y and B, p0 by A, p1 by B.
    assert ranked(graph=graph, cosines=cosines, tail="none").ids == ("p2", "p3", "p0", "p1")


@pytest.mark.parametrize(
    "low, high, expected",
    [
        ((LOW,), (HIGH,), (LOW, ASKED)),
        ((LOW,), (), (LOW, f"{QUERY} {LOW}")),
        ((), (HIGH,), (HIGH, ASKED)),
        ((), (), (QUERY, QUERY)),
    ],
)
def test_what_is_searched_by(low: Any, high: Any, expected: tuple[str, str]) -> None:
    assert make().search_texts(QUERY, Keywords(low, high)) == expected
    released = (expected[0], expected[1].removeprefix(f"{QUERY} "))
    assert make(profile="released").search_texts(QUERY, Keywords(low, high)) == released


# ---------------------------------------------------------------------------------------------------- rough graphs
def test_empty_graph() -> None:
    empty = knowledge(*[[]] * 8)
    ranking = ranked(graph=empty, cosines={QUERY: {"p7": 0.9, "p3": 0.8}}, tail="none")
    assert ranking.ids[:2] == ("p7", "p3") and ranking.branch == "naive_fallback"


def test_isolated_seeds_have_no_paths() -> None:
    cosines = {**COSINES, LOW: {"Lone": 0.9, "S": 0.8}}
    ranking = ranked(cosines=cosines, tail="none")
    assert ranking.branch == "no_paths" and set(ranking.ids) == {"p4", "p6", "p7", "p0", "p1"}


@pytest.mark.timeout(60)
def test_hub_guard_on_the_scale_of_metaqa() -> None:
    """43,000 nodes, 120,000 edges, 40 seeds, most edges at few nodes: without the guard this takes minutes."""
    rng = np.random.default_rng(0)
    count, none = 43_000, Lists.of([])
    ends = np.stack([rng.integers(0, count, 120_000), (count * rng.random(120_000) ** 4).astype(int)], axis=1)
    names, no_text = [f"n{i}" for i in range(count)], [""] * count
    graph = KnowledgeGraph(
        0, names, no_text, no_text, [()] * count, Lists.of([[]] * count),
        ends.astype(np.int32), ["r"] * len(ends), [""] * len(ends), np.ones(len(ends)), Lists.of([[]] * len(ends)),
        (), np.zeros(0), none, np.zeros(0), none,
    )  # fmt: skip
    index: Any = SimpleNamespace(knowledge=graph, knowledge_vectors=None, passages=[], ids=[])
    retriever = set_up(PathRAGRetriever(), index=index)
    degrees = graph.edges.degrees
    seeds = above(np.where(degrees > 3, rng.random(len(degrees)), 0), 37, 0.0) + above(degrees.astype(float), 3, 0.0)
    assert len(retriever.paths(seeds)) == 15
