from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from gnnrag.index.build import build_index
from gnnrag.index.index import Index
from gnnrag.parts import ready
from gnnrag.retrievers.hipporag import HippoRAGRetriever
from gnnrag.roles.base import Mentions
from gnnrag.session import Session
from gnnrag.types import Passage, Query
from tests.helpers.each import each
from tests.helpers.indexes import CORPUS, HASH
from tests.helpers.parts import Scripted
from tests.retrievers.test_hipporag2 import golden_index


class Linked(HippoRAGRetriever):
    """A query's text is the entities that it names, all linked surely."""

    similarity = 1.0

    def link(self, text):
        names = [name for name in text.split(", ") if name in self._graph.position]
        return {self._graph.position[name]: self.similarity for name in names}


def test_golden_entities_and_facts():
    graph = golden_index().entity_graph.graph
    retriever = ready(Linked(), index=golden_index())
    mass = retriever._walk.solve(retriever._reset([graph.position["alice"]]), 1e-10).ravel()
    names = ("alice", "acme corp", "springfield", "shelbyville", "springfield town")
    expected = [0.599305, 0.210995, 0.108359, 0.044907, 0.036433]
    assert [mass[graph.position[n]] for n in names] == pytest.approx(expected, abs=1e-6)
    facts = {fact: mass[pair].sum() for fact, pair in zip(graph.facts, graph.fact_entities, strict=True)}
    assert facts["alice", "born in", "springfield"] == pytest.approx(0.707664, abs=1e-6)
    assert (graph.slots @ mass).tolist() == pytest.approx([1.517964, 1.066202, 0.081341, 0], abs=2e-6)


@each(
    "names, expected",
    [("alice", [1.0, 0.702390, 0.053585, 0.0]), ("alice, springfield", [1.0, 0.516219, 0.134559, 0.0])],
)
def test_golden_passages(names, expected):
    ranking = ready(Linked(), index=golden_index()).retrieve([Query(names)])[0]
    assert ranking.ids == ("P0", "P1", "P2", "P3") and ranking.branch == "ppr"
    assert ranking.scores.tolist() == pytest.approx(expected, abs=1e-6)


def test_a_query_that_names_nothing_falls_back_to_dense():
    found = ready(Linked(), index=golden_index()).retrieve([Query("nobody"), Query("alice")])
    assert [r.branch for r in found] == ["dense_fallback", "ppr"]
    assert found[0].ids == ("P0", "P3", "P1", "P2")


class LooselyLinked(Linked):
    similarity = 0.9


@each("names", ["dense", "uniform"])
def test_the_ensemble_is_half_dense_unless_names_are_linked_surely(names):
    expected = 0.5 * np.array([1.0, 0.702390, 0.053585, 0.0]) + 0.5 * np.array([1.0, 0.05 / 0.13, 0.0, 0.08 / 0.13])
    found, nobody = ready(LooselyLinked(ensemble=True, no_names=names), index=golden_index()).retrieve(
        [Query("alice"), Query("nobody")]
    )
    assert found.branch == "ensemble" and found.ids == ("P0", "P1", "P3", "P2")
    assert sorted(found.scores) == pytest.approx(sorted(expected), abs=1e-6)
    assert nobody.branch == "dense_fallback" and nobody.scores.tolist() == [0.52, 0.47, 0.44, 0.39]
    sure = ready(Linked(ensemble=True, no_names=names), index=golden_index()).retrieve([Query("alice")])[0]
    assert sure.branch == "ppr" and sure.scores.tolist() == pytest.approx([1.0, 0.702390, 0.053585, 0.0], abs=1e-6)


def test_names_of_a_role():
    index = golden_index()
    index.config = SimpleNamespace(graph=SimpleNamespace(norm="hipporag"))
    mentions = Scripted("mentions", Mentions(("Alice!", "ALICE", "..."), flags=("some",)), Mentions())
    retriever = ready(HippoRAGRetriever(names="role"), index=index, roles={"mentions": mentions})
    session = Session("q")
    first, second = asyncio.run(retriever.retrieve_for([Query("who is she?"), Query("who?")], session))
    assert first.scores.tolist() == pytest.approx([1.0, 0.702390, 0.053585, 0.0], abs=1e-6)
    assert second.branch == "dense_fallback" and [task.query for task in mentions.tasks] == ["who is she?", "who?"]
    assert session.by_role["mentions"]["some"] == 1 and session.by_role["mentions"]["calls"] == 2
    assert not ready(HippoRAGRetriever(), index=index).asks_roles


def test_a_query_without_names_as_released():
    ranking = ready(Linked(no_names="uniform"), index=golden_index()).retrieve([Query("nobody")])[0]
    assert ranking.branch == "uniform_fallback" and ranking.scores.tolist() == [0.25] * 4


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    root = tmp_path_factory.mktemp("hippo")
    more = [Passage(f"x{i}", f"Town {i}", f"Town {i} lies in Greece. Its mayor is Byron {i % 7}.") for i in range(60)]
    build_index(root, [*CORPUS, *more], HASH)
    return Index(root)


def test_names_are_linked_to_entities(index):
    retriever = ready(HippoRAGRetriever(), index=index)
    entities = index.entity_graph.graph.entities
    assert [entities[i] for i in retriever.link("Where was the father of Ada Lovelace born?")] == ["ada lovelace"]
    assert retriever.link("who?") == {}
    byron = retriever.link("Who is Lord Byronn of Greece?")
    assert all(0 < similarity <= 1 + 1e-6 for similarity in byron.values()) and 1.0 in byron.values()
    best = retriever.retrieve([Query("Where was the father of Ada Lovelace born?", top_k=1)])[0]
    assert best.ids == ("p1",) and best.branch == "ppr"
