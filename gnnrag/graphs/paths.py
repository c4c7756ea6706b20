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

from gnnrag.graphs.knowledge import Edges

FAR = 127  # the distance of a node that is not reached


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """All nodes within some hops of any anchor: distances over the whole graph, which is shared and not copied."""

    edges: Edges
    hops: int  # 1 to 126
    closed: np.ndarray  # (num_nodes,) bool, not passed through unless they are the anchor
    anchors: tuple[int, ...]  # the distinct starting nodes in the order given
    distance: np.ndarray  # (num_nodes,) int8 hops to the nearest anchor, `FAR` outside
    _through: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    @cached_property
    def mask(self) -> np.ndarray:
        """Which nodes are inside. Shape (num_nodes,), bool."""
        return self.distance != FAR

    @property
    def relations(self) -> np.ndarray:
        """Rows of the relations with both ends inside, by row. Shape (n,), int64."""
        return np.flatnonzero(self.mask[self.edges.stated].all(axis=1))

    def __len__(self) -> int:
        return int(np.count_nonzero(self.mask))

    def through(self, anchor: int) -> np.ndarray:
        """Return the distances from one anchor to the nodes that its paths may pass through, (num_nodes,) int8.

        They prune the search for paths. All other nodes have `FAR`, and so has the anchor.
        """
        if anchor not in self._through:
            # The last layer, by far the largest, is left out: a path's end is looked up from its neighbours.
            hops = _distances(self.edges, max(1, self.hops - 1), self.closed, self.mask, [anchor])
            hops[self.closed] = hops[anchor] = FAR
            self._through[anchor] = hops
        return self._through[anchor]


def grow(
    edges: Edges,
    anchors: Sequence[int],
    hops: int,
    allowed: np.ndarray | None = None,
    closed: np.ndarray | None = None,
) -> Neighbourhood:
    """Grow a neighbourhood breadth first. Anchors are exempt from the limits.

    `allowed`, (num_nodes,) bool: what it may contain; `closed`: what may be reached but not passed through.
    """
    allowed = np.ones(edges.num_nodes, dtype=bool) if allowed is None else allowed.copy()
    allowed[list(anchors)] = True
    closed = np.zeros(edges.num_nodes, dtype=bool) if closed is None else closed
    distance = _distances(edges, hops, closed, allowed, anchors)
    return Neighbourhood(edges, hops, closed, tuple(dict.fromkeys(map(int, anchors))), distance)


def _distances(edges: Edges, hops: int, closed: np.ndarray, mask: np.ndarray, anchors: Sequence[int]) -> np.ndarray:
    """Return (num_nodes,) int8 hops to the nearest anchor within `mask`, not through `closed`; else `FAR`."""
    distance = np.full(edges.num_nodes, FAR, dtype=np.int8)
    distance[list(anchors)] = 0
    for depth in range(1, hops + 1):
        near = edges.neighbours.at(np.flatnonzero((distance == depth - 1) & ~(closed & (depth > 1))))
        distance[near[mask[near] & (distance[near] == FAR)]] = depth
    return distance


Path = tuple[int, ...]  # nodes from the anchor to the target
COLLECT_CAP = 200  # paths of one length that are compared by score, before the best are kept
# Nodes tried for one pair by `k_shortest_paths`: where the shortest path is the only one, looking for others may take
# for ever (ten hops around a leaf of MetaQA). The shortest paths are found without a wrong turn, so none is lost.
MAX_STEPS = 20_000


def k_shortest_paths(
    near: Neighbourhood, anchor: int, target: int, k: int, score: Callable[[Path], float]
) -> list[Path]:
    """Return up to `k` shortest loopless paths from an anchor to a target inside a neighbourhood.

    Longer ones not found within `MAX_STEPS` are left out. `score` orders paths of equal length, higher first, among the
    first `COLLECT_CAP` of a length; ties are in the order of their node ids read from the target.
    """
    paths: list[Path] = []
    steps = iter(range(MAX_STEPS))
    for length in range(1, near.hops + 1):
        ties = list(islice(paths_of_length(near, anchor, target, length, steps), max(COLLECT_CAP, k)))
        paths.extend(sorted(ties, key=lambda path: -score(path)))  # stable
        if len(paths) >= k:
            break
    return paths[:k]


def paths_between_seeds(
    edges: Edges, seeds: Sequence[int], hops: int = 3, cap: int | None = None, hub_degree: int | None = None
) -> dict[tuple[int, int], list[Path]]:
    """Return the loopless paths of every ordered pair of distinct seeds: PathRAG's candidates (step 4).

    The paths of (t, s) are those of (s, t) backwards; pairs without a path are left out. `cap` keeps the shortest of
    each pair; None keeps all, as released: in MetaQA that can be millions. No path passes through a node with more
    neighbours than `hub_degree`; seeds at its ends may be hubs.
    """
    closed = np.zeros(edges.num_nodes, bool) if hub_degree is None else edges.degrees > hub_degree
    everywhere = Neighbourhood(edges, hops, closed, tuple(seeds), np.zeros(edges.num_nodes, np.int8))
    of_pairs: dict[tuple[int, int], list[Path]] = {}
    for i, source in enumerate(seeds):
        for target in seeds[i + 1 :]:
            every = (path for n in range(1, hops + 1) for path in paths_of_length(everywhere, source, target, n))
            if paths := list(islice(every, cap)):
                of_pairs[source, target] = paths
                of_pairs[target, source] = [path[::-1] for path in paths]
    return {(s, t): of_pairs[s, t] for s in seeds for t in seeds if (s, t) in of_pairs}


def paths_of_length(
    near: Neighbourhood, anchor: int, target: int, length: int, steps: Iterator[int] | None = None
) -> Iterator[Path]:
    """Yield the loopless paths of exactly `length` edges, in the order of their node ids read from the target.

    A target that is the anchor, or outside, has none. Each node tried takes one of `steps`; the search ends with them.
    """
    if target == anchor or not near.mask[target]:
        return
    if length == 1:
        if near.edges.between(anchor, target) is not None:
            yield anchor, int(target)
        return
    neighbours, through, steps = near.edges.neighbours, near.through(anchor), steps or count()

    def search(path: Path, left: int) -> Iterator[Path]:
        """Extend a path, whose first node is its newest, to the anchor by exactly `left` >= 2 edges."""
        if next(steps, None) is None:
            return
        around = neighbours[path[0]]
        hops = through[around]
        # Before the last step the node must touch the anchor: one filter instead of one call for each.
        for node in around[hops == 1 if left == 2 else hops < left].tolist():
            if node in path:
                continue
            if left == 2:
                yield (anchor, node, *path)
            else:
                yield from search((node, *path), left - 1)

    yield from search((int(target),), length)


def mean_relation_score(edges: Edges, scores: np.ndarray) -> Callable[[Path], float]:
    """Return a path score: the mean over its edges of the best parallel relation's `scores`, shape (num_relations,)."""
    best = edges.best(scores)
    return lambda path: sum(float(best[edges.between(a, b)]) for a, b in pairwise(path)) / (len(path) - 1)
