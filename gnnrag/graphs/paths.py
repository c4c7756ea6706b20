"""Loopless paths between nodes, shortest first, on the full graph without copying any of it.

Distance-pruned enumeration (section 11 of DotRAG's specification): the nodes around an anchor are labelled with their
distance once; from a target the search goes depth first towards the anchor and steps only on nodes that can still make
it in time, so that almost every branch ends in a path. Yen's algorithm searches the graph again for every deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice, pairwise

import numpy as np

from gnnrag.graphs.knowledge import Adjacency
from gnnrag.graphs.neighbourhood import Labels, Rules, label_anchor

Path = tuple[int, ...]  # nodes from the anchor to the target
COLLECT_CAP = 200  # paths of one length that are compared by score, before the best are kept
# Nodes tried for one pair by `k_shortest_paths`: where the shortest path is the only one, looking for others may take
# for ever (ten hops around a leaf of MetaQA). The shortest paths are found without a wrong turn, so none is lost.
MAX_STEPS = 20_000


def k_shortest_paths(
    adjacency: Adjacency,
    labels: Labels,
    target: int,
    k: int,
    hops: int | None = None,
    score: Callable[[Path], float] | None = None,
    collect_cap: int = COLLECT_CAP,
) -> list[Path]:
    """Return up to `k` shortest loopless paths from the labelled anchor to a target.

    Longer ones that are not found within `MAX_STEPS` are left out.

    Args:
        adjacency: the graph.
        labels: of the anchor, by `label_anchor` or `Neighbourhood.labels`.
        target: where the paths end; one that is the anchor, or outside the labels' mask, has none.
        k: how many.
        hops: longest path, in edges; by default, and at most, what the labels serve.
        score: orders paths of equal length, higher first. Paths of equal length and score, or all of them without a
            score, are in the order of their node ids read from the target.
        collect_cap: with a score, how many paths of one length are found, in that order, and compared.

    Raises:
        ValueError: `k` is below 1, or `hops` is more than the labels serve.
    """
    if k < 1:
        raise ValueError(f"k={k}: must be at least 1")
    found: list[Path] = []
    steps = iter(range(MAX_STEPS))
    for length in _lengths(labels, hops):
        fresh = paths_of_length(adjacency, labels, target, length, steps)
        if score is None:
            found.extend(islice(fresh, k - len(found)))
        else:
            ties = list(islice(fresh, max(collect_cap, k)))
            found.extend(sorted(ties, key=lambda path: -score(path)))  # stable
        if len(found) >= k:
            break
    return found[:k]


def all_simple_paths(
    adjacency: Adjacency, labels: Labels, target: int, hops: int | None = None, cap: int | None = None
) -> list[Path]:
    """Return all loopless paths from the labelled anchor to a target, shortest first, or the first `cap` of them.

    Raises:
        ValueError: `hops` is more than the labels serve.
    """
    lengths = _lengths(labels, hops)
    return list(islice((path for n in lengths for path in paths_of_length(adjacency, labels, target, n)), cap))


def paths_between_seeds(
    adjacency: Adjacency, seeds: Sequence[int], hops: int = 3, cap: int | None = None, hub_degree: int | None = None
) -> dict[tuple[int, int], list[Path]]:
    """Return the loopless paths of every ordered pair of distinct seeds: PathRAG's candidates (step 4).

    The paths of (t, s) are those of (s, t) backwards. Pairs without a path are left out.

    Args:
        adjacency: the graph.
        seeds: distinct nodes; pairs are in their order.
        hops: longest path, in edges.
        cap: paths kept for each pair, the shortest; None keeps all, as released: in MetaQA that can be millions.
        hub_degree: no path passes through a node with more neighbours than this; seeds at its ends may be hubs.
    """
    rules = Rules(hub_degree=hub_degree)
    found: dict[tuple[int, int], list[Path]] = {}
    for i, source in enumerate(seeds):
        labels = label_anchor(adjacency, source, hops, rules)
        for target in seeds[i + 1 :]:
            if paths := all_simple_paths(adjacency, labels, target, cap=cap):
                found[source, target] = paths
                found[target, source] = [path[::-1] for path in paths]
    return {(s, t): found[s, t] for s in seeds for t in seeds if (s, t) in found}


def paths_of_length(
    adjacency: Adjacency, labels: Labels, target: int, length: int, steps: Iterator[int] | None = None
) -> Iterator[Path]:
    """Yield the loopless paths of exactly `length` edges, in the order of their node ids read from the target.

    The search takes one of `steps`, if they are given, for each node that it tries, and ends with them.
    """
    is_outside = labels.mask is not None and not labels.mask[target]
    if is_outside or target == labels.anchor or length < 1:
        return
    if length == 1:
        if labels.distance[target] == 1:
            yield labels.anchor, int(target)
        return
    yield from _towards_anchor(adjacency, labels, (int(target),), length, count() if steps is None else steps)


def mean_node_score(scores: np.ndarray) -> Callable[[Path], float]:
    """Return a path score: the mean over the path's nodes of `scores`, shape (num_nodes,)."""
    return lambda path: float(sum(float(scores[node]) for node in path) / len(path))


def mean_relation_score(adjacency: Adjacency, scores: np.ndarray) -> Callable[[Path], float]:
    """Return a path score: the mean over its edges of the best parallel relation's `scores`, shape (num_relations,)."""

    def score(path: Path) -> float:
        best = [float(scores[adjacency.relations_between(a, b)].max()) for a, b in pairwise(path)]
        return sum(best) / len(best)

    return score


def _lengths(labels: Labels, hops: int | None) -> range:
    hops = labels.hops if hops is None else hops
    if hops > labels.hops:
        raise ValueError(f"hops={hops}: the labels serve up to {labels.hops}; label the anchor with more hops")
    return range(1, hops + 1)


def _towards_anchor(
    adjacency: Adjacency, labels: Labels, path: Path, left: int, steps: Iterator[int]
) -> Iterator[Path]:
    """Extend a path, whose first node is its newest, to the anchor by exactly `left` >= 2 edges."""
    if next(steps, None) is None:
        return
    near = adjacency.neighbours_of(path[0])
    distance = labels.through[near]
    if left == 2:  # the next node must touch the anchor: one filter instead of one call for each
        for node in near[distance == 1].tolist():
            if node not in path:
                yield (labels.anchor, node, *path)
        return
    for node in near[distance < left].tolist():
        if node not in path:
            yield from _towards_anchor(adjacency, labels, (node, *path), left - 1, steps)
