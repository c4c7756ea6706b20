from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.parts import part, set_up
from gnnrag.retrievers.base import Retriever, rank_hits
from gnnrag.retrievers.hybrid import HybridRetriever
from gnnrag.session import Session
from gnnrag.types import Hit, Query, Ranking
from tests.helpers.parts import ranking


class Toy(Retriever):
    """Query text to scores."""

    table: ClassVar[Mapping[str, Mapping[str, float]]] = {}

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        return [ranking(self.table.get(query.text, {}), query.top_k) for query in queries]


@part("retriever", "left")
class Left(Toy):
    reads = ("lexical",)
    table: ClassVar = {"Q": {"p1": 9.0, "p2": 8.0, "p3": 7.0}, "alone": {"p4": 1.0}, "tie": {"p2": 5.0}}


@part("retriever", "right")
class Right(Toy):
    reads = ("embeddings",)
    channels = frozenset({"text", "graph"})
    table: ClassVar = {"Q": {"p3": 0.5, "p1": 0.4, "p0": 0.3, "p5": 0.2}, "tie": {"p1": 0.5}}


def fuse(index: Index, text: str = "Q", top_k: int = 200, **settings: Any) -> Any:
    settings = {"parts": ["left", "right"], **settings}
    return set_up(HybridRetriever(**settings), index=index, roles=None).retrieve([Query(text, top_k=top_k)])[0]


def test_reciprocal_ranks_by_hand(index: Index) -> None:
    ranking = fuse(index)
    expected = {"p1": 1 / 61 + 1 / 62, "p3": 1 / 63 + 1 / 61, "p2": 1 / 62, "p0": 1 / 63, "p5": 1 / 64}
    assert dict(zip(ranking.ids, ranking.scores.tolist(), strict=True)) == pytest.approx(expected)
    assert list(ranking.ids) == list(expected)
    assert (ranking.low, ranking.high, ranking.branch) == (0.0, pytest.approx(1 / 61 + 1 / 62), "rrf")


def test_weights_and_constant(index: Index) -> None:
    ranking = fuse(index, weights=[1.0, 3.0], k=1)
    expected = {"p3": 1 / 4 + 3 / 2, "p1": 1 / 2 + 3 / 3, "p0": 3 / 4, "p5": 3 / 5, "p2": 1 / 3}
    assert list(ranking.ids) == list(expected)
    assert dict(zip(ranking.ids, ranking.scores.tolist(), strict=True)) == pytest.approx(expected)


def test_ties_by_corpus_order_and_the_cut(index: Index) -> None:
    assert fuse(index, "tie").ids == fuse(index, "tie", parts=["right", "left"]).ids == ("p1", "p2")
    assert fuse(index, "tie", top_k=1).ids == ("p1",)


def test_each_part_is_read_deeper_than_the_list_that_is_asked_for(index: Index) -> None:
    assert fuse(index, top_k=1).ids == ("p1",)  # p3 leads on the right, p1 wins by both
    assert fuse(index, top_k=1, depth=1).ids == ("p1",)  # tied with p3: corpus order


def test_one_part_finds_nothing(index: Index) -> None:
    assert fuse(index, "alone").ids == ("p4",)
    nothing = fuse(index, "unknown")
    assert nothing.ids == () and (nothing.low, nothing.high) == (0.0, 0.0)


