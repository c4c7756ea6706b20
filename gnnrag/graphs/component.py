"""The hierarchy of communities of one connected component."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.graphs.leiden import Cluster, hierarchical_leiden, ordered_leiden

NEARLY_ALL = 0.8  # a part with a larger share of its community says nothing new: its own parts take its place


@dataclass(frozen=True)
class Splitting:
    """How communities are split: their size from which on, the resolution of the modularity, `leiden`'s randomness."""

    max_size: int
    resolution: float
    randomness: float


class Component:
    """A connected graph, its nodes numbered from 0 in the order of their names.

    Args:
        names: (num_nodes,) distinct names.
        ends: (num_edges, 2) distinct undirected pairs of nodes.
        weights: (num_edges,) positive weights.
        settings: how it is split.
    """

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
        own = len(self.clusters)
        self.clusters.append(Cluster(tuple(group.tolist()), parent, level))
        if len(group) <= self.max_size:
            return
        parts = self._parts(group, finer, len(group))
        if parts is None:
            self._split(group, own, level)
        else:
            for part, below in parts:
                self._add(part, own, level + 1, below)

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
