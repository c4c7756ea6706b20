"""Hierarchical Leiden communities of a knowledge graph, component by component.

GraphRAG's release clusters the largest component only, so that the rest has no community. Here a component within the
size limit is left whole, and those of one or two entities are gathered in buckets of ten. A community's key depends on
its level and the names of its members alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.io import digest, hash64

SEED = 0xDEADBEEF
BUCKET = 10  # most entities of small components that share a report
SMALL = 3  # components of fewer entities go into buckets


@dataclass(frozen=True)
class Communities:
    """Communities, coarsest level first, then by their first member."""

    keys: Sequence[str]  # (num_communities,) distinct stable ids
    levels: np.ndarray  # (num_communities,) int32, 0 is coarsest
    parents: np.ndarray  # (num_communities,) int32, -1 at the top
    members: Lists  # entities of each, ascending
    relations: Lists  # relations inside each, ascending
    passages: Lists  # distinct passages of the members, ascending

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def position(self) -> Mapping[str, int]:
        return {key: i for i, key in enumerate(self.keys)}

    @cached_property
    def children(self) -> Lists:
        """Communities right below each, ascending."""
        inner = np.flatnonzero(self.parents >= 0)
        return Lists.grouped(self.parents[inner], inner, len(self))

    @cached_property
    def occurrence(self) -> np.ndarray:
        """Distinct passages of each community's members over the largest such number. Shape (num_communities,)."""
        return self.passages.sizes / max(1, self.passages.sizes.max(initial=0))


def find_communities(graph: KnowledgeGraph, profile: str = "fixed", max_size: int = 10) -> Communities:
    """Cluster a graph into a hierarchy of communities; clusters larger than `max_size` are split further.

    A pair of entities weighs what its relations weigh together. An edit may change communities anywhere in its
    component, and none outside of it.
    """
    ends = graph.edges.ends
    count, label = connected_components(graph.edges.neighbours.matrix(graph.num_entities), directed=False)
    components = Lists.grouped(label, np.arange(len(label)), count)
    inner_edges = Lists.grouped(label[ends[:, 0]], np.arange(len(ends)), count)
    is_released, largest = profile == "released", int(np.argmax(components.sizes)) if count else -1
    rows: list[tuple[int, tuple[int, ...], int]] = []  # level, members, parent
    small: list[np.ndarray] = []
    for i, nodes in enumerate(components):
        if is_released and (i != largest or len(nodes) < 2):
            continue
        if len(nodes) < SMALL and not is_released:
            small.append(nodes)
        elif len(nodes) <= max_size and not is_released:
            rows.append((0, tuple(nodes.tolist()), -1))
        else:
            inner, offset = inner_edges[i], len(rows)
            between = np.searchsorted(nodes, ends[inner])
            for members, parent, level in hierarchical_leiden(between, graph.edge_weights[inner], max_size):
                rows.append((level, tuple(nodes[members].tolist()), parent + offset if parent >= 0 else -1))
    hashed = [(hash64(graph.names[int(nodes[0])]), nodes.tolist()) for nodes in small]
    rows += [(0, members, -1) for members in _buckets(hashed, 63)]
    return _gathered(graph, rows)


def _buckets(small: Sequence[tuple[int, list[int]]], bit: int) -> list[tuple[int, ...]]:
    """Gather components, ten entities at most, by the bits of their hashes from `bit` down: an edit changes one."""
    if sum(len(nodes) for _, nodes in small) <= BUCKET or bit < 0:
        return [tuple(sorted(i for _, nodes in small for i in nodes))] if small else []
    halves = ([row for row in small if row[0] >> bit & 1 == side] for side in (0, 1))
    return [members for half in halves for members in _buckets(half, bit - 1)]


def _gathered(graph: KnowledgeGraph, rows: Sequence[tuple[int, tuple[int, ...], int]]) -> Communities:
    """Order communities, and add what belongs to each."""
    order = sorted(range(len(rows)), key=lambda i: rows[i][:2])
    new = {old: i for i, old in enumerate(order)}
    levels, all_members, parents = zip(*(rows[i] for i in order), strict=True) if rows else ((), (), ())
    members = Lists.of(all_members)
    has, proper = members.matrix(graph.num_entities), np.flatnonzero(graph.ends[:, 0] != graph.ends[:, 1])
    heads, tails = graph.ends[proper].T
    relations = Lists.of_matrix(has[:, heads].multiply(has[:, tails]))
    return Communities(
        tuple("c-" + digest([rows[i][0], [graph.names[j] for j in rows[i][1]]])[:16] for i in order),
        np.array(levels, dtype=np.int32),
        np.array([new.get(parent, -1) for parent in parents], dtype=np.int32),
        members,
        Lists(relations.indptr, proper[relations.values].astype(np.int32)),
        Lists.of_matrix(has @ graph.entity_passages.matrix(graph.num_passages)),
    )


def hierarchical_leiden(ends: np.ndarray, weights: np.ndarray, max_size: int) -> list[tuple[list[int], int, int]]:
    """Cluster as Microsoft GraphRAG does: level 0 is coarsest, what is larger than `max_size` is split again.

    `ends` is (num_edges, 2), distinct undirected pairs, sorted; `weights` positive. Returns the nodes of each cluster,
    ascending, the cluster that it is part of (-1: none), and its level.
    """
    from graspologic_native import hierarchical_leiden as released

    rows = [(str(a), str(b), float(w)) for (a, b), w in zip(ends.tolist(), weights.tolist(), strict=True)]
    options: dict[str, Any] = {"resolution": 1.0, "randomness": 0.001, "max_cluster_size": max_size}
    members: dict[tuple[int, int, int | None], list[int]] = defaultdict(list)  # level, number, number of the parent
    for row in released(rows, iterations=1, use_modularity=True, seed=SEED, **options):
        members[row.level, row.cluster, row.parent_cluster].append(int(row.node))
    ordered = sorted(members, key=lambda key: (key[0], min(members[key])))
    at = {number: i for i, (_, number, _) in enumerate(ordered)}  # numbers of all levels differ
    return [(sorted(members[key]), at.get(key[2], -1), key[0]) for key in ordered]  # type: ignore[arg-type]