def test_channels_and_stages_are_those_of_all_parts(index: Index) -> None:
    assert set_up(HybridRetriever(["left", "right"]), index=index, roles=None).channels == {"text"}
    assert set_up(HybridRetriever(["right", "right"]), index=index, roles=None).channels == {"text", "graph"}
    assert set(HybridRetriever(["left", "right"]).reads) == {"lexical", "embeddings"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parts": []}, "at least two"),
        ({"weights": [1.0]}, "retriever.weights"),
        ({"parts": ["bm25", "dnese"]}, "'dense'"),
        ({"settings": {"dnese": {}}}, "retriever.settings.dnese"),
        ({"settings": {"dense": {"serach": "x"}}}, "retriever.settings.dense.serach"),
    ],
)
def test_bad_settings(settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        HybridRetriever(**settings)


def test_settings_reach_the_part(index: Index) -> None:
    retriever = set_up(HybridRetriever(settings={"dense": {"search": "flat"}}), index=index, roles=None)
    assert retriever.fused[1].search == "flat"


# ----------------------------------------------------------------------------- parts with roles, and graph channels
@part("retriever", "asks_keywords")
class Asking(Toy):
    """Asks a role for the query that it then looks up."""

    reads = ("knowledge",)
    channels = frozenset({"text", "graph"})
    role_names, asks_roles = ("keywords",), True
    table: ClassVar = {"Q": {"p3": 2.0, "p4": 1.0}}

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> Any:
        session.flag("keywords", "asked")
        return self.retrieve([replace(q, text=self.roles["rename"](q.text)) for q in queries])


@part("retriever", "fails_at_setup")
class Broken(Asking):
    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> Any:
        raise RuntimeError("no such luck")


@part("retriever", "nodes")
class Nodes(Toy):
    channels = frozenset({"graph"})

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        hits = [Hit("A", 9.0, 1, "entity", "about A", ("p1",)), Hit("A -> B", 8.0, 2, "path", "A to B", ("p1", "p2"))]
        return [rank_hits(hits, q.top_k, "nodes") for q in queries]


@part("retriever", "others")
class Others(Nodes):
    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        hits = [Hit("C", 2.0, 1, "entity", "about C"), Hit("A -> B", 1.0, 2, "relation", "other words")]
        return [rank_hits(hits, q.top_k, "others") for q in queries]


ROLES = {"rename": lambda text: text.upper()}


def test_a_part_that_asks_roles_is_fused_with_one_that_does_not(index: Index) -> None:
    retriever = set_up(HybridRetriever(["left", "asks_keywords"]), index=index, roles=ROLES)
    session = Session("q")
    assert retriever.asks_roles
    (first, second) = asyncio.run(retriever.retrieve_for([Query("Q"), Query("alone")], session))
    expected = {"p3": 1 / 63 + 1 / 61, "p1": 1 / 61, "p2": 1 / 62, "p4": 1 / 62}
    assert dict(zip(first.ids, first.scores.tolist(), strict=True)) == pytest.approx(expected)
    assert second.ids == ("p4",) and session.by_role["keywords"]["asked"] == 1
    assert not set_up(HybridRetriever(["left", "right"]), index=index, roles=None).asks_roles


def test_a_failing_part_fails_the_fusion(index: Index) -> None:
    retriever = set_up(HybridRetriever(["left", "fails_at_setup"]), index=index, roles=ROLES)
    assert retriever.asks_roles
    with pytest.raises(RuntimeError, match="no such luck"):
        asyncio.run(retriever.retrieve_for([Query("Q")], Session("q")))


def test_what_parts_need_is_known_before_they_are_built() -> None:
    assert HybridRetriever(["left", "asks_keywords"]).role_names == ("keywords",)
    assert not HybridRetriever(["left", "right"]).role_names
    assert HybridRetriever(["asks_keywords", "right"]).channels == {"text", "graph"}
    assert HybridRetriever(["asks_keywords", "left"]).channels == {"text"}


def test_graph_hits_are_fused_by_id_with_all_they_carry(index: Index) -> None:
    retriever = set_up(HybridRetriever(["nodes", "others"]), index=index, roles=None)
    (ranking,) = retriever.retrieve([Query("Q", "graph")])
    assert ranking.ids == ("A -> B", "A", "C"), "the tie in the order of the parts"
    assert ranking.scores.tolist() == pytest.approx([2 / 62, 1 / 61, 1 / 61])
    assert ranking.kinds == ("path", "entity", "entity") and ranking.texts == ("A to B", "about A", "about C")
    assert ranking.sources == (("p1", "p2"), ("p1",), ())
    assert retriever.retrieve([Query("Q", "graph", top_k=1)])[0].ids == ("A -> B",)
