"""HyperGraphRAG by hand: every cosine of these indexes is set in the test."""

from __future__ import annotations

import pytest

from gnnrag.extract.base import Extraction, HyperedgeRecord
from gnnrag.graphs.folding import fold
from gnnrag.parts import set_up
from gnnrag.retrievers.hypergraphrag import Bipartite, HyperGraphRAGRetriever, HyperQuery
from gnnrag.types import Query
from tests.helpers.cosines import ask, knowledge_index


def fact(text: str, score: float, **members: float) -> HyperedgeRecord:
    return HyperedgeRecord(text, score, tuple(members.items()))


ROWS = [
    Extraction(hyperedges=(fact("f1", 8, ann=90, bob=20), fact("f2", 3, ann=40, cy=80, dan=70))),
    Extraction(hyperedges=(fact("f3", 9, bob=95, dan=30),)),
    Extraction(hyperedges=(fact("f1", 4, ann=70, bob=60),)),
    Extraction(("eve",)),
    Extraction(),
]
ALIKE = {
    "q": {"c5": 0.9, "c4": 0.6, "c1": 0.3},
    "Ann": {"ann": 0.9, "eve": 0.5, "bob": 0.1},
    "Bob": {"bob": 0.7},
    "A met B.": {"f3": 0.9, "f1": 0.6, "f2": 0.1},
    "nothing": {},
}
BOTH = HyperQuery(("A met B.",), ("Ann",))


def index():
    return knowledge_index(fold(ROWS), ALIKE)


def own(found: HyperQuery, query: Query | None = None, **settings) -> tuple[tuple[str, ...], str]:
    ranking = ask(HyperGraphRAGRetriever, index(), "hyper_query", found, query, tail="none", **settings)
    return ranking.ids, ranking.branch


class TestBipartite:
    GRAPH = Bipartite(fold(ROWS))
    AT = GRAPH.graph.position

    def test_degrees(self) -> None:
        assert self.GRAPH.graph.names == ("ann", "bob", "cy", "dan", "eve")
        assert self.GRAPH.degrees.tolist() == [2, 2, 1, 2, 0] and self.GRAPH.sizes.tolist() == [2, 3, 2]

    def test_incident_facts_by_degrees_then_by_weight(self) -> None:
        """Degrees: ann 2 + f2 3; then 2 + 2 for f1 and f3, with weights 160 (ann), 80 (bob) and 95 (bob)."""
        assert self.GRAPH.incident([self.AT["ann"], self.AT["bob"]]) == [1, 0, 2]
        assert self.GRAPH.incident([self.AT["bob"]]) == [2, 0]
        assert self.GRAPH.incident([]) == self.GRAPH.incident([self.AT["eve"]]) == []

    def test_members_in_first_seen_order(self) -> None:
        names = [self.GRAPH.graph.names[m] for m in self.GRAPH.members([2, 1])]
        assert names == ["bob", "dan", "ann", "cy"]


def test_sides() -> None:
    retriever = set_up(HyperGraphRAGRetriever(), index=index(), roles={})
    names, facts = retriever.index.embedder.encode(["Ann", "A met B."])
    side = retriever.entity_side(names)
    assert [retriever.graph.names[e] for e in side.entities] == ["ann", "eve", "cy", "dan", "bob"]
    assert side.facts == [1, 0]
    # ann's passages c1 (two of its facts) before c3 (one of them), then eve's.
    assert side.passages == [0, 2, 3]
    side = retriever.fact_side(facts)
    assert side.facts == [2, 0] and side.passages == [1, 0, 2]
    assert [retriever.graph.names[e] for e in side.entities] == ["bob", "dan", "ann"]


def test_fixed_merges_position_by_position_with_a_vector_search() -> None:
    """Lists: c5, c4, c1 by vector; c2, c1, c3 by facts; c1, c3, c4 by entities."""
    assert own(BOTH) == (("c5", "c2", "c1", "c4", "c3"), "hybrid")
    assert own(BOTH, profile="released") == (("c2", "c1", "c3", "c4"), "hybrid"), "one side after the other"


def test_the_graph_channel() -> None:
    ranking = ask(HyperGraphRAGRetriever, index(), "hyper_query", BOTH, Query("q", "graph"))
    assert ranking.ids == ("f3", "f1", "f2", "bob", "dan", "ann", "eve", "cy")
    assert ranking.kinds == ("relation",) * 3 + ("entity",) * 5
    assert ranking.sources[:2] == (("c2",), ("c1", "c3"))
    assert ranking.scores.tolist() == pytest.approx([1 / n for n in range(1, 9)])


def test_ties_of_cosine_go_by_weight() -> None:
    tied = {"f1": 0.5, "f2": 0.5, "f3": 0.5}
    retriever = set_up(HyperGraphRAGRetriever(), index=knowledge_index(fold(ROWS), {"x": tied}), roles={})
    assert retriever.fact_side(retriever.index.embedder.encode(["x"])[0]).facts == [0, 2, 1]  # 12, 9, 3


@pytest.mark.parametrize("tokens, facts", [(2, [2, 0]), (1, [2]), (0, [])])
def test_hyperedges_are_cut_by_tokens(tokens: int, facts: list[int]) -> None:
    retriever = set_up(HyperGraphRAGRetriever(fact_tokens=tokens), index=index(), roles={})
    assert retriever.fact_side(retriever.index.embedder.encode(["A met B."])[0]).facts == facts


@pytest.mark.parametrize(
    "asked, ids, branch",
    [
        (HyperQuery((), ("Ann",)), ("c1", "c3", "c4"), "entities"),
        (HyperQuery(("A met B.",)), ("c2", "c1", "c3"), "hyperedges"),
        (HyperQuery(("nothing",), ("Ann",)), ("c1", "c3", "c4"), "entities"),
    ],
)
def test_where_one_side_finds_nothing_the_other_counts(asked: HyperQuery, ids: tuple[str, ...], branch: str) -> None:
    assert own(asked, near_k=0) == (ids, branch)


@pytest.mark.parametrize("asked", [HyperQuery(), HyperQuery(("nothing",), ("nothing",))])
def test_dense_search_where_nothing_is_found(asked: HyperQuery) -> None:
    assert own(asked) == (("c5", "c4", "c1"), "naive_fallback"), "no more than those above the floor"


def test_a_query_without_facts_and_names_is_itself_searched_among_facts() -> None:
    retriever = set_up(HyperGraphRAGRetriever(), index=index(), roles={})
    assert retriever.search_texts("q", HyperQuery()) == ("", "q")
    assert retriever.search_texts("q", BOTH) == ("Ann", "A met B.")


def test_the_tail() -> None:
    ranking = ask(HyperGraphRAGRetriever, index(), "hyper_query", HyperQuery((), ("Bob",)), near_k=0)
    assert ranking.ids == ("c1", "c2", "c3", "c5", "c4")
    assert ask(HyperGraphRAGRetriever, index(), "hyper_query", BOTH, Query("q", top_k=1)).ids == ("c5",)


def test_an_empty_graph() -> None:
    empty = knowledge_index(fold([Extraction(), Extraction()]), {"q": {"c2": 0.5}, "Ann": {}})
    assert ask(HyperGraphRAGRetriever, empty, "hyper_query", BOTH).ids == ("c2", "c1")
