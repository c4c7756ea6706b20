"""PathRAG and HyperGraphRAG: the passages of entities, and PathRAG's paths, as the released code orders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import Edges
from gnnrag.graphs.paths import paths_between_seeds
from gnnrag.graphs.rendering import passages_in_order
from gnnrag.retrievers.knowledge import classic_passages
from gnnrag.retrievers.pathrag import path_limit, reliable_paths
from tests.goldens.reading import golden

FILES = ("pathrag.json", "hypergraphrag.json")


def ranked(
    seeds: Sequence[Any], own: Sequence[Sequence[int]], near: Sequence[Sequence[Any]], cited: Mapping[Any, list[int]]
) -> list[int]:
    """Return the passages of seeds, whose neighbours are numbered in the order in which they are named."""
    names = list(dict.fromkeys(name for row in near for name in row))
    numbers = {name: number for number, name in enumerate(names)}
    neighbours = Lists.of([[numbers[name] for name in row] for row in near])
    passages = Lists.of([cited.get(str(name), []) for name in names] or [[]])
    return classic_passages(range(len(seeds)), Lists.of(own), neighbours, passages)


@pytest.mark.parametrize("file", FILES)
def test_the_order_of_passages_on_real_seeds(file: str) -> None:
    cases = golden(file)["entity_side_passages"]
    assert cases
    for case in cases:
        found = ranked(case["seeds"], case["seed_passages"], case["seed_neighbours"], case["neighbour_passages"])
        assert found == case["official_order"], case["question_id"]


@pytest.mark.parametrize("file", FILES)
def test_the_rule_in_small(file: str) -> None:
    for case in golden(file)["hand_made_passages"]:
        own, near = ([case[part][seed] for seed in case["seeds"]] for part in ("seed_passages", "neighbours"))
        assert ranked(case["seeds"], own, near, case["neighbour_passages"]) == case["official_order"], case["name"]


def test_paths_and_their_scores() -> None:
    constants = golden("pathrag.json")["constants"]
    for case in golden("pathrag.json")["paths"]:
        numbers = {node: number for number, node in enumerate(sorted({*case["seeds"], *np.ravel(case["edges"])}))}
        adjacency = Edges(
            np.array([[numbers[a], numbers[b]] for a, b in case["edges"]], int).reshape(-1, 2), len(numbers)
        )
        pairs = paths_between_seeds(adjacency, [numbers[seed] for seed in case["seeds"]], constants["max_hops"])
        every = reliable_paths(pairs, decay=constants["decay"], gate=constants["threshold"], most=10**9)
        scores = {frozenset(path.nodes): path.score for path in every}
        best: dict[frozenset[int], float] = {}
        for pair in case["pairs"]:
            for path, score in pair["paths"]:
                nodes = frozenset(numbers[node] for node in path)
                best[nodes] = max(score, best.get(nodes, 0.0))
        assert {n: pytest.approx(s, abs=1e-11) for n, s in best.items() if n in scores} == scores
        assert path_limit(pairs, constants["most"]) == case["limit"]
        kept = reliable_paths(pairs, decay=constants["decay"], gate=constants["threshold"], most=constants["most"])
        assert [path.score for path in kept] == pytest.approx([score for _, score in case["selected"]], abs=1e-11)
        if not case["tie_at_limit"]:  # else which of the equal ones stays follows the order of a hash table
            chosen = {frozenset(numbers[node] for node in path) for path, _ in case["selected"]}
            assert {frozenset(path.nodes) for path in kept} == chosen


def test_the_passages_of_relations() -> None:
    for case in golden("pathrag.json")["entity_side_passages"]:
        side = case["relation_side"]
        found = passages_in_order(range(len(side["edges"])), Lists.of(side["edge_passages"]))
        assert found == side["official_order"], case["question_id"]
