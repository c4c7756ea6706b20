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
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.io import digest, hash64

SEED = 0xDEADBEEF
BUCKET = 10  # entities of small components that share a report
SMALL = 3  # components of fewer entities go into buckets


@dataclass(frozen=True)
class Communities:
    """Communities, coarsest level first, then by their first member."""

    keys: Sequence[str]  # (num_communities,) distinct stable ids
    levels: np.ndarray  # (num_communities,) int32, 0 is coarsest
    parents: np.ndarray  # (num_communities,) int32, -1 at the top
    is_bucket: np.ndarray  # (num_communities,) bool: it gathers entities of small components
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
    ends, weights = graph.edges.ends, graph.edge_weights
    links = coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(graph.num_entities, graph.num_entities))
    count, label = connected_components(links, directed=False)
    components, pairs = Lists.grouped(label, np.arange(len(label)), count), np.argsort(label[ends[:, 0]], kind="stable")
    of_pairs = np.searchsorted(label[ends[pairs, 0]], np.arange(count + 1))
    rows: list[tuple[int, bool, tuple[int, ...], int]] = []  # level, is it a bucket, members, parent
    small = []
    sizes, is_released = np.bincount(label, minlength=count), profile == "released"
    largest = sorted(np.flatnonzero(sizes > 1).tolist(), key=lambda i: -sizes[i])[:1]  # the first of equals
    for i in largest if is_released else range(count):
        nodes = components[i]
        if len(nodes) < SMALL and not is_released:
            small.append(nodes)
        elif len(nodes) <= max_size and not is_released:
            rows.append((0, False, tuple(nodes.tolist()), -1))
        else:
            inner, offset = pairs[of_pairs[i] : of_pairs[i + 1]], len(rows)
            between = np.searchsorted(nodes, ends[inner])
            for members, parent, level in hierarchical_leiden(between, weights[inner], max_size):
                rows.append((level, False, tuple(nodes[members].tolist()), parent + offset if parent >= 0 else -1))
    rows += [(0, True, members, -1) for members in _buckets(graph, small)]
    return _gathered(graph, rows)


def _buckets(graph: KnowledgeGraph, small: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
    """Gather small components, ten entities at most, by the bits of their names' hashes: an edit changes one bucket."""

    def split_by_bit(rows: list[tuple[int, list[int]]], bit: int) -> list[tuple[int, ...]]:
        if sum(len(nodes) for _, nodes in rows) <= BUCKET or bit < 0:
            return [tuple(sorted(i for _, nodes in rows for i in nodes))] if rows else []
        ones = [row for row in rows if row[0] >> bit & 1]
        return [*split_by_bit([row for row in rows if not row[0] >> bit & 1], bit - 1), *split_by_bit(ones, bit - 1)]

    return split_by_bit([(hash64(graph.names[int(nodes[0])]), nodes.tolist()) for nodes in small], 63)


def _gathered(graph: KnowledgeGraph, rows: Sequence[tuple[int, bool, tuple[int, ...], int]]) -> Communities:
    """Order communities, and add what belongs to each."""
    order = sorted(range(len(rows)), key=lambda i: rows[i][:3])
    new = {old: i for i, old in enumerate(order)}
    members = Lists.of([rows[i][2] for i in order])
    has, proper = members.matrix(graph.num_entities), np.flatnonzero(graph.ends[:, 0] != graph.ends[:, 1])
    heads, tails = graph.ends[proper].T
    relations = Lists.of_matrix(has[:, heads].multiply(has[:, tails]))
    return Communities(
        tuple("c-" + digest([rows[i][0], [graph.names[j] for j in rows[i][2]]])[:16] for i in order),
        np.array([rows[i][0] for i in order], dtype=np.int32),
        np.array([new.get(rows[i][3], -1) for i in order], dtype=np.int32),
        np.array([rows[i][1] for i in order], dtype=bool),
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
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    above: dict[tuple[int, int], tuple[int, int]] = {}
    for row in released(rows, iterations=1, use_modularity=True, seed=SEED, **options):
        key = (row.level, row.cluster)
        members[key].append(int(row.node))
        if row.parent_cluster is not None:
            above[key] = (row.level - 1, row.parent_cluster)
    ordered = sorted(members, key=lambda key: (key[0], min(members[key])))
    at = {key: i for i, key in enumerate(ordered)}
    return [(sorted(members[k]), at[above[k]] if k in above else -1, k[0]) for k in ordered]
