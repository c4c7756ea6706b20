"""LightRAG by hand: every cosine of these indexes is set in the test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gnnrag.parts import set_up
from gnnrag.retrievers.lightrag import LightRAGRetriever
from gnnrag.roles.base import Keywords
from gnnrag.types import Query, Ranking
from tests.helpers.knowledge import index_of, knowledge

# A hub H of five edges; A - B - C - D is a chain that hangs on it. Passages p0 to p6.
GRAPH = knowledge(
    [("A", "meets", "B")],
    [("B", "likes", "C"), ("C", "knows", "D")],
    [("A", "visits", "H"), ("H", "holds", "X")],
    [("H", "holds", "Y"), ("H", "holds", "Z")],
    [("H", "hosts", "D")],
    [("A", "greets", "B")],
    [],
    entities={6: ("Lone",)},
)
LOW, HIGH, QUERY = "a name", "a theme", "what is asked about a name and a theme"
COSINES = {
    LOW: {"A": 0.9, "B": 0.8, "X": 0.19},
    HIGH: {"C | knows | D": 0.9, "H | holds | X": 0.8, "H | hosts | D": 0.1},
    QUERY: {"p6": 0.9, "p5": 0.8, "p1": 0.7, "p3": 0.6, "p0": 0.5, "p2": 0.4, "p4": 0.3, "B | likes | C": 0.9,
            "A | visits | H": 0.8},
    f"{QUERY} {HIGH}": {"C | knows | D": 0.9, "H | holds | X": 0.8},
}  # fmt: skip
KEYWORDS = Keywords((LOW,), (HIGH,))


def make(graph: Any = GRAPH, cosines: Any = COSINES, **settings: Any) -> LightRAGRetriever:
    settings = {"profile": "released", **settings}
    return set_up(LightRAGRetriever(**settings), index=index_of(graph, cosines))


def ranked(keywords: Keywords = KEYWORDS, channel: Any = "text", top_k: int = 200, **settings: Any) -> Ranking:
    return make(**settings).rank([(Query(QUERY, channel, top_k), keywords)])[0]


def names(ranking: Ranking, kind: str) -> list[str]:
    return [hit.id for hit in ranking.hits if hit.kind == kind]


# ----------------------------------------------------------------------------------------------------- each mode
def test_naive_is_the_vector_search() -> None:
    ranking = ranked(mode="naive", tail="none")
    assert ranking.ids == ("p6", "p5", "p1", "p3", "p0", "p2", "p4") and ranking.branch == "naive"
    assert not LightRAGRetriever(mode="naive").role_names
    assert ranked(mode="naive", tail="none", chunk_top_k=2).ids == ("p6", "p5")
    assert ranked(mode="naive", tail="none", cosine_floor=0.65).ids == ("p6", "p5", "p1")


def test_local_picks_the_passages_of_entities_then_of_their_relations() -> None:
    # A has p0, p2, p5; B has p0, p1, p5: floor(5 * 2 / 2) = 5 by cosine, which is all four. No relation adds any.
    ranking = ranked(mode="local", tail="none")
    assert ranking.ids == ("p5", "p1", "p0", "p2") and ranking.branch == "local"
    graph = ranked(mode="local", channel="graph")
    assert names(graph, "entity") == ["A", "B"]
    assert graph.kinds[:4] == ("entity", "entity", "relation", "relation")
    assert ranked(mode="local", channel="graph", profile="fixed").kinds[:3] == ("entity", "relation", "entity")
    assert graph.scores.tolist() == [1 / r for r in range(1, len(graph) + 1)]


def test_the_tail_fills_up_by_cosine_without_repeats() -> None:
    own, full = ranked(mode="local", tail="none"), ranked(mode="local")
    assert full.ids == (*own.ids, "p6", "p3", "p4") and full.scores.tolist() == [1 / r for r in range(1, 8)]
    assert (full.low, full.high) == (0.0, 1.0)
    assert ranked(mode="local", top_k=5).ids == (*own.ids, "p6")
    assert ranked(mode="local", top_k=2).ids == own.ids[:2]


def test_fixed_picks_passages_by_weight() -> None:
    # By vector p6, p5; three of A, C, B, D, H and X cite p2, A owns it, then p0; p1 states B - C, the first edge.
    fixed = ranked(mode="mix", profile="fixed", tail="none")
    assert fixed.ids[:5] == ("p6", "p2", "p1", "p5", "p0")


# ------------------------------------------------------------------------------------------------ released, fixed
def test_q_lr_3_released_ranks_hubs_first() -> None:
    assert names(ranked(mode="local", channel="graph"), "relation")[0] == "A | visits | H"
    fixed = names(ranked(mode="local", channel="graph", profile="fixed"), "relation")
    assert fixed[0] == "B | likes | C", "which is nearest to the query"


def test_parallel_relations_are_one_edge_and_two_hits() -> None:
    for profile in ("fixed", "released"):
        ranking = ranked(mode="local", channel="graph", profile=profile)
        sources = dict(zip(ranking.ids, ranking.sources, strict=True))
        assert (sources["A | meets | B"], sources["A | greets | B"]) == (("p0",), ("p5",))
        texts = dict(zip(ranking.ids, ranking.texts, strict=True))
        if profile == "fixed":
            assert texts["A | meets | B"] == "A meets B"
        else:  # the rows that its reader sees, one an edge
            assert texts["A"].startswith('{"entity": "A"') and not texts["A | meets | B"]
            assert json.loads(texts["A | greets | B"])["description"] == "A greets B; A meets B"


# ---------------------------------------------------------------------------------------------------- keywords
@pytest.mark.parametrize(
    "mode, profile, low, high, expected",
    [
        ("mix", "released", "l1, l2", "h", ("l1, l2", "h")),
        ("local", "released", "l", "h", ("l", "")),
        ("global", "released", "l", "h", ("", "h")),
        ("naive", "released", "l", "h", ("", "")),
        ("mix", "released", "", "h", ("", "h")),
        ("mix", "released", "l", "", ("l", "")),
        ("local", "released", "", "h", ("", "")),
        ("mix", "released", "", "", ("short?", "")),
        ("global", "released", "", "", ("", "")),
        ("mix", "fixed", "l", "h", ("l", "short? h")),
        ("mix", "fixed", "l", "", ("l", "")),
        ("local", "fixed", "", "h", ("h", "")),
        ("local", "fixed", "", "", ("short?", "")),
        ("global", "fixed", "l", "", ("", "short? l")),
        ("mix", "fixed", "", "", ("short?", "short?")),
        ("global", "fixed", "", "", ("", "short?")),
    ],
)
def test_what_is_searched_by(mode: str, profile: str, low: str, high: str, expected: tuple[str, str]) -> None:
    keywords = Keywords(tuple(low.split(", ")) if low else (), (high,) if high else ())
    assert make(mode=mode, profile=profile).search_texts("short?", keywords) == expected


def test_a_long_query_without_keywords() -> None:
    long = "a query of sixty characters, which is too long for a keyword"
    assert make(mode="mix").search_texts(long, Keywords()) == ("", ""), "released gives up"
    assert make(mode="mix", profile="fixed").search_texts(long, Keywords()) == (long, long)


@pytest.mark.parametrize("profile", ["released", "fixed"])
@pytest.mark.parametrize("mode", ["local", "global", "hybrid", "mix"])
def test_nothing_in_the_graph_is_naive_and_says_so(mode: str, profile: str) -> None:
    settings = {"mode": mode, "profile": profile, "tail": "none"}
    unknown = Keywords(("unheard of",), ("unheard of",))
    naive = ranked(mode="naive", tail="none").ids
    found = ranked(unknown, graph=knowledge([], [], [], [], [], [], []), cosines={QUERY: _passages()}, **settings)
    assert found.ids == naive and found.branch == "naive_fallback"
    assert len(ranked(unknown, channel="graph", cosines={QUERY: _passages()}, **settings)) == 0


def _passages() -> dict[str, float]:
    return {item: cosine for item, cosine in COSINES[QUERY].items() if item.startswith("p")}


@pytest.mark.parametrize("profile, count", [("released", 411), ("fixed", 50)])
def test_hub_seeds(profile: str, count: int) -> None:
    rows = [[("Hub", "has", f"leaf {i}")] for i in range(1200)]
    graph = knowledge(*rows)
    cosines = {LOW: {"Hub": 0.9}, QUERY: {f"p{i}": 0.5 for i in range(1200)}}
    retriever = make(graph, cosines, mode="local", profile=profile)
    ranking = retriever.rank([(Query(QUERY, "graph", 5000), KEYWORDS)])[0]
    assert len(names(ranking, "relation")) == count, "the released list ends at 8000 tokens of rows"
    assert len(retriever.rank([(Query(QUERY), KEYWORDS)])[0]) == 200
