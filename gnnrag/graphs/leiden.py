"""Leiden clustering that an edit changes only where it happens, and the released hierarchical Leiden.

`graspologic_native` draws the order of nodes from one random stream: one node more changes half of the communities of a
large component. `ordered_leiden` orders nodes by a hash of their names and rounds the total weight to a coarse grid.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SEED = 0xDEADBEEF
_EPSILON = 1e-12  # gains closer than this are ties


@dataclass(frozen=True)
class Cluster:
    """A cluster of a hierarchy: positions of its nodes ascending, the cluster it is part of (-1: none), its depth."""

    members: tuple[int, ...]
    parent: int
    level: int


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
