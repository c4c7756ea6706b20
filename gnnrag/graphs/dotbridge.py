"""DotRAG's bridging DOT: paths that touch the anchors of two concepts (specification 12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gnnrag.graphs.neighbourhood import Neighbourhood
from gnnrag.graphs.paths import Path, k_shortest_paths

Sides = tuple[tuple[int, ...], ...]  # anchors of each concept


def touches(path: Path, sides: Sides) -> bool:
    """Tell whether a path passes an anchor of every concept."""
    return all(not set(side).isdisjoint(path) for side in sides)


def far_anchors(sides: Sides, seen: set[int]) -> list[int]:
    """Return the anchors of all concepts but the first that were no destination yet: where paths between them end."""
    return [node for side in sides[1:] for node in side if node not in seen and node not in sides[0]]


def bridging_paths(
    near: Neighbourhood, sides: Sides, target: int, count: int, score: Callable[[Path], float]
) -> list[Path]:
    """Return the shortest loopless paths to a target that touch both concepts, shortest first.

    They start at an anchor of one concept and pass one of the other, or end there. None is longer than the
    neighbourhood reaches.

    Args:
        near: grown from the anchors of both.
        sides: the anchors of two concepts.
        target: where the paths end.
        count: how many from each pair of anchors, and in each half of a path.
        score: orders paths of equal length, higher first.
    """

    def shortest(start: int, end: int) -> list[Path]:
        return [] if start == end else list(
            k_shortest_paths(near.adjacency, near.labels(start), end, count, score=score)
        )  # fmt: skip

    def joined() -> Iterator[Path]:
        for here, there in (sides, sides[::-1]):
            for first in here:
                for second in there:
                    halves = [(second,)] if second == target else shortest(second, target)
                    for path in shortest(first, second) if halves else ():
                        for half in halves:
                            whole = (*path, *half[1:])
                            if len(set(whole)) == len(whole) <= near.hops + 1:
                                yield whole

    return sorted(dict.fromkeys(joined()), key=lambda path: (len(path), -score(path), path))
