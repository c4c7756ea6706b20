"""Hierarchical Leiden communities of a knowledge graph, component by component.

`released` clusters the largest component only, so that the rest has no community; `fixed` clusters every
component and gathers those of one or two entities in buckets of ten. A community's key depends on its level and the
names of its members alone.

`graspologic_native` draws the order of nodes from one random stream: one node more changes half of the communities of a
large component. `ordered_leiden` orders nodes by a hash of their names and rounds the total weight to a coarse grid, so
that an edit changes communities only where it happens.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.io import digest

SEED = 0xDEADBEEF
_EPSILON = 1e-12  # gains closer than this are ties
NEARLY_ALL = 0.8  # a part with a larger share of its community says nothing new: its own parts take its place


@dataclass(frozen=True)
class Cluster:
    """A cluster of a hierarchy: positions of its nodes ascending, the cluster it is part of (-1: none), its depth."""

    members: tuple[int, ...]
    parent: int
    level: int


class _Component:
    """A connected graph; nodes are numbered in the order of their distinct names, `ends` are distinct pairs, sorted."""

    def __init__(
        self, names: Sequence[str], ends: np.ndarray, weights: np.ndarray, max_size: int, resolution: float
    ) -> None:
        self.names, self.ends, self.weights = names, ends, weights
        self.max_size, self.resolution = max_size, resolution
        self.starts = np.searchsorted(ends[:, 0], np.arange(len(names) + 1))
        self.levels: list[np.ndarray] = []
        self.clusters: list[Cluster] = []

    def ordered(self, is_whole: bool = False) -> list[Cluster]:
        """Return the hierarchy that edits disturb least; of a part that `is_whole`, only what is below the whole."""
        everything = np.arange(len(self.names))
        if len(everything) <= self.max_size:
            return [] if is_whole else [Cluster(tuple(everything.tolist()), -1, 0)]
        self.levels = ordered_leiden(self.names, self.ends, self.weights, self.resolution)
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
        part = _Component(names, ends, self.weights[rows], self.max_size, self.resolution)
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
    `ordered` so that edits change little elsewhere (`ordered_leiden`), `auto`: the first for the profile
    `released`, the second for `fixed`.
    """
    if algorithm == "auto":
        algorithm = "leiden" if profile == "released" else "ordered"
    components = _components(graph)
    if profile == "released":
        components = sorted(components, key=lambda c: -len(c[0]))[:1]  # the first of the largest
    clusters: list[Cluster] = []
    for nodes, edges in components:
        if len(nodes) >= (2 if profile == "released" else SMALL):
            ends, weights = np.searchsorted(nodes, graph.pairs[0][edges]), graph.pairs[2][edges]
            if algorithm == "leiden":
                hierarchy = hierarchical_leiden(ends, weights, max_size, resolution, randomness)
            else:
                names = [graph.names[i] for i in nodes.tolist()]
                hierarchy = _Component(names, ends, weights, max_size, resolution).ordered()
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

    def split_by_bit(rows: list[tuple[int, list[int]]], bit: int) -> list[tuple[int, ...]]:
        if sum(len(nodes) for _, nodes in rows) <= BUCKET or bit < 0:
            return [tuple(sorted(i for _, nodes in rows for i in nodes))] if rows else []
        ones = [row for row in rows if row[0] >> bit & 1]
        return [*split_by_bit([row for row in rows if not row[0] >> bit & 1], bit - 1), *split_by_bit(ones, bit - 1)]

    return split_by_bit(hashed, 63)


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


# ------------------------------------------------------------------------------------------------------------- Leiden
@dataclass
class _Graph:
    """Nodes in the order of visits, with weighted neighbours and strengths (self-loops included)."""

    links: list[list[tuple[int, float]]]
    strength: list[float]

    def __len__(self) -> int:
        return len(self.links)


def hierarchical_leiden(
    ends: np.ndarray, weights: np.ndarray, max_size: int, resolution: float = 1.0, randomness: float = 0.001
) -> list[Cluster]:
    """Cluster as Microsoft GraphRAG does: level 0 is coarsest, what is larger than `max_size` is split again.

    `ends` is (num_edges, 2), distinct undirected pairs, sorted; `weights` positive. A higher `resolution` gives more
    clusters, a higher `randomness` a freer refinement.
    """
    from graspologic_native import hierarchical_leiden as released

    rows = [(str(a), str(b), float(w)) for (a, b), w in zip(ends.tolist(), weights.tolist(), strict=True)]
    assignments = released(
        rows,
        resolution=resolution,
        randomness=randomness,
        iterations=1,
        use_modularity=True,
        max_cluster_size=max_size,
        seed=SEED,
    )
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    above: dict[tuple[int, int], tuple[int, int]] = {}
    for row in assignments:
        key = (row.level, row.cluster)
        members[key].append(int(row.node))
        if row.parent_cluster is not None:
            above[key] = (row.level - 1, row.parent_cluster)
    ordered = sorted(members, key=lambda key: (key[0], min(members[key])))
    at = {key: i for i, key in enumerate(ordered)}
    return [Cluster(tuple(sorted(members[k])), at[above[k]] if k in above else -1, k[0]) for k in ordered]


