"""Paths of a DOT (S3 of DotRAG): how they are found, their patterns of predicates, verdicts on them, and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.paths import Neighbourhood, Path, k_shortest_paths
from gnnrag.text.tokens import estimate_tokens

Label = Literal["complete", "partial", "irrelevant"]
Pattern = tuple[tuple[str, ...], ...]  # for each edge, its predicates; "~" in front of those stated the other way round
RELATION_WEIGHT = 0.9  # a node scores at least this share of its best relation's cosine
MAX_WALKED = 100_000  # steps spent on finding the paths of a pattern


@dataclass(frozen=True, slots=True)
class PathVerdict:
    """The verdict on one path. A partial one may have a `next_question`. `guessed`: no judge labelled this path."""

    id: str
    label: Label
    confidence: float = 1.0
    why: str = ""
    next_question: str | None = None
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class AcceptedPath:
    nodes: Path  # from the anchor on
    complete: bool  # it ends in what the question asks for; else it leads there
    confidence: float = 1.0  # in [0, 1]
    why: str = ""  # the judge's reason
    dot: int = 0  # position of its DOT
    round: int = 0  # when it was found, from 0

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Sorts complete ones first, then confident ones, then short ones."""
        return (not self.complete, -self.confidence, len(self.nodes))


def node_scores(near: Neighbourhood, nodes: np.ndarray, relations: np.ndarray | None) -> np.ndarray:
    """Return (num_nodes,) float64: a node's cosine, or 0.9 of that of a relation at it in the DOT if more."""
    scores = np.array(nodes, dtype=np.float64)
    if relations is not None:
        rows = near.relations
        for end in (0, 1):
            np.maximum.at(scores, near.edges.stated[rows, end], RELATION_WEIGHT * relations[rows])
    return scores


def candidates(near: Neighbourhood, scores: np.ndarray, seen: Iterable[int], count: int, floor: float) -> list[int]:
    """Return the best nodes of a DOT, `floor` or more, that are no anchors and not seen; ties by position."""
    free = near.mask & (scores >= floor)
    free[[*near.anchors, *seen]] = False
    nodes = np.flatnonzero(free)
    return nodes[np.argsort(-scores[nodes], kind="stable")[:count]].tolist()


def paths_to(near: Neighbourhood, target: int, count: int, score: Callable[[Path], float]) -> list[Path]:
    """Return the shortest loopless paths to a target, up to `count` from each anchor, shortest first."""
    paths: dict[Path, None] = {}
    anchors = set(near.anchors)
    for anchor in near.anchors:
        for path in k_shortest_paths(near, anchor, target, count, score=score):
            last = max(i for i, node in enumerate(path) if node in anchors)  # it starts at the last anchor it passes
            if last < len(path) - 1:
                paths.setdefault(path[last:])
    return sorted(paths, key=lambda path: (len(path), -score(path), path))


def edge_labels(graph: KnowledgeGraph, node: int, other: int) -> tuple[str, ...]:
    """Return the predicates that join two nodes, sorted; "~" in front of those stated from the other to the node."""
    rows = graph.edges.relations_between(node, other)
    return tuple(
        sorted({("" if graph.ends[r, 0] == node else "~") + (graph.labels[r] or graph.texts[r]) for r in rows})
    )


def pattern_of(graph: KnowledgeGraph, path: Path) -> Pattern:
    """Return the predicates along a path: paths of one pattern say the same of different things."""
    return tuple(edge_labels(graph, a, b) for a, b in pairwise(path))


def satisfied(pattern: Pattern, wanted: Sequence[str]) -> bool:
    """Tell whether a path's pattern states a sequence of predicates, one an edge."""
    return len(pattern) == len(wanted) and all(step in labels for labels, step in zip(pattern, wanted, strict=True))


def matching_paths(near: Neighbourhood, graph: KnowledgeGraph, wanted: Pattern) -> Iterator[Path]:
    """Yield the paths of a DOT that state at least a pattern, by anchor, then by the ids of their nodes.

    A walk may end at a node that it passed before (a person who directed a film and wrote another); it is yielded as
    the path up to where that node stands, unless that is the anchor.
    """
    left = MAX_WALKED

    def walk(path: Path) -> Iterator[Path]:
        nonlocal left
        step = set(wanted[len(path) - 1])
        is_last = len(path) == len(wanted)
        for node in near.edges.neighbours[path[-1]].tolist():
            left -= 1
            if left < 0:
                return
            again = node in path
            if not near.mask[node] or (again and not (is_last and node != path[0])):
                continue
            if not step <= set(edge_labels(graph, path[-1], node)):
                continue
            if is_last:
                yield path[: path.index(node) + 1] if again else (*path, node)
            elif not near.closed[node]:
                yield from walk((*path, node))

    for anchor in near.anchors:
        yield from walk((anchor,))


def without_prefixes(accepted: Sequence[AcceptedPath], drop_complete: bool = False) -> list[AcceptedPath]:
    """Drop paths that are the beginning of another; complete ones only with `drop_complete`, as the paper has it."""
    longer = {path.nodes[:end] for path in accepted for end in range(1, len(path.nodes))}
    return [path for path in accepted if path.nodes not in longer or (path.complete and not drop_complete)]


def best_of_each(accepted: Iterable[AcceptedPath]) -> list[AcceptedPath]:
    """Keep the best verdict of each sequence of nodes, by first appearance."""
    best: dict[Path, AcceptedPath] = {}
    for path in accepted:
        known = best.get(path.nodes, path)
        best[path.nodes] = path if path.rank < known.rank else known
    return list(best.values())


def describe(graph: KnowledgeGraph, path: Path, max_tokens: int = 250) -> str:
    """Return a path in words: "name (type)" of its start, then what joins each pair of nodes, as it is stated."""
    kind = graph.types[path[0]].replace("|", ", ")
    parts = [f"{graph.names[path[0]]} ({kind}):" if kind else f"{graph.names[path[0]]}:"]
    for a, b in pairwise(path):
        rows = graph.edges.relations_between(a, b)
        parts.append(" ; ".join(dict.fromkeys(graph.statement(r) for r in rows)) + ".")
    text = " ".join(parts)
    while estimate_tokens(text) > max_tokens:
        text = text[: int(len(text) * min(0.95, max_tokens / estimate_tokens(text)))].rstrip()
    return text
