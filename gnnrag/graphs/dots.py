"""DotRAG's regions of a graph: which nodes a division of thought (DOT) may visit (specification 3 and 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.neighbourhood import Neighbourhood, Rules, grow
from gnnrag.graphs.schema import Schema, split_types

_BUSY = 2.0  # a type is a hub's type when its mean degree is this many times the graph's


@dataclass(frozen=True, slots=True)
class Filter:
    """Which types a DOT admits and which it passes through.

    Attributes:
        allowed: types that may appear; none is no filter.
        terminal: types of the answer.
        through: types that paths may pass through; None is all allowed ones that are not terminal.
    """

    allowed: tuple[str, ...] = ()
    terminal: tuple[str, ...] = ()
    through: tuple[str, ...] | None = None

    @property
    def passable(self) -> tuple[str, ...] | None:
        """Types that are passed through; None is every type."""
        if self.through is not None:
            return self.through
        return tuple(kind for kind in self.allowed if kind not in self.terminal) if self.allowed else None


@dataclass(frozen=True, slots=True)
class Limits:
    """How far and how large: `hops` edges, `max_nodes` nodes, and from `hub_degree` on a node is a hub.

    `widen`: a filter that leaves the anchors without a neighbour gives way.
    """

    hops: int = 3
    max_nodes: int = 5000
    hub_degree: int = 500
    widen: bool = True


@dataclass(frozen=True, eq=False)
class Region:
    """A grown DOT: its neighbourhood, the filter it ended up with, and what had to be changed on the way.

    `notes` are `filter_relaxed`, `filter_dropped`, `isolated`, `hub_cut`, and the cuts of the size guard in order:
    `closed:TYPE`, `hops:2`, `layers`.
    """

    near: Neighbourhood
    filter: Filter
    notes: tuple[str, ...] = ()


class TypedGraph:
    """A knowledge graph whose nodes can be picked by type.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph, self.adjacency = graph, graph.adjacency
        self.kinds = [split_types(types) for types in graph.types]
        self._masks: dict[str, np.ndarray] = {}
        for node, kinds in enumerate(self.kinds):
            for kind in kinds:
                if kind not in self._masks:
                    self._masks[kind] = np.zeros(graph.num_entities, dtype=bool)
                self._masks[kind][node] = True

    def of_types(self, names: Sequence[str]) -> np.ndarray:
        """Return which nodes have any of some types; unknown types have none. Shape (num_entities,), bool."""
        mask = np.zeros(self.graph.num_entities, dtype=bool)
        for name in names:
            if name in self._masks:
                mask |= self._masks[name]
        return mask

    def types_of(self, nodes: Sequence[int]) -> list[str]:
        """Return the types of some nodes, each once, by first appearance."""
        return list(dict.fromkeys(kind for node in nodes for kind in self.kinds[node]))

    @cached_property
    def busy_types(self) -> list[str]:
        """Types whose nodes have far more neighbours than others, most first; ties by name."""
        degree = self.adjacency.degree
        overall = float(degree.mean()) if len(degree) else 0.0
        means = {kind: float(degree[mask].mean()) for kind, mask in self._masks.items()}
        return sorted((k for k, mean in means.items() if mean > _BUSY * overall), key=lambda k: (-means[k], k))

    def region(self, anchors: Sequence[int], wanted: Filter, limits: Limits, scores: np.ndarray) -> Region:
        """Grow a DOT.

        Anchors are inside whatever their type. Nodes of types that are terminal only, and hubs of types that nobody
        named as passable, end paths but do not continue them.

        Args:
            anchors: where it starts.
            wanted: the types asked for.
            limits: of its size.
            scores: similarity of each node to what is looked for; decides what a hub and the size guard keep.
                Shape (num_entities,).
        """
        wanted, notes = self._loosened(anchors, wanted) if limits.widen else (wanted, [])
        if not self.adjacency.degree[list(anchors)].any():
            notes += ["isolated"]
        near = self._grow(anchors, wanted, limits, scores)
        if any(self.adjacency.degree[a] > limits.hub_degree for a in anchors):
            notes += ["hub_cut"]
        closed: list[str] = []
        for kind in self.busy_types:
            if len(near) <= limits.max_nodes:
                break
            if kind not in (wanted.through or ()):
                closed.append(kind)
                notes.append(f"closed:{kind}")
                near = self._grow(anchors, wanted, limits, scores, closed)
        if len(near) > limits.max_nodes and limits.hops > 2:
            limits = replace(limits, hops=2)
            notes.append("hops:2")
            near = self._grow(anchors, wanted, limits, scores, closed)
        if len(near) > limits.max_nodes:
            notes.append("layers")
            near = near.cut(scores, limits.max_nodes)
        return Region(near, wanted, tuple(notes))

    def _loosened(self, anchors: Sequence[int], wanted: Filter) -> tuple[Filter, list[str]]:
        """Widen a filter that leaves the anchors without a neighbour: by the types next to them, else altogether."""
        if not wanted.allowed:
            return wanted, []
        near = self.adjacency.reach(np.array(anchors, dtype=np.int64))
        if not len(near) or self.of_types(wanted.allowed)[near].any():
            return wanted, []
        more = self.types_of(near.tolist())
        if not more:
            return Filter(), ["filter_dropped"]
        through = wanted.passable or ()
        added = tuple(kind for kind in more if kind not in wanted.allowed)
        return Filter((*wanted.allowed, *added), wanted.terminal, (*through, *added)), ["filter_relaxed"]

    def _grow(
        self,
        anchors: Sequence[int],
        wanted: Filter,
        limits: Limits,
        scores: np.ndarray,
        closed_types: Sequence[str] = (),
    ) -> Neighbourhood:
        degree, passable = self.adjacency.degree, wanted.passable
        named = self.of_types(wanted.through or ())
        shut = (degree > limits.hub_degree) & ~named
        if passable is not None:
            shut |= self.of_types(wanted.terminal) & ~self.of_types(passable)
        shut |= self.of_types(closed_types) & ~named
        rules = Rules(self.of_types(wanted.allowed) if wanted.allowed else None, shut)
        if any(degree[a] > limits.hub_degree for a in anchors):
            rules = replace(rules, hub_degree=limits.hub_degree, hub_keep=limits.hub_degree, scores=scores)
        return grow(self.adjacency, list(anchors), limits.hops, rules)


def completed(wanted: Filter, schema: Schema, starts: Sequence[str], ends: Sequence[str], hops: int) -> Filter:
    """Return a filter with the types added that some walk from the anchors' types to the answer's needs."""
    missing = schema.completion(starts, ends, wanted.allowed, hops) if wanted.allowed else ()
    if not missing:
        return wanted
    through = None if wanted.through is None else (*wanted.through, *missing)
    return Filter((*wanted.allowed, *missing), wanted.terminal, through)
