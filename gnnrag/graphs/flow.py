"""PathRAG's flow of resource along paths between seed nodes, and which paths it keeps.

"PathRAG: Pruning Graph-based Retrieval Augmented Generation with Relational Paths". The released code and the paper
differ: the code moves weight over edges, without decay on the first hop and with a gate of 0.3 (`edge_flow`); the paper
moves it over nodes (`node_flow`). What the code does by accident has the names Q-PR-4 to Q-PR-6 in our specification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Literal

from gnnrag.graphs.paths import Path

Flow = Literal["released", "paper"]
PairPaths = Mapping[tuple[int, int], Sequence[Path]]


@dataclass(frozen=True, slots=True)
class FlowPath:
    """A path with its reliability."""

    nodes: Path
    score: float


def edge_flow(paths: Sequence[Path], decay: float = 0.8, gate: float = 0.3) -> list[float]:
    """Return the score of each path of one (source, target) pair, as the released code computes it.

    The source hands each first edge an equal share, undecayed; an edge passes its weight on, decayed and shared among
    the successors, only if the weight is above the gate. A path's score is the mean weight of its edges. With four or
    more first hops every share is below the default gate and nothing gets beyond the first edge (Q-PR-5).

    A node that comes at two depths makes the sums depend on the order of the visits; released: the order of a hash
    table (Q-PR-6), here: ascending ids.

    Args:
        paths: of one pair, all from the same source to the same target, of 1 to 3 edges.
        decay: of each hop after the first.
        gate: weight that an edge must exceed to pass it on.
    """
    if not paths:
        return []
    source, target = paths[0][0], paths[0][-1]
    after = {node: sorted(found) for node, found in _successors(paths).items()}
    weight: dict[tuple[int, int], float] = {}
    for y in after[source]:
        first = weight[source, y] = weight.get((source, y), 0.0) + 1.0 / len(after[source])
        if y == target or first <= gate:
            continue
        for z in after[y]:
            second = weight[y, z] = weight.get((y, z), 0.0) + decay * first / len(after[y])
            if z == target or second <= gate:
                continue
            for u in after[z]:
                weight[z, u] = weight.get((z, u), 0.0) + decay * second / len(after[z])
    return [sum(weight.get(e, 0.0) for e in pairwise(p)) / (len(p) - 1) for p in paths]


def node_flow(paths: Sequence[Path], decay: float = 0.8, gate: float = 0.05) -> list[float]:
    """Return the score of each path of one (source, target) pair, as the paper defines it.

    A node's resource is the decayed sum of what its predecessors share out; a node whose share for each successor is
    below the gate keeps it. A path's score is the resource on its nodes over its number of edges.

    Nodes are visited in topological order of the union of the paths. Where paths run both ways between two nodes there
    is none: the node of least depth, then of lowest id, goes first, and what would flow back into it is not counted.

    Args:
        paths: of one pair, all from the same source to the same target.
        decay: of each hop.
        gate: the paper's theta, least share that is passed on.
    """
    if not paths:
        return []
    after = _successors(paths)
    resource = dict.fromkeys([*after, paths[0][-1]], 0.0)
    resource[paths[0][0]] = 1.0
    order = _visiting_order(paths, after)
    place = {node: i for i, node in enumerate(order)}
    for node in order:
        successors = sorted(after.get(node, ()))
        share = resource[node] / len(successors) if successors else 0.0
        if share >= gate:
            for other in successors:
                if place[other] > place[node]:
                    resource[other] += decay * share
    return [sum(resource[node] for node in path) / (len(path) - 1) for path in paths]


def pool_paths(pairs: PairPaths, score: Callable[[Sequence[Path]], list[float]], by_node_set: bool) -> list[FlowPath]:
    """Return the paths of all pairs, best first, each once: step 6 before its cap.

    The sort is stable, so that paths of equal score keep the order of the pairs; the better direction of a path wins.

    Args:
        pairs: the paths of each ordered pair.
        score: `edge_flow` or `node_flow` with its settings.
        by_node_set: as released, paths over the same nodes are one, whatever the order of the nodes (Q-PR-4); else only
            a path and its reverse are.
    """
    found = [FlowPath(p, s) for paths in pairs.values() for p, s in zip(paths, score(paths), strict=True)]
    kept: dict[Path, FlowPath] = {}
    for path in sorted(found, key=lambda path: -path.score):
        key = tuple(sorted(path.nodes)) if by_node_set else min(path.nodes, path.nodes[::-1])
        kept.setdefault(key, path)
    return list(kept.values())


def path_limit(pairs: PairPaths, most: int = 15) -> int:
    """Return how many paths PathRAG keeps: half of those of each length, over both directions; at most `most`."""
    counts: dict[int, int] = {}
    for paths in pairs.values():
        for path in paths:
            counts[len(path)] = counts.get(len(path), 0) + 1
    return min(most, sum(count // 2 for count in counts.values()))


def reliable_paths(
    pairs: PairPaths,
    flow: Flow = "released",
    decay: float = 0.8,
    gate: float | None = None,
    most: int = 15,
    by_node_set: bool = True,
) -> list[FlowPath]:
    """Return PathRAG's paths, the most reliable first (a prompt shows them in reverse).

    Args:
        pairs: by `paths_between_seeds`.
        flow: `released` or `paper`.
        decay: of a hop.
        gate: 0.3 for `released` and 0.05 for `paper` by default.
        most: upper bound on their number; see `path_limit`.
        by_node_set: see `pool_paths`.

    Raises:
        ValueError: unknown flow.
    """
    if flow not in ("released", "paper"):
        raise ValueError(f"flow={flow!r}: allowed are released, paper")
    run, usual = (edge_flow, 0.3) if flow == "released" else (node_flow, 0.05)
    bound = usual if gate is None else gate
    return pool_paths(pairs, lambda paths: run(paths, decay, bound), by_node_set)[: path_limit(pairs, most)]


def _successors(paths: Sequence[Path]) -> dict[int, set[int]]:
    """Return what follows each node on any of the paths."""
    after: dict[int, set[int]] = {}
    for path in paths:
        for node, other in pairwise(path):
            after.setdefault(node, set()).add(other)
    return after


def _visiting_order(paths: Sequence[Path], after: Mapping[int, set[int]]) -> list[int]:
    """Return the nodes in topological order; see `node_flow` for what happens where there is none."""
    depth: dict[int, int] = {}
    for path in paths:
        for i, node in enumerate(path):
            depth[node] = min(depth.get(node, i), i)
    waits = dict.fromkeys(depth, 0)
    for others in after.values():
        for other in others:
            waits[other] += 1
    ready = [(depth[node], node) for node, count in waits.items() if not count]
    left = sorted(depth, key=lambda node: (depth[node], node), reverse=True)
    order: dict[int, None] = {}
    heapify(ready)
    while left:
        node = heappop(ready)[1] if ready else left.pop()
        if node in order:
            continue
        order[node] = None
        for other in after.get(node, ()):
            waits[other] -= 1
            if not waits[other] and other not in order:
                heappush(ready, (depth[other], other))
    return list(order)
