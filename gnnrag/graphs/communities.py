"""Hierarchical Leiden communities of a knowledge graph, component by component.

`released` clusters the largest component only, so that the rest has no community (Q-MS-2); `fixed` clusters every
component and gathers those of one or two entities in buckets of ten. A community's key depends on its level and the
names of its members alone.
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
from gnnrag.graphs.leiden import Cluster, hash_of, hierarchical_leiden, ordered_leiden
from gnnrag.io import digest

NEARLY_ALL = 0.8  # a part with a larger share of its community says nothing new: its own parts take its place


@dataclass(frozen=True)
class Splitting:
    """How communities are split: their size from which on, the resolution of the modularity, `leiden`'s randomness."""

    max_size: int
    resolution: float
    randomness: float


class Component:
    """A connected graph; nodes are numbered in the order of their distinct names, `ends` are distinct pairs."""

    def __init__(self, names: Sequence[str], ends: np.ndarray, weights: np.ndarray, settings: Splitting) -> None:
        self.names, self.settings, self.max_size = names, settings, settings.max_size
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        self.ends, self.weights = ends[order], weights[order]
        self.starts = np.searchsorted(self.ends[:, 0], np.arange(len(names) + 1))
        self.levels: list[np.ndarray] = []
        self.clusters: list[Cluster] = []

    def released(self) -> list[Cluster]:
        """Return the hierarchy of the released algorithm."""
        s = self.settings
        return hierarchical_leiden(self.ends, self.weights, s.max_size, s.resolution, s.randomness)

    def ordered(self, is_whole: bool = False) -> list[Cluster]:
        """Return the hierarchy that edits disturb least; of a part that `is_whole`, only what is below the whole."""
        everything = np.arange(len(self.names))
        if len(everything) <= self.max_size:
            return [] if is_whole else [Cluster(tuple(everything.tolist()), -1, 0)]
        self.levels = ordered_leiden(self.names, self.ends, self.weights, self.settings.resolution)
        top = _groups(everything, self.levels[-1])
        if len(top) < 2 and is_whole:
            return []
        for group in top:
            self._add(group, -1, 0, len(self.levels) - 2)
        return self.clusters

    def _add(self, group: np.ndarray, parent: int, level: int, finer: int) -> None:
        """Add a community and what is below it; one of a single entity is left out."""
        if len(group) < 2:
            return
        number = len(self.clusters)
        self.clusters.append(Cluster(tuple(group.tolist()), parent, level))
        if len(group) <= self.max_size:
            return
        parts = self._parts(group, finer, len(group))
        if parts is None:
            self._split(group, number, level)
        else:
            for part, below in parts:
                self._add(part, number, level + 1, below)

    def _parts(self, group: np.ndarray, finer: int, size: int) -> list[tuple[np.ndarray, int]] | None:
        """Return the parts of a group with the level below theirs; None where no level tells any apart."""
        while finer >= 0:
            parts = _groups(group, self.levels[finer])
            finer -= 1
            if len(parts) > 1:
                out = []
                for part in parts:
                    inner = self._parts(part, finer, size) if len(part) > NEARLY_ALL * size else None
                    out += inner if inner is not None else [(part, finer)]
                return out
        return None

    def _split(self, group: np.ndarray, parent: int, level: int) -> None:
        """Split a community of the finest level, which only its own inside decides."""
        inside = np.zeros(len(self.names), dtype=bool)
        inside[group] = True
        rows = np.concatenate([np.arange(self.starts[i], self.starts[i + 1]) for i in group.tolist()])
        rows = rows[inside[self.ends[rows, 1]]]
        ends = np.searchsorted(group, self.ends[rows])
        names = [self.names[i] for i in group.tolist()]
        part = Component(names, ends, self.weights[rows], self.settings)
        offset = len(self.clusters)
        for c in part.ordered(is_whole=True):
            members = tuple(group[list(c.members)].tolist())
            above = parent if c.parent < 0 else c.parent + offset
            self.clusters.append(Cluster(members, above, level + 1 + c.level))


