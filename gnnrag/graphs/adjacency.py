"""A graph to walk on: rows of neighbours, and for each the relation that leads there."""

from __future__ import annotations

import numpy as np


class Adjacency:
    """An undirected multigraph in compressed rows; every slot knows the relation it comes from.

    Slots are sorted by node, then neighbour, then relation, so that whatever walks over them is reproducible. Parallel
    relations are slots of their own; walks that look at nodes only use the distinct neighbours (`neighbours_of`).

    Args:
        ends: head and tail of each relation as stated; self-loops are dropped. Shape (num_relations, 2), integers.
        num_nodes: number of nodes; isolated ones are fine.

    Attributes:
        ends: as given. Shape (num_relations, 2), int32.
        indptr: first slot of each node. Shape (num_nodes + 1,), int64.
        neighbours: the other end. Shape (num_slots,), int32.
        relations: row in `ends`. Shape (num_slots,), int32.
        degree: number of distinct neighbours of each node. Shape (num_nodes,), int32.
        distinct_indptr, distinct_neighbours: the same rows with each neighbour once.

    Raises:
        ValueError: `ends` has another shape, or names a node that does not exist.
    """

    def __init__(self, ends: np.ndarray, num_nodes: int) -> None:
        ends = np.asarray(ends)
        if ends.ndim != 2 or ends.shape[1] != 2:
            raise ValueError(f"ends of shape {ends.shape}: must be (num_relations, 2), head and tail")
        if ends.size and (ends.min() < 0 or ends.max() >= num_nodes):
            raise ValueError(f"ends name nodes {ends.min()} to {ends.max()}: there are only 0 to {num_nodes - 1}")
        self.num_nodes = num_nodes
        self.ends = ends.astype(np.int32)
        rows = np.flatnonzero(self.ends[:, 0] != self.ends[:, 1]).astype(np.int32)
        heads, tails = self.ends[rows].T
        owners, others = np.concatenate([heads, tails]), np.concatenate([tails, heads])
        relations = np.concatenate([rows, rows])
        order = np.lexsort((relations, others, owners))
        owners, self.neighbours, self.relations = owners[order], others[order], relations[order]
        self.indptr = _indptr(owners, num_nodes)
        first = np.ones(len(owners), dtype=bool)
        first[1:] = (owners[1:] != owners[:-1]) | (self.neighbours[1:] != self.neighbours[:-1])
        self.distinct_indptr = _indptr(owners[first], num_nodes)
        self.distinct_neighbours = self.neighbours[first]
        self.degree = np.diff(self.distinct_indptr).astype(np.int32)

    def neighbours_of(self, node: int) -> np.ndarray:
        """Return the distinct neighbours of a node, by id. Shape (degree,), int32; a view."""
        return self.distinct_neighbours[self.distinct_indptr[node] : self.distinct_indptr[node + 1]]

    def relations_between(self, node: int, other: int) -> np.ndarray:
        """Return the rows of all relations that join two nodes, either way round, by row. Shape (n,), int32."""
        start, stop = self.indptr[node], self.indptr[node + 1]
        low, high = np.searchsorted(self.neighbours[start:stop], [other, other + 1])
        return self.relations[start + low : start + high]

    def reach(self, nodes: np.ndarray) -> np.ndarray:
        """Return the neighbours of some nodes, row after row: one may come more than once. Shape (n,), int32."""
        starts = self.distinct_indptr[nodes]
        counts = self.distinct_indptr[nodes + 1] - starts
        offsets = np.cumsum(counts) - counts
        slots = np.repeat(starts - offsets, counts) + np.arange(int(counts.sum()))
        return self.distinct_neighbours[slots]


def _indptr(owners: np.ndarray, num_nodes: int) -> np.ndarray:
    counts = np.bincount(owners, minlength=num_nodes) if len(owners) else np.zeros(num_nodes, dtype=np.int64)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