def ordered_leiden(
    names: Sequence[str], ends: np.ndarray, weights: np.ndarray, resolution: float = 1.0
) -> list[np.ndarray]:
    """Cluster a connected graph with Leiden's moves, refinement and aggregation, in an order that edits keep.

    Traag et al., "From Louvain to Leiden" (2019), with greedy refinement (randomness towards 0). The total weight is
    rounded to a power of the square root of 2. `names` are distinct, `ends` (num_edges, 2) distinct undirected pairs,
    `weights` positive. Returns labels (num_nodes,), finest first; each coarsens the one before.
    """
    ranked = sorted(range(len(names)), key=lambda i: (hash_of(names[i]), i))
    position = np.empty(len(names), dtype=np.int64)
    position[ranked] = np.arange(len(names))
    graph = _build(len(names), position[ends].tolist(), weights.tolist())
    total = sum(graph.strength)
    gamma = resolution / 2.0 ** (round(math.log2(total) * 2) / 2)
    graph, member = _without_leaves(graph)
    communities, levels = list(range(len(graph))), []
    while True:
        _move(graph, communities, gamma)
        parts = _refine(graph, communities, gamma)
        labels = sorted(set(parts))
        if len(labels) == len(graph):
            break
        new = {label: i for i, label in enumerate(labels)}
        parts = [new[part] for part in parts]
        member = [parts[node] for node in member]
        levels.append(np.array(member)[position])
        graph, communities = _aggregate(graph, parts, len(labels), communities)
    levels.append(np.array([communities[node] for node in member])[position])
    return levels


def hash_of(text: str) -> int:
    """Return 64 bits that depend on the text alone."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _build(count: int, ends: list[list[int]], weights: list[float]) -> _Graph:
    graph = _Graph([[] for _ in range(count)], [0.0] * count)
    for (a, b), weight in zip(ends, weights, strict=True):
        graph.links[a].append((b, weight))
        graph.links[b].append((a, weight))
        graph.strength[a] += weight
        graph.strength[b] += weight
    return graph


def _without_leaves(graph: _Graph) -> tuple[_Graph, list[int]]:
    """Put each node of one neighbour into that neighbour; returns the smaller graph and the node that each went to."""
    leaf = [len(row) == 1 and len(graph.links[row[0][0]]) > 1 for row in graph.links]
    inner = [i for i in range(len(graph)) if not leaf[i]]
    new = {node: i for i, node in enumerate(inner)}
    member = [new[graph.links[i][0][0]] if leaf[i] else new[i] for i in range(len(graph))]
    strength = [0.0] * len(inner)
    for node, target in enumerate(member):
        strength[target] += graph.strength[node]
    links = [[(new[j], w) for j, w in graph.links[i] if not leaf[j]] for i in inner]
    return _Graph(links, strength), member


def _move(graph: _Graph, communities: list[int], gamma: float) -> None:
    """Move nodes to the neighbouring community of the largest gain until none gains; changes `communities`."""
    links, strength = graph.links, graph.strength
    total = [0.0] * len(graph)
    for node, community in enumerate(communities):
        total[community] += strength[node]
    queue, waiting = deque(range(len(graph))), [True] * len(graph)
    while queue:
        node = queue.popleft()
        waiting[node] = False
        current, k = communities[node], strength[node]
        joined = {current: 0.0}
        for other, weight in links[node]:
            community = communities[other]
            joined[community] = joined.get(community, 0.0) + weight
        total[current] -= k
        best, gain = current, joined[current] - gamma * k * total[current]
        for community, weight in joined.items():
            value = weight - gamma * k * total[community]
            if value > gain + _EPSILON or (value > gain - _EPSILON and best != current and community < best):
                best, gain = community, value
        total[best] += k
        if best != current:
            communities[node] = best
            for other, _ in links[node]:
                if not waiting[other] and communities[other] != best:
                    waiting[other] = True
                    queue.append(other)


def _refine(graph: _Graph, communities: list[int], gamma: float) -> list[int]:
    """Return parts of the communities, connected and well joined to the rest of theirs; a part is named by a node."""
    links, count = graph.links, len(graph)
    parts, alone, total = list(range(count)), [True] * count, list(graph.strength)
    whole = [0.0] * count
    for node, community in enumerate(communities):
        whole[community] += total[node]
    outward = [sum(w for j, w in links[i] if communities[j] == communities[i]) for i in range(count)]

    def is_joined(part: int, community: int) -> bool:
        return outward[part] >= gamma * total[part] * (whole[community] - total[part]) - _EPSILON

    for node in range(count):
        community = communities[node]
        if not alone[node] or not is_joined(node, community):
            continue
        near: dict[int, float] = {}
        for other, weight in links[node]:
            if communities[other] == community:
                near[parts[other]] = near.get(parts[other], 0.0) + weight
        best, gain = -1, 0.0
        for part, weight in near.items():
            value = weight - gamma * total[node] * total[part]
            better = value > gain + _EPSILON or (best >= 0 and value > gain - _EPSILON and part < best)
            if better and is_joined(part, community):
                best, gain = part, value
        if best >= 0:
            outward[best] += outward[node] - 2 * near[best]
            total[best] += total[node]
            parts[node], alone[best], alone[node] = best, False, False
    return parts


def _aggregate(graph: _Graph, parts: list[int], count: int, communities: list[int]) -> tuple[_Graph, list[int]]:
    """Return the graph of the parts, in order of their first nodes, and the communities that they start in."""
    joined: list[dict[int, float]] = [defaultdict(float) for _ in range(count)]
    strength, start = [0.0] * count, [0] * count
    for node, part in enumerate(parts):
        strength[part] += graph.strength[node]
        start[part] = communities[node]
        for other, weight in graph.links[node]:
            if parts[other] != part:
                joined[part][parts[other]] += weight
    first: dict[int, int] = {}
    for part, community in enumerate(start):
        first.setdefault(community, part)
    return _Graph([sorted(row.items()) for row in joined], strength), [first[community] for community in start]