def _groups(nodes: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """Return nodes by label, groups by their first node; nodes stay ascending."""
    groups: dict[int, list[int]] = defaultdict(list)
    for node, label in zip(nodes.tolist(), labels[nodes].tolist(), strict=True):
        groups[label].append(node)
    return [np.array(group) for group in groups.values()]


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
        """Key to position."""
        return {key: i for i, key in enumerate(self.keys)}

    @cached_property
    def children(self) -> Lists:
        """Communities right below each, ascending."""
        inner = np.flatnonzero(self.parents >= 0)
        return Lists.grouped(self.parents[inner], inner, len(self))

    @cached_property
    def occurrence(self) -> np.ndarray:
        """Distinct passages of each community's members over the largest such number. Shape (num_communities,)."""
        return occurrence_weights(self.passages.sizes)

    def of_entities(self, num_entities: int) -> Lists:
        """Communities of each entity, ascending, hence coarsest first."""
        return self.members.turned(num_entities)


def occurrence_weights(counts: Any) -> np.ndarray:
    """Return counts over their maximum, zeros where all are zero. Shape of `counts`, float64."""
    counts = np.asarray(counts, dtype=np.float64)
    return counts / counts.max() if counts.size and counts.max() > 0 else counts


def find_communities(
    graph: KnowledgeGraph,
    profile: str = "fixed",
    algorithm: str = "auto",
    max_size: int = 10,
    resolution: float = 1.0,
    randomness: float = 0.001,
) -> Communities:
    """Cluster a graph into a hierarchy of communities; clusters larger than `max_size` are split further.

    A pair of entities weighs what its relations weigh together. `algorithm`: `leiden` as released (with `randomness`),
    `ordered` so that edits change little elsewhere (`gnnrag.graphs.leiden`), `auto`: the first for the profile
    `released`, the second for `fixed`.
    """
    if algorithm == "auto":
        algorithm = "leiden" if profile == "released" else "ordered"
    settings = Splitting(max_size, resolution, randomness)
    components = _components(graph)
    if profile == "released":
        components = sorted(components, key=lambda c: -len(c[0]))[:1]  # the first of the largest
    clusters: list[Cluster] = []
    for nodes, edges in components:
        if len(nodes) >= (2 if profile == "released" else SMALL):
            names = [graph.names[i] for i in nodes.tolist()]
            part = Component(names, np.searchsorted(nodes, graph.pairs[0][edges]), graph.pairs[2][edges], settings)
            hierarchy = part.released() if algorithm == "leiden" else part.ordered()
            offset = len(clusters)
            for c in hierarchy:
                members = tuple(nodes[list(c.members)].tolist())
                clusters.append(Cluster(members, c.parent + offset if c.parent >= 0 else -1, c.level))
    buckets = [] if profile == "released" else _buckets(graph, [nodes for nodes, _ in components if len(nodes) < SMALL])
    return _gather(graph, clusters, buckets)


def _components(graph: KnowledgeGraph) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return entities and pairs of each connected component, by their first entity."""
    ends = graph.pairs[0]
    shape = (graph.num_entities, graph.num_entities)
    links = coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=shape)
    count, label = connected_components(links, directed=False)
    by_node, by_edge = np.argsort(label, kind="stable"), np.argsort(label[ends[:, 0]], kind="stable")
    nodes = np.split(by_node, np.cumsum(np.bincount(label, minlength=count))[:-1]) if count else []
    sizes = np.bincount(label[ends[:, 0]], minlength=count)
    edges = np.split(by_edge, np.cumsum(sizes)[:-1]) if count else []
    return sorted(zip(nodes, edges, strict=True), key=lambda c: int(c[0][0]))


def _buckets(graph: KnowledgeGraph, small: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
    """Gather small components, ten entities at most, by the bits of their names' hashes: an edit changes one bucket."""
    hashed = [(hash_of(graph.names[int(nodes[0])]), nodes.tolist()) for nodes in small]

    def parted(rows: list[tuple[int, list[int]]], bit: int) -> list[tuple[int, ...]]:
        if sum(len(nodes) for _, nodes in rows) <= BUCKET or bit < 0:
            return [tuple(sorted(i for _, nodes in rows for i in nodes))] if rows else []
        ones = [row for row in rows if row[0] >> bit & 1]
        return [*parted([row for row in rows if not row[0] >> bit & 1], bit - 1), *parted(ones, bit - 1)]

    return parted(hashed, 63)


def _gather(graph: KnowledgeGraph, clusters: Sequence[Cluster], buckets: Sequence[tuple[int, ...]]) -> Communities:
    """Order the clusters, and add what belongs to each."""
    rows = [(c.level, c.members, c.parent, False) for c in clusters]
    rows += [(0, members, -1, True) for members in buckets]
    order = sorted(range(len(rows)), key=lambda i: (rows[i][0], rows[i][3], rows[i][1]))
    new = {old: i for i, old in enumerate(order)}
    members = Lists.of([rows[i][1] for i in order])
    inside = np.zeros(graph.num_entities, dtype=bool)
    relations, passages = [], []
    for i in range(len(order)):
        inner = members[i]
        inside[inner] = True
        near = np.unique(np.concatenate([graph.incident[j] for j in inner.tolist()]))
        relations.append(near[inside[graph.ends[near]].all(axis=1)].tolist())
        passages.append(np.unique(np.concatenate([graph.entity_passages[j] for j in inner.tolist()])).tolist())
        inside[inner] = False
    names = graph.names
    return Communities(
        tuple("c-" + digest([rows[i][0], [names[j] for j in rows[i][1]]])[:16] for i in order),
        np.array([rows[i][0] for i in order], dtype=np.int32),
        np.array([new.get(rows[i][2], -1) for i in order], dtype=np.int32),
        np.array([rows[i][3] for i in order], dtype=bool),
        members,
        Lists.of(relations),
        Lists.of(passages),
    )
