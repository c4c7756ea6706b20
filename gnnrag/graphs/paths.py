"""Neighbourhoods and paths of a knowledge graph, bounded in hops and nodes (for DotRAG and PathRAG).

Nothing copies the graph: a neighbourhood is one distance per node, and a depth-first search from the target steps only
on nodes that can still reach the anchor in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice, pairwise

import numpy as np

from gnnrag.graphs.knowledge import Adjacency

FAR = 127  # the distance of a node that is not reached


@dataclass(frozen=True, eq=False)
class Labels:
    """Distances from one anchor, which prune the search for its paths."""

    anchor: int
    hops: int  # the longest path that these labels can serve
    distance: np.ndarray  # (num_nodes,) int8 hops, reliable up to `max(1, hops - 1)`, `FAR` beyond
    through: np.ndarray  # the same, `FAR` for the anchor and nodes that paths may not pass through
    mask: np.ndarray | None = None  # (num_nodes,) bool, where a path may end; None is all


def label_anchor(
    adjacency: Adjacency, anchor: int, hops: int, closed: np.ndarray, mask: np.ndarray | None = None
) -> Labels:
    """Label nodes for paths of 1 to `hops` edges, at most 126, through no node of `closed`, (num_nodes,) bool."""
    # The last layer, by far the largest, is not labelled: a path's end is looked up from its neighbours.
    distance = _distances(adjacency, max(1, hops - 1), closed, mask, [anchor])
    through = np.where(closed, np.int8(FAR), distance)
    through[anchor] = FAR
    return Labels(anchor, hops, distance, through, mask)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """All nodes within some hops of any anchor: distances over the whole graph, which is shared and not copied."""

    adjacency: Adjacency
    hops: int
    closed: np.ndarray  # (num_nodes,) bool, not passed through unless they are the anchor
    anchors: tuple[int, ...]  # the distinct starting nodes in the order given
    distance: np.ndarray  # (num_nodes,) int8 hops to the nearest anchor, `FAR` outside
    _labels: dict[int, Labels] = field(default_factory=dict, repr=False)

    @cached_property
    def mask(self) -> np.ndarray:
        """Which nodes are inside. Shape (num_nodes,), bool."""
        return self.distance != FAR

    @property
    def relations(self) -> np.ndarray:
        """Rows of the relations with both ends inside, by row. Shape (n,), int64."""
        return np.flatnonzero(self.mask[self.adjacency.ends].all(axis=1))

    def __len__(self) -> int:
        return int(np.count_nonzero(self.mask))

    def labels(self, anchor: int) -> Labels:
        """Return the labels of one anchor inside this neighbourhood, cached."""
        if anchor not in self._labels:
            self._labels[anchor] = label_anchor(self.adjacency, anchor, self.hops, self.closed, self.mask)
        return self._labels[anchor]


def grow(
    adjacency: Adjacency,
    anchors: Sequence[int],
    hops: int,
    allowed: np.ndarray | None = None,
    closed: np.ndarray | None = None,
) -> Neighbourhood:
    """Grow a neighbourhood breadth first, 1 to 126 hops. Anchors are exempt from the limits.

    `allowed`, (num_nodes,) bool: what it may contain; `closed`: what may be reached but not passed through.
    """
    if allowed is not None:
        allowed = allowed.copy()
        allowed[list(anchors)] = True
    closed = np.zeros(adjacency.num_nodes, dtype=bool) if closed is None else closed
    distance = _distances(adjacency, hops, closed, allowed, anchors)
    return Neighbourhood(adjacency, hops, closed, tuple(dict.fromkeys(map(int, anchors))), distance)


def _distances(
    adjacency: Adjacency, hops: int, closed: np.ndarray, mask: np.ndarray | None, anchors: Sequence[int]
) -> np.ndarray:
    """Return (num_nodes,) int8 hops to the nearest anchor within `mask`, not through `closed`; else `FAR`."""
    distance = np.full(adjacency.num_nodes, FAR, dtype=np.int8)
    distance[list(anchors)] = 0
    for depth in range(1, hops + 1):
        near = adjacency.distinct.at(np.flatnonzero((distance == depth - 1) & ~(closed & (depth > 1))))
        near = near[distance[near] == FAR]
        distance[near if mask is None else near[mask[near]]] = depth
    return distance


Path = tuple[int, ...]  # nodes from the anchor to the target
COLLECT_CAP = 200  # paths of one length that are compared by score, before the best are kept
# Nodes tried for one pair by `k_shortest_paths`: where the shortest path is the only one, looking for others may take
# for ever (ten hops around a leaf of MetaQA). The shortest paths are found without a wrong turn, so none is lost.
MAX_STEPS = 20_000


def k_shortest_paths(
    adjacency: Adjacency, labels: Labels, target: int, k: int, score: Callable[[Path], float]
) -> list[Path]:
    """Return up to `k` shortest loopless paths from the labelled anchor to a target.

    Longer ones not found within `MAX_STEPS` are left out; a target that is the anchor, or outside the labels' mask, has
    none. `score` orders paths of equal length, higher first, among the first `COLLECT_CAP` of a length; ties are in the
    order of their node ids read from the target.
    """
    paths: list[Path] = []
    steps = iter(range(MAX_STEPS))
    for length in range(1, labels.hops + 1):
        ties = list(islice(paths_of_length(adjacency, labels, target, length, steps), max(COLLECT_CAP, k)))
        paths.extend(sorted(ties, key=lambda path: -score(path)))  # stable
        if len(paths) >= k:
            break
    return paths[:k]


def paths_between_seeds(
    adjacency: Adjacency, seeds: Sequence[int], hops: int = 3, cap: int | None = None, hub_degree: int | None = None
) -> dict[tuple[int, int], list[Path]]:
    """Return the loopless paths of every ordered pair of distinct seeds: PathRAG's candidates (step 4).

    The paths of (t, s) are those of (s, t) backwards; pairs without a path are left out. `cap` keeps the shortest of
    each pair; None keeps all, as released: in MetaQA that can be millions. No path passes through a node with more
    neighbours than `hub_degree`; seeds at its ends may be hubs.
    """
    closed = np.zeros(adjacency.num_nodes, bool) if hub_degree is None else adjacency.degree > hub_degree
    of_pairs: dict[tuple[int, int], list[Path]] = {}
    for i, source in enumerate(seeds):
        labels = label_anchor(adjacency, source, hops, closed)
        for target in seeds[i + 1 :]:
            every = (path for n in range(1, hops + 1) for path in paths_of_length(adjacency, labels, target, n))
            if paths := list(islice(every, cap)):
                of_pairs[source, target] = paths
                of_pairs[target, source] = [path[::-1] for path in paths]
    return {(s, t): of_pairs[s, t] for s in seeds for t in seeds if (s, t) in of_pairs}


def paths_of_length(
    adjacency: Adjacency, labels: Labels, target: int, length: int, steps: Iterator[int] | None = None
) -> Iterator[Path]:
    """Yield the loopless paths of exactly `length` edges, in the order of their node ids read from the target."""
    # Each node tried takes one of `steps`, if given; the search ends with them.
    is_outside = labels.mask is not None and not labels.mask[target]
    if is_outside or target == labels.anchor or length < 1:
        return
    if length == 1:
        if labels.distance[target] == 1:
            yield labels.anchor, int(target)
        return
    yield from _towards_anchor(adjacency, labels, (int(target),), length, count() if steps is None else steps)


def mean_relation_score(adjacency: Adjacency, scores: np.ndarray) -> Callable[[Path], float]:
    """Return a path score: the mean over its edges of the best parallel relation's `scores`, shape (num_relations,)."""

    def score(path: Path) -> float:
        best = [float(scores[adjacency.relations_between(a, b)].max()) for a, b in pairwise(path)]
        return sum(best) / len(best)

    return score


def _towards_anchor(
    adjacency: Adjacency, labels: Labels, path: Path, left: int, steps: Iterator[int]
) -> Iterator[Path]:
    """Extend a path, whose first node is its newest, to the anchor by exactly `left` >= 2 edges."""
    if next(steps, None) is None:
        return
    near = adjacency.distinct[path[0]]
    distance = labels.through[near]
    if left == 2:  # the next node must touch the anchor: one filter instead of one call for each
        for node in near[distance == 1].tolist():
            if node not in path:
                yield (labels.anchor, node, *path)
        return
    for node in near[distance < left].tolist():
        if node not in path:
            yield from _towards_anchor(adjacency, labels, (node, *path), left - 1, steps)
