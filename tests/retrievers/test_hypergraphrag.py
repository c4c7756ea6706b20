"""HyperGraphRAG by hand: every cosine of these indexes is set in the test."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.extract.base import Extraction, HyperedgeRecord
from gnnrag.graphs.folding import fold
from gnnrag.index.build import build_index
from gnnrag.index.graph_stages import table_texts
from gnnrag.index.index import Index
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import ready
from gnnrag.retrievers.hypergraphrag import (
    Bipartite,
    HyperGraphRAGRetriever,
    HyperQuery,
    PromptedHyperQuery,
)
from gnnrag.session import Session
from gnnrag.types import Query, Ranking
from tests.helpers.cosines import ask, knowledge_index
from tests.helpers.each import each
from tests.helpers.indexes import HASH
from tests.helpers.parts import COMPOSITIONAL, CORPUS


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
    "ANN": {"ann": 0.8},
    "Bob": {"bob": 0.7},
    "A met B.": {"f3": 0.9, "f1": 0.6, "f2": 0.1},
    "<hyperedge>A met B.": {"f2": 0.8},
    "nothing": {},
}
BOTH = HyperQuery(("A met B.",), ("Ann",))


def index(**more):
    return knowledge_index(fold(ROWS), ALIKE, **more)


def own(found: HyperQuery, query: Query | None = None, **settings) -> tuple[tuple[str, ...], str]:
    ranking = ask(HyperGraphRAGRetriever, index(), "hyper_query", found, query, tail="none", **settings)
    return ranking.ids, ranking.branch


class TestBipartite:
    GRAPH = Bipartite(fold(ROWS))
    AT = GRAPH.graph.position

    def test_degrees_and_confidences(self) -> None:
        assert self.GRAPH.graph.names == ("ann", "bob", "cy", "dan", "eve")
        assert self.GRAPH.degrees.tolist() == [2, 2, 1, 2, 0] and self.GRAPH.sizes.tolist() == [2, 3, 2]
        assert self.GRAPH.fact_confidence.tolist() == pytest.approx([0.6, 0.3, 0.9])  # f1 is stated twice
        assert self.GRAPH.entity_confidence.tolist() == pytest.approx([200 / 300, 175 / 300, 0.8, 0.5, 0.0])

    def test_incident_facts_by_degrees_then_by_weight(self) -> None:
        """Degrees: ann 2 + f2 3; then 2 + 2 for f1 and f3, with weights 160 (ann), 80 (bob) and 95 (bob)."""
        assert self.GRAPH.incident([self.AT["ann"], self.AT["bob"]]) == [1, 0, 2]
        assert self.GRAPH.incident([self.AT["bob"]]) == [2, 0]
        assert self.GRAPH.incident([]) == self.GRAPH.incident([self.AT["eve"]]) == []

    def test_members_in_first_seen_order(self) -> None:
        names = [self.GRAPH.graph.names[m] for m in self.GRAPH.members([2, 1])]
        assert names == ["bob", "dan", "ann", "cy"]

    def test_sentences_count_in_full(self) -> None:
        graph = Bipartite(fold([Extraction(("a", "b")), Extraction(("a", "b"))], sentences=[("a b",), ("a b",)]))
        assert graph.fact_confidence.tolist() == [1.0] and graph.entity_confidence.tolist() == [1.0, 1.0]


def test_sides() -> None:
    retriever = ready(HyperGraphRAGRetriever(), index=index(), roles={})
    names, facts = retriever.index.embedder.encode(["Ann", "A met B."])
    side = retriever.entity_side(names, facts)
    assert [retriever.graph.names[e] for e in side.entities] == ["ann", "eve", "cy", "dan", "bob"]
    assert side.facts == [1, 0]
    # ann's passages c1 (two of its facts) before c3 (one of them), then eve's.
    assert side.passages == [0, 2, 3]
    side = retriever.fact_side(facts)
    assert side.facts == [2, 0] and side.passages == [1, 0, 2]
    assert [retriever.graph.names[e] for e in side.entities] == ["bob", "dan", "ann"]


def test_chained_fusion_puts_the_hyperedge_side_first() -> None:
    assert own(BOTH, fusion="chain", near_k=0) == (("c2", "c1", "c3", "c4"), "hybrid")


def test_fixed_merges_position_by_position_with_a_vector_search() -> None:
    """Lists: c5, c4, c1 by vector; c2, c1, c3 by facts; c1, c3, c4 by entities."""
    assert own(BOTH) == (("c5", "c2", "c1", "c4", "c3"), "hybrid")


def test_the_graph_channel() -> None:
    ranking = ask(HyperGraphRAGRetriever, index(), "hyper_query", BOTH, Query("q", "graph"))
    assert ranking.ids == ("f3", "f1", "f2", "bob", "dan", "ann", "eve", "cy")
    assert ranking.kinds == ("relation",) * 3 + ("entity",) * 5
    assert ranking.sources[:2] == (("c2",), ("c1", "c3"))
    assert ranking.scores.tolist() == pytest.approx([1 / n for n in range(1, 9)])


def test_ties_of_cosine_go_by_weight() -> None:
    tied = {"f1": 0.5, "f2": 0.5, "f3": 0.5}
    retriever = ready(HyperGraphRAGRetriever(), index=knowledge_index(fold(ROWS), {"x": tied}), roles={})
    assert retriever.fact_side(retriever.index.embedder.encode(["x"])[0]).facts == [0, 2, 1]  # 12, 9, 3


@each("tokens, facts", [(2, [2, 0]), (1, [2]), (0, [])])
def test_hyperedges_are_cut_by_tokens(tokens: int, facts: list[int]) -> None:
    retriever = ready(HyperGraphRAGRetriever(fact_tokens=tokens), index=index(), roles={})
    assert retriever.fact_side(retriever.index.embedder.encode(["A met B."])[0]).facts == facts


def test_passages_are_cut_by_tokens() -> None:
    assert own(BOTH, passage_tokens=3, fusion="chain", near_k=0)[0] == ("c2", "c1")  # one of each side


class TestPaper:
    def test_cosine_times_confidence_with_cut_offs(self) -> None:
        """f3: 0.9 * 0.9, f1: 0.6 * 0.6 falls short; ann: 0.9 * 2/3; c5 and c4 by vector."""
        assert own(BOTH, rank="paper", fusion="chain") == (("c2", "c5", "c4", "c1", "c3"), "hybrid")
        assert own(BOTH, rank="paper", fusion="chain", entity_tau=0.7, near_k=0) == (("c2",), "hyperedges")
        assert own(BOTH, rank="paper", fusion="chain", fact_tau=0.3, near_k=0)[0] == ("c2", "c1", "c3")

    def test_the_cut_off_of_the_vector_search_is_its_own(self) -> None:
        """c1 has a cosine of 0.3: below 0.5, whatever hyperedges need; and c4 with 0.6 stays above it."""
        for tau in (0.1, 0.5, 0.95):
            retriever = ready(HyperGraphRAGRetriever(rank="paper", fact_tau=tau), index=index(), roles={})
            assert retriever._near_tau == 0.5
            found = own(HyperQuery((), ("Ann",)), rank="paper", fusion="chain", fact_tau=tau)
            assert found[0][:2] == ("c5", "c4")

    def test_the_release_has_no_vector_search(self) -> None:
        asked = HyperQuery(("A met B.",), ("Ann",))
        settings = {"profile": "released", "rank": "released"}
        assert "c5" not in own(asked, **settings)[0]

    def test_an_entitys_facts_by_cosine(self) -> None:
        orders = {}
        for rank in ("released", "cosine", "paper"):
            retriever = ready(HyperGraphRAGRetriever(rank=rank), index=index(), roles={})
            names, query = retriever.index.embedder.encode(["Ann", "A met B."])
            orders[rank] = retriever.entity_side(names, query).facts
        assert orders == {"released": [1, 0], "cosine": [0, 1], "paper": [0, 1]}


class TestQHG1:
    def test_the_tag_is_asked_for_where_the_index_has_it(self) -> None:
        found = {}
        for tagged in (False, True):
            retriever = ready(HyperGraphRAGRetriever(profile="released"), index=index(hyper_tag=tagged), roles={})
            found[tagged] = retriever.strings("q", HyperQuery(("A.", "B."), ("Ann", "Bob")))
        assert found == {False: ("ANN, BOB", "A., B."), True: ("ANN, BOB", "<hyperedge>A., <hyperedge>B.")}
        fixed = ready(HyperGraphRAGRetriever(), index=index(hyper_tag=True), roles={})
        assert fixed.strings("q", BOTH) == ("Ann", "A met B.")

    def test_the_index_embeds_it_on_request(self) -> None:
        graph = fold(ROWS)
        assert table_texts(graph)["hyperedges"] == ["f1", "f2", "f3"]
        assert table_texts(graph, "<hyperedge>")["hyperedges"] == ["<hyperedge>f1", "<hyperedge>f2", "<hyperedge>f3"]


HALVES = [HyperQuery((), ("Ann",)), HyperQuery(("A met B.",)), HyperQuery(("nothing",), ("Ann",))]


class TestQHG2:
    @each("found", [*HALVES, HyperQuery(), HyperQuery(flags=("hyper_query_failed",))])
    def test_released_fails_where_a_side_is_empty(self, found: HyperQuery) -> None:
        assert own(found, profile="released") == ((), "nothing")

    def test_fixed_goes_on_with_the_other_side(self) -> None:
        found = [own(half, near_k=0) for half in HALVES]
        assert found == [
            (("c1", "c3", "c4"), "entities"),
            (("c2", "c1", "c3"), "hyperedges"),
            (("c1", "c3", "c4"), "entities"),
        ]

    @each("found", [HyperQuery(), HyperQuery(("nothing",), ("nothing",))])
    def test_fixed_falls_back_to_dense_search(self, found: HyperQuery) -> None:
        assert own(found) == (("c5", "c4", "c1", "c2", "c3"), "naive_fallback")


def test_the_tail() -> None:
    ranking = ask(HyperGraphRAGRetriever, index(), "hyper_query", HyperQuery((), ("Bob",)), near_k=0)
    assert ranking.ids == ("c1", "c2", "c3", "c5", "c4")
    assert ask(HyperGraphRAGRetriever, index(), "hyper_query", BOTH, Query("q", top_k=1)).ids == ("c5",)


def test_an_empty_graph() -> None:
    empty = knowledge_index(fold([Extraction(), Extraction()]), {"q": {"c2": 0.5}, "Ann": {}})
    for profile, ids in (("fixed", ("c2", "c1")), ("released", ())):
        assert ask(HyperGraphRAGRetriever, empty, "hyper_query", BOTH, profile=profile).ids == ids


# ------------------------------------------------------------------------------------------------ a real index
@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Index:
    root = tmp_path_factory.mktemp("hypergraphrag")
    build_index(root, CORPUS, HASH, ("knowledge_vectors", "embeddings", "hierarchy"))
    return Index(root)


def test_the_prompted_role_and_one_that_cannot_be_read(real: Index) -> None:
    def ranked(reply: str) -> tuple[Ranking, Session]:
        session, role = Session("s"), ready(PromptedHyperQuery(), backend=ScriptedBackend.of((".", reply)))
        retriever = ready(HyperGraphRAGRetriever(), index=real, roles={"hyper_query": role})
        return asyncio.run(retriever.retrieve_for([Query(COMPOSITIONAL)], session))[0], session

    ranking, session = ranked(
        '("hyper-relation"<|>Vera Lindqvist directed Night Harbour.<|>7)##'
        '("entity"<|>Vera Lindqvist<|>person<|>A director.<|>80)##<|COMPLETE|>'
    )
    assert "p1" in ranking.ids[:2] and ranking.branch == "hybrid" and session.usage()["llm_calls"] == 1
    ranking, session = ranked("no idea")
    assert ranking.branch == "hyperedges", "the query goes on alone"
    assert session.usage()["roles"]["hyper_query"]["hyper_query_failed"] == 1


def test_a_query_without_facts_and_names_seeds_the_search_itself() -> None:
    """In `released` nothing is found for it (Q-HG-2); in `fixed` facts near it; `both` searches the entities, too."""
    built = index()
    found = {
        (profile, seeds): ready(
            HyperGraphRAGRetriever(profile=profile, seed_fallback=seeds), index=built, roles={}
        ).strings("Ann", HyperQuery())
        for profile in ("fixed", "released")
        for seeds in (None, "off", "facts", "both")
    }
    assert found["fixed", None] == found["fixed", "facts"] == found["released", "facts"] == ("", "Ann")
    assert found["fixed", "both"] == found["released", "both"] == ("Ann", "Ann")
    assert found["fixed", "off"] == found["released", "off"] == found["released", None] == ("", "")
    branches = [own(HyperQuery(), Query("Ann", top_k=5), seed_fallback=seeds)[1] for seeds in ("facts", "both")]
    assert branches == ["naive_fallback", "entities"]
