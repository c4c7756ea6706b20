"""Communities: the hierarchy, components, buckets, and being a function of the graph."""

from __future__ import annotations

import pytest

from gnnrag.extract.base import Extraction
from gnnrag.graphs.communities import BUCKET, Communities, find_communities
from gnnrag.graphs.folding import fold
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.io import digest


def graph(*pairs: str) -> KnowledgeGraph:
    """A graph from `a-b` for an edge and `a` for an isolated node; a passage each."""
    found = []
    for pair in pairs:
        names = tuple(pair.split("-"))
        found.append(Extraction(names, ((names[0], "joins", names[1]),) if len(names) == 2 else ()))
    return fold(found)


def clique(letter: str, size: int = 5) -> list[str]:
    return [f"{letter}{i}-{letter}{j}" for i in range(size) for j in range(i)]


def members(g: KnowledgeGraph, c: Communities, level: int | None = None) -> list[set[str]]:
    chosen = [i for i in range(len(c)) if level is None or c.levels[i] == level]
    return [{g.names[j] for j in c.members[i].tolist()} for i in chosen]


TWO = [*clique("a"), *clique("b"), "a0-b0"]


def test_two_cliques_are_two_communities() -> None:
    g = graph(*TWO)
    c = find_communities(g, max_size=5)
    assert members(g, c) == [{f"a{i}" for i in range(5)}, {f"b{i}" for i in range(5)}]
    assert c.levels.tolist() == [0, 0] and c.parents.tolist() == [-1, -1]
    assert [len(c.relations[i]) for i in range(2)] == [10, 10]
    assert c.passages.sizes.tolist() == [11, 11], "the passage of the bridge names a member of both"
    assert c.occurrence.tolist() == [1.0, 1.0]


def test_a_community_within_the_size_has_no_parts() -> None:
    g = graph(*TWO)
    assert members(g, find_communities(g, max_size=10)) == [{n for n in g.names}]


def test_the_hierarchy_nests() -> None:
    pairs = [p for letter in "abcd" for p in clique(letter, 6)]
    pairs += ["a0-b0", "a1-b1", "c0-d0", "c1-d1", "b2-c2"]
    g = graph(*pairs)
    c = find_communities(g, max_size=6)
    for i in range(len(c)):
        own = set(c.members[i].tolist())
        for child in c.children[i].tolist():
            assert c.parents[child] == i and c.levels[child] == c.levels[i] + 1
            assert set(c.members[child].tolist()) < own
            assert set(c.relations[child].tolist()) <= set(c.relations[i].tolist())
        names = [g.names[j] for j in sorted(own)]
        assert c.keys[i] == f"c-{digest([int(c.levels[i]), names])}"[:18], "the key is of level and names alone"
    leaves = [set(c.members[i].tolist()) for i in range(len(c)) if not len(c.children[i])]
    assert len(leaves) == 4 and sum(map(len, leaves)) == 24


def test_outside_the_largest_component() -> None:
    """Q-MS-2."""
    lonely = [f"z{i}" for i in range(23)]
    g = graph(*clique("a"), *clique("b", 3), "c0-c1", *lonely)
    assert members(g, find_communities(g, "released")) == [{f"a{i}" for i in range(5)}]
    found = members(g, find_communities(g))
    assert {f"a{i}" for i in range(5)} in found and {"b0", "b1", "b2"} in found
    buckets = [row for row in found if not {"a0", "b0"} & row]
    gathered = [name for row in buckets for name in row]
    assert sorted(gathered) == sorted([*lonely, "c0", "c1"]), "everything small is in one bucket, once"
    assert len(buckets) >= len(gathered) / BUCKET
    assert any({"c0", "c1"} <= row for row in buckets), "a component stays together"


@pytest.mark.parametrize("count", [159, 200])
def test_one_more_lonely_entity_changes_one_bucket(count: int) -> None:
    names = [f"entity {i}" for i in range(count + 1)]
    graphs = graph(*names[:-1]), graph(*names)
    before, after = ({frozenset(m) for m in members(g, find_communities(g))} for g in graphs)
    assert len(after - before) <= 2 and len(before & after) >= len(before) - 2


def test_an_edit_in_one_component_moves_no_other() -> None:
    one, other = clique("a", 12), [*clique("b", 6), *clique("c", 6), "b0-c0"]
    before = find_communities(graph(*one, *other))
    after = find_communities(graph(*one, "a0-new", *other))
    kept = {k for k, m in zip(before.keys, members(graph(*one, *other), before), strict=True) if "b0" in m}
    assert kept and kept <= set(after.keys)


def test_empty_graph() -> None:
    assert len(find_communities(graph())) == len(find_communities(graph(), "released")) == 0
