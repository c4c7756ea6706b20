from __future__ import annotations

import numpy as np
import pytest

from gnnrag.errors import DataError
from gnnrag.extract.base import Extraction
from gnnrag.graphs.folding import fold
from gnnrag.pages.graph import around_entity, find_entity, for_question, named_entities, shortest_path
from tests.helpers.parts import small_index


def graph_of(*rows):
    return fold([Extraction(triples=tuple(passage)) for passage in rows], hyperedges="none")


CHAIN = graph_of([("a", "to", "b"), ("b", "to", "c")], [("c", "to", "d"), ("d", "to", "e")], [("x", "to", "y")])


def names(graph, subgraph):
    return [graph.names[n] for n in subgraph.nodes]


class TestAroundAnEntity:
    def test_two_hops_and_no_more(self):
        found = around_entity(CHAIN, "a")
        assert names(CHAIN, found) == ["a", "b", "c"]
        assert found.roles == ("focus", "neighbour", "second")
        assert found.pairs.tolist() == [[0, 1], [1, 2]]
        assert [[CHAIN.labels[r] for r in rows] for rows in found.relations] == [["to"], ["to"]]

    def test_the_heaviest_neighbours_come_first_then_those_with_more_of_their_own(self):
        graph = graph_of([("hub", "r", "light"), ("hub", "r", "heavy"), ("hub", "r", "known")],
                         [("hub", "r", "heavy"), ("known", "r", "else")])  # fmt: skip
        assert names(graph, around_entity(graph, "hub")) == ["hub", "heavy", "known", "light", "else"]
        assert names(graph, around_entity(graph, "hub", 3)) == ["hub", "heavy", "known"]

    def test_a_hub_leaves_room_for_the_second_hop(self):
        spokes = [("hub", "r", f"n{i:02}") for i in range(40)]
        graph = graph_of(spokes, [("n00", "r", f"far{i}") for i in range(20)])
        found = around_entity(graph, "hub")
        assert len(found.nodes) == 30
        assert [found.roles.count(r) for r in ("focus", "neighbour", "second")] == [1, 20, 9]
        alone = around_entity(graph_of(spokes), "hub")
        assert [alone.roles.count(r) for r in ("neighbour", "second")] == [29, 0]
        few = around_entity(graph_of(spokes, [("n00", "r", "far")]), "hub")
        assert [few.roles.count(r) for r in ("neighbour", "second")] == [28, 1]

    def test_what_hangs_on_a_hub_comes_after_what_others_join_too(self):
        graph = graph_of([("a", "r", "hub"), ("a", "r", "near"), ("near", "r", "zz")],
                         [("hub", "r", f"n{i}") for i in range(9)])  # fmt: skip
        assert names(graph, around_entity(graph, "a", 4)) == ["a", "hub", "near", "zz"]

    def test_spellings_and_unknown_names(self):
        graph = graph_of([("The Old Mill", "r", "Zürich")])
        assert graph.names[find_entity(graph, "old mill")] == "The Old Mill"
        assert graph.names[find_entity(graph, "zurich")] == "Zürich"
        with pytest.raises(DataError, match=r"no entity 'mill'\. Entities like it: The Old Mill"):
            find_entity(graph, "mill")
        with pytest.raises(DataError, match=r"no entity 'Zurch'\. Did you mean 'Zürich'"):
            find_entity(graph, "Zurch")


class TestForAQuestion:
    def test_names_are_found_longest_first(self):
        graph = graph_of([("Night Harbour", "r", "Harbour"), ("Vera", "r", "director")])
        found = named_entities(graph, "Who was the director of Night Harbour, Vera's film?")
        assert [graph.names[i] for i in found] == ["Night Harbour", "Vera"]
        assert [graph.names[i] for i in named_entities(graph, "director of harbour")] == ["director", "Harbour"]

    def test_paths(self):
        at = CHAIN.position
        assert [CHAIN.names[i] for i in shortest_path(CHAIN, at["a"], at["e"])] == list("abcde")
        assert shortest_path(CHAIN, at["a"], at["y"]) == []
        assert shortest_path(CHAIN, at["a"], at["a"]) == [at["a"]]
        longer = graph_of([(str(i), "r", str(i + 1)) for i in range(9)])
        assert shortest_path(longer, longer.position["0"], longer.position["5"]) == []
        two = graph_of([("s", "r", "m2"), ("s", "r", "m1"), ("m1", "r", "z"), ("m2", "r", "z")])
        path = shortest_path(two, two.position["s"], two.position["z"])
        assert [two.names[i] for i in path] == ["s", "m1", "z"], "of several that of the lowest positions"

    def test_paths_join_what_is_named_and_the_nearest_neighbours_fill_up(self, tmp_path):
        index = small_index(tmp_path)
        question = "Were Vera Lindqvist and Otto Brandt both German?"
        found = for_question(index, question, 8)
        shown = names(index.knowledge, found)
        assert set(shown[:2]) == {"Vera Lindqvist", "Otto Brandt"}
        assert found.roles[:2] == ("focus", "focus") and len(found.nodes) <= 8
        assert for_question(index, question, 8).nodes == found.nodes
        nothing = for_question(index, "what is baked with dry heat in an oven", 4)
        assert nothing.roles[0] == "focus" and "Baking" in names(index.knowledge, nothing)



def test_a_relation_of_a_thing_with_itself_is_not_drawn():
    graph = graph_of([("a", "is", "a"), ("a", "r", "b"), ("b", "q", "a")])
    found = around_entity(graph, "a")
    assert found.pairs.tolist() == [[0, 1]] and len(found.relations[0]) == 2
    lonely = graph_of([("a", "is", "a")])
    assert around_entity(lonely, "a").pairs.shape == (0, 2)
    assert np.asarray(around_entity(lonely, "a").nodes).tolist() == [0]
