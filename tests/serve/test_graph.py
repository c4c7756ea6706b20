"""Neighbourhoods of both kinds of graph: phrases that passages share, and extracted entities with their relations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gnnrag.api import Index
from gnnrag.errors import DataError
from gnnrag.index import index as stored
from gnnrag.serve.graph import Entities, answer_graph, busiest, find, neighbourhood, open_graph, titled
from tests.helpers.serving import DOCUMENTS, PLAIN


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stored.Index]:
    folder = tmp_path_factory.mktemp("known")
    (folder / "papers").mkdir()
    for name, text in DOCUMENTS.items():
        (folder / "papers" / name).write_text(text)
    settings = dict(dot.split("=") for dot in PLAIN[:3])
    Index.build(folder / "papers", folder / "index", settings=settings, retriever="lightrag").close()
    yield stored.Index(folder / "index")


def test_entities_have_relations_and_passages(known: stored.Index) -> None:
    graph = open_graph(known)
    assert isinstance(graph, Entities) and open_graph(known) is graph
    around = neighbourhood(known, "Andrei Tarkovsky")
    kinds = {node["id"]: node["type"] for node in around["nodes"]}
    assert kinds["e:Andrei Tarkovsky"] == "entity" and kinds["p:tarkovsky.txt#1"] == "passage"
    joined = {frozenset((edge["source"], edge["target"])): edge["label"] for edge in around["edges"]}
    assert "directed" in joined[frozenset(("e:Andrei Tarkovsky", "e:Solaris"))]
    assert joined[frozenset(("e:Andrei Tarkovsky", "p:tarkovsky.txt#1"))]


def test_a_limit_holds_and_every_edge_has_its_ends(known: stored.Index) -> None:
    for limit in (1, 2, 3, 60, 10_000):
        for node in ("Andrei Tarkovsky", "p:paris.txt#1"):
            found = neighbourhood(known, node, limit)
            ids = {one["id"] for one in found["nodes"]}
            assert len(found["nodes"]) <= min(limit, 60) and found["more"] == (len(ids) >= min(limit, 60))
            assert all({edge["source"], edge["target"]} <= ids for edge in found["edges"])


def test_names_are_found_equal_ones_first(known: stored.Index) -> None:
    names = open_graph(known).names
    assert names[find(known, "paris")[0]] == "Paris" and find(known, "") == [] and find(known, "xyzzy") == []
    assert [known.ids[row] for row in titled(known, "PARIS")] == ["paris.txt#1"] and busiest(known)
    with pytest.raises(DataError, match="nothing called"):
        neighbourhood(known, "e:xyzzy")


def test_the_path_of_an_answer_joins_its_passages(known: stored.Index) -> None:
    found = answer_graph(
        known, ["solaris.txt#1", "tarkovsky.txt#1"], "Where was the director of Solaris born? Zavrazhye"
    )
    ids = {node["id"] for node in found["nodes"]}
    assert {"e:Andrei Tarkovsky", "e:Solaris", "e:Zavrazhye"} <= ids
    assert answer_graph(known, [], "x") == {"nodes": [], "edges": [], "more": False}
