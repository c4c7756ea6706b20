"""Communities: the released hierarchy, the one that edits disturb least, buckets, and being a function of the graph."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from gnnrag.extract.base import Extraction
from gnnrag.graphs.communities import BUCKET, Communities, find_communities, occurrence_weights, ordered_leiden
from gnnrag.graphs.folding import fold
from gnnrag.graphs.knowledge import KnowledgeGraph


def graph(*pairs: str) -> KnowledgeGraph:
    """A graph from `a-b` for an edge and `a` for an isolated node; a passage each."""
    found = []
    for pair in pairs:
        names = tuple(pair.split("-"))
        found.append(Extraction(names, ((names[0], "joins", names[1]),) if len(names) == 2 else ()))
    return fold(found, "exact", "none")


def clique(letter: str, size: int = 5) -> list[str]:
    return [f"{letter}{i}-{letter}{j}" for i in range(size) for j in range(i)]


def members(g: KnowledgeGraph, c: Communities, level: int | None = None) -> list[set[str]]:
    chosen = [i for i in range(len(c)) if level is None or c.levels[i] == level]
    return [{g.names[j] for j in c.members[i].tolist()} for i in chosen]


def modularity(g: KnowledgeGraph, labels: np.ndarray) -> float:
    ends, _, weights = g.pairs
    inside = weights[labels[ends[:, 0]] == labels[ends[:, 1]]].sum() / weights.sum()
    strength = np.bincount(ends.ravel(), weights=np.repeat(weights, 2), minlength=g.num_entities)
    return float(inside - ((np.bincount(labels, weights=strength) / strength.sum()) ** 2).sum())


TWO = [*clique("a"), *clique("b"), "a0-b0"]


@pytest.mark.parametrize("algorithm", ["leiden", "ordered"])
def test_two_cliques_are_two_communities(algorithm: str) -> None:
    g = graph(*TWO)
    c = find_communities(g, algorithm=algorithm, max_size=5)
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
    for algorithm in ("leiden", "ordered"):
        c = find_communities(g, algorithm=algorithm, max_size=6)
        for i in range(len(c)):
            own = set(c.members[i].tolist())
            for child in c.children[i].tolist():
                assert c.parents[child] == i and c.levels[child] == c.levels[i] + 1
                assert set(c.members[child].tolist()) < own
                assert set(c.relations[child].tolist()) <= set(c.relations[i].tolist())
        leaves = [set(c.members[i].tolist()) for i in range(len(c)) if not len(c.children[i])]
        assert len(leaves) == 4 and sum(map(len, leaves)) == 24


def test_outside_the_largest_component() -> None:
    """Q-MS-2."""
    lonely = [f"z{i}" for i in range(23)]
    g = graph(*clique("a"), *clique("b", 3), "c0-c1", *lonely)
    released = find_communities(g, "released")
    assert members(g, released) == [{f"a{i}" for i in range(5)}]
    fixed = find_communities(g, "fixed")
    found = members(g, fixed)
    assert {f"a{i}" for i in range(5)} in found and {"b0", "b1", "b2"} in found
    buckets = [i for i in range(len(fixed)) if fixed.is_bucket[i]]
    gathered = [g.names[j] for i in buckets for j in fixed.members[i].tolist()]
    assert sorted(gathered) == sorted([*lonely, "c0", "c1"]), "everything small is in one bucket, once"
    assert all(len(fixed.members[i]) <= BUCKET for i in buckets)
    assert any({"c0", "c1"} <= members(g, fixed)[i] for i in buckets), "a component stays together"


def test_one_more_lonely_entity_changes_one_bucket() -> None:
    lonely = [f"entity {i}" for i in range(200)]
    before, after = (
        {frozenset(m) for m in members(g, find_communities(g))} for g in (graph(*lonely), graph(*lonely, "entity 200"))
    )
    assert len(after - before) <= 2 and len(before & after) >= len(before) - 2


def test_an_edit_in_one_component_moves_no_other() -> None:
    one, other = clique("a", 12), [*clique("b", 6), *clique("c", 6), "b0-c0"]
    for algorithm in ("leiden", "ordered"):
        before = find_communities(graph(*one, *other), algorithm=algorithm)
        after = find_communities(graph(*one, "a0-new", *other), algorithm=algorithm)
        kept = {k for k, m in zip(before.keys, members(graph(*one, *other), before), strict=True) if "b0" in m}
        assert kept and kept <= set(after.keys)


def test_far_from_an_edit_communities_stay() -> None:
    """A ring of cliques: cutting one out of forty must leave nearly all others as they are."""
    ring = [p for i in range(40) for p in [*clique(f"k{i:02}n", 6), f"k{i:02}n0-k{(i + 1) % 40:02}n1"]]
    before = set(find_communities(graph(*ring), max_size=6).keys)
    after = set(find_communities(graph(*ring, "k00n0-new1", "k00n0-new2"), max_size=6).keys)
    assert len(before & after) / len(before) > 0.85


def test_ordered_leiden_finds_as_good_communities_as_the_released_one() -> None:
    rng = np.random.default_rng(3)
    edges = {(int(a), int(b)) for a, b in rng.integers(0, 300, (4000, 2)) if a < b and (a // 30 == b // 30)}
    edges |= {(int(a), int(b)) for a, b in rng.integers(0, 300, (300, 2)) if a < b}
    g = graph(*(f"n{a:03}-n{b:03}" for a, b in sorted(edges)))
    levels = ordered_leiden(g.names, g.pairs[0], g.pairs[2])
    released = find_communities(g, algorithm="leiden", max_size=1000)
    labels = np.zeros(g.num_entities, dtype=np.int64)
    for i in range(len(released)):
        labels[released.members[i]] = i
    assert modularity(g, levels[-1]) > modularity(g, labels) - 0.01
    for fine, coarse in pairwise(levels):
        assert all(len(set(coarse[fine == label].tolist())) == 1 for label in set(fine.tolist())), "levels nest"


def test_empty_graph() -> None:
    for profile in ("released", "fixed"):
        assert len(find_communities(graph(), profile)) == 0
        assert occurrence_weights([0, 0]).tolist() == [0, 0]
