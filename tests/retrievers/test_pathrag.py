"""PathRAG by hand: golden example 15.1 through the retriever, and its quirks by name."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnrag.common.tables import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.rendering import above
from gnnrag.parts import ready
from gnnrag.retrievers.pathrag import PathFound, PathRAGRetriever
from gnnrag.roles.base import Keywords, KeywordsTask, Role
from gnnrag.session import Session
from gnnrag.types import Query, Ranking
from tests.helpers.each import each
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
    return ready(PathRAGRetriever(**{"profile": "released", **settings}), index=index_of(graph, cosines))


def ranked(keywords: Keywords = KEYWORDS, channel: Any = "text", **settings: Any) -> Ranking:
    return make(**settings).rank([(Query(QUERY, channel), keywords)])[0]


def paths(ranking: Ranking) -> list[str]:
    return [hit.id.replace(" -> ", "") for hit in ranking.hits if hit.kind == "path"]


def found(retriever: PathRAGRetriever, low: str = LOW, high: str = HIGH) -> PathFound:
    a, b = retriever.index.embedder.encode([low, high], is_query=True)
    return retriever.find(a, b)


# --------------------------------------------------------------------------------------------------------- golden
def test_golden_15_1_in_the_graph_channel() -> None:
    ranking = ranked(channel="graph")
    assert paths(ranking) == ["TAS", "SBCT", "TCAS"] and ranking.branch == "paths"
    assert [path.score for path in found(make()).paths] == pytest.approx([0.45, 0.406667, 0.366667], abs=1e-6)
    hits = {hit.id: hit for hit in ranking.hits}
    assert hits["T -> A -> S"].sources == ("p2", "p0") and hits["T -> A -> S"].text == "T -- r -- A -- r -- S"
    assert [hit.id for hit in ranking.hits[3:]] == ["S", "B | r | C", "T", "T | u | Z", "B", "C", "Z"]


def test_the_prompt_shows_the_best_path_last() -> None:
    retriever = make()
    shown = retriever.context(found(retriever))
    assert shown[-3:] == ["T -- r -- C -- r -- A -- r -- S", "S -- r -- B -- r -- C -- r -- T", "T -- r -- A -- r -- S"]
    assert shown[:6] == ["B", "C", "T", "Z", "B r C", "T u Z"], "ends of the relations, then the relations"
    assert shown[6:8] == ["text of p4", "text of p6"] and shown[-5:-3] == ["S", "T"]


def test_flow_of_the_paper() -> None:
    scores = [path.score for path in found(make(flow="paper")).paths]
    # T: 1, A: 0.4 + 0.16 by way of C, S: 0.448 + 0.128 by way of B; T - A - S has two edges.
    assert scores[0] == pytest.approx((1 + 0.56 + 0.576) / 2, abs=1e-6)


# ------------------------------------------------------------------------------------------------------- passages
def test_passages_of_relations_then_of_seeds_then_of_paths() -> None:
    # Relations: p4, p6. S has p0, p1; T has p2, p5, p6. The paths add p3, which only T - C - A - S crosses.
    assert ranked(tail="none").ids == ("p4", "p6", "p0", "p1", "p2", "p5", "p3")
    assert ranked(tail="none", profile="fixed", max_paths=0).ids == ("p4", "p0", "p6", "p1", "p2", "p5")
    assert ranked().ids == ("p4", "p6", "p0", "p1", "p2", "p5", "p3", "p7"), "the tail"
    assert ranked(tail="none").scores.tolist() == [1 / r for r in range(1, 8)]


def test_budgets() -> None:
    # A passage is 3 tokens, `B r C` is 2, a path of 2 edges 6.
    assert ranked(tail="none", max_paths=0, tokens=[3, 3000, 5000]).ids == ("p4", "p0")
    assert ranked(channel="graph", tokens=[4000, 2, 5000]).ids[-1] == "C"
    assert paths(ranked(channel="graph", tokens=[4000, 3000, 6])) == ["TAS"]


# --------------------------------------------------------------------------------------------------------- quirks
def test_q_pr_1_released_neighbours_are_those_an_edge_leads_to() -> None:
    graph = knowledge([("S", "r", "A")], [("B", "r", "S")], [("A", "q", "X")], [("B", "q", "X"), ("S", "q", "Y")])
    cosines = {LOW: {"S": 0.9}, HIGH: {"A | q | X": 0.9}, ASKED: {"A | q | X": 0.9}, QUERY: {}}
    # S is in p0 with A, in p1 and p3 with B; its edges lead to A and Y, which cite p0 and p3.
    assert ranked(graph=graph, cosines=cosines, tail="none").ids == ("p2", "p0", "p3", "p1")
    # In both directions B counts too: p3 is cited by Y and B, p0 by A, p1 by B.
    assert ranked(graph=graph, cosines=cosines, tail="none", profile="fixed").ids == ("p2", "p3", "p0", "p1")


def test_directed_degrees_rank_released_relations() -> None:
    graph = knowledge([("S", "r", "A")], [("A", "s", "S")], [("S", "t", "B")], [("C", "r", "D")])
    cosines = {LOW: {"C": 0.9}, HIGH: {"C | r | D": 0.9, "S | t | B": 0.5, "S | r | A": 0.4, "A | s | S": 0.3}}
    retriever = make(graph, {**cosines, QUERY: {}})
    edges = [retriever.edges.text(e) for e in found(retriever).themes.edges]
    assert edges == ["S r A", "A s S", "S t B", "C r D"], "S has three edges, A two"
    assert (
        found(make(graph, {**cosines, QUERY: {}}, relation_rank="cosine")).themes.edges[0] == edges.index("C r D") - 2
    )


@each("low, high", [((LOW,), ()), ((), (HIGH,)), ((), ())])
def test_q_pr_3_released_gives_up_without_either_kind_of_keywords(low: Any, high: Any) -> None:
    ranking = ranked(Keywords(low, high), tail="none")
    assert ranking.branch == "naive_fallback" and ranking.ids == ("p7", "p3")
    assert not len(ranked(Keywords(low, high), channel="graph"))
    fixed = make(profile="fixed").strings(QUERY, Keywords(low, high))
    expected = {
        ((LOW,), ()): (LOW, f"{QUERY} {LOW}"),
        ((), (HIGH,)): (HIGH, ASKED),
        ((), ()): (QUERY, QUERY),
    }
    assert fixed == (QUERY, *expected[low, high])


def test_q_pr_4_released_takes_two_orders_of_the_same_nodes_for_one() -> None:
    ring = knowledge([("S", "r", "A")], [("A", "r", "B")], [("B", "r", "T")], [("S", "r", "B")], [("A", "r", "T")])
    cosines = {LOW: {"S": 0.9, "T": 0.8}, HIGH: {"S | r | A": 0.9}, ASKED: {"S | r | A": 0.9}, QUERY: {}}
    once = {"".join(sorted(p)) for p in paths(ranked(graph=ring, cosines=cosines, channel="graph"))}
    released = paths(ranked(graph=ring, cosines=cosines, channel="graph"))
    fixed = paths(ranked(graph=ring, cosines=cosines, channel="graph", profile="fixed"))
    assert len(released) == len(once) == 3 and len(fixed) == 4
    assert {min(p, p[::-1]) for p in fixed} == {"SAT", "SBT", "SABT", "SBAT"}


def test_q_pr_7_fixed_goes_on_without_relations() -> None:
    cosines = {**COSINES, HIGH: {}, ASKED: {}}
    assert ranked(cosines=cosines).branch == "naive_fallback"
    fixed = ranked(cosines=cosines, profile="fixed", tail="none")
    assert fixed.branch == "paths" and fixed.ids[:5] == ("p0", "p1", "p2", "p5", "p6")


# ---------------------------------------------------------------------------------------------------- rough graphs
@each("profile", ["released", "fixed"])
def test_empty_graph(profile: str) -> None:
    empty = knowledge(*[[]] * 8)
    ranking = ranked(graph=empty, cosines={QUERY: {"p7": 0.9, "p3": 0.8}}, tail="none", profile=profile)
    assert ranking.ids == ("p7", "p3") and ranking.branch == "naive_fallback"


def test_isolated_seeds_have_no_paths() -> None:
    cosines = {**COSINES, LOW: {"Lone": 0.9, "S": 0.8}}
    ranking = ranked(cosines=cosines, tail="none")
    assert ranking.branch == "no_paths" and ranking.ids == ("p4", "p6", "p7", "p0", "p1")


@pytest.mark.slow
def test_hub_seeds() -> None:
    rows = [[("Hub", "has", f"leaf {i}"), (f"leaf {i}", "of", "Other")] for i in range(1100)]
    graph = knowledge(*rows)
    cosines = {LOW: {"Hub": 0.9, "Other": 0.8}, ASKED: {"Hub | has | leaf 7": 0.9}, QUERY: {}}
    ranking = ranked(graph=graph, cosines=cosines, channel="graph", profile="fixed")
    assert len(paths(ranking)) == 15, "hubs may be the ends of paths"
    assert len(ranked(graph=graph, cosines=cosines, profile="fixed")) == 200


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
    retriever = ready(PathRAGRetriever(), index=index)
    degrees = graph.degrees
    seeds = above(np.where(degrees > 3, rng.random(len(degrees)), 0), 37, 0.0) + above(degrees.astype(float), 3, 0.0)
    assert len(retriever._paths(seeds)) == 15


# --------------------------------------------------------------------------------------------------- roles, batches
def test_keywords_come_from_the_role_and_batches_do_not_matter() -> None:
    class OneRole(Role[KeywordsTask, Keywords]):
        async def __call__(self, task: KeywordsTask, session: Session) -> Keywords:
            return KEYWORDS if task.query == QUERY else Keywords((LOW,), (), ("keywords_failed",))

    def ask(*queries: Query) -> tuple[list[Any], Session]:
        retriever = ready(PathRAGRetriever(), index=index_of(GRAPH, COSINES), roles={"keywords": OneRole()})
        session = Session("q")
        return list(asyncio.run(retriever.retrieve_for(queries, session))), session

    both = Query(QUERY), Query("other", "graph")
    together, session = ask(*both)
    assert session.by_role["keywords"]["keywords_failed"] == 1
    for query, ranking in zip(both, together, strict=True):
        (alone,), _ = ask(query)
        assert alone.ids == ranking.ids and alone.scores.tolist() == ranking.scores.tolist()
    assert paths(together[1]) == paths(together[1])[:3] and together[0].branch == "paths"
