"""Personalised PageRank: on the whole graph by Chebyshev iteration, or near the seeds by forward push.

Let `P` be the random walk, `d` the damping and `r` a reset that sums to 1. Like igraph's PRPACK, this solves
`x = d Pᵀ x + d (mass on isolated nodes) r + (1 - d) r`. `Pᵀ` is similar to the symmetric `D^-1/2 A D^-1/2`, of spectrum
in [-1, 1]. At `d = 0.5` each product cuts the error to 0.27 of what it was; power iteration cuts it to 0.5.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from scipy import sparse

from gnnrag.arrays import Lists, distinct

Precision = Literal["auto", "exact", "fast"]
_WIDTH = 32  # columns solved at a time, few enough for the processor's cache
_EXACT_UP_TO = 200_000  # nodes: up to here, solving the whole graph is about as fast as near the seeds


def is_near(precision: str, num_nodes: int) -> bool:
    """Tell whether PageRank is computed near the seeds only."""
    return precision == "fast" or (precision == "auto" and num_nodes > _EXACT_UP_TO)


class PageRankOperator:
    """A graph prepared for personalised PageRank; build once, solve many times.

    `adjacency`: (n, n) symmetric, non-negative weights, zero diagonal; `damping`: probability of following an edge, in
    (0, 1). Raises ValueError for other values. `precision`: `exact` solves on the whole graph, `fast` near the seeds,
    `auto` near the seeds if the graph has more than 200,000 nodes.
    """

    def __init__(self, adjacency: Any, damping: float = 0.5, precision: Precision = "exact") -> None:
        if not 0.0 < damping < 1.0:
            raise ValueError(f"damping={damping!r}: must lie strictly between 0 and 1")
        adjacency = sparse.csr_array(adjacency, dtype=np.float64, copy=True)
        if adjacency.shape[0] != adjacency.shape[1] or (adjacency.nnz and adjacency.data.min() < 0):
            raise ValueError(f"adjacency of shape {adjacency.shape}: must be square, with weights of at least 0")
        adjacency.sum_duplicates()
        adjacency.eliminate_zeros()
        if adjacency.nnz and abs(adjacency - adjacency.T).max() > 1e-9 * adjacency.data.max():
            raise ValueError("adjacency: must be symmetric; pass `a + a.T` for one-sided weights")
        self.num_nodes, self.damping = int(adjacency.shape[0]), damping
        strengths = np.asarray(adjacency.sum(axis=1)).ravel()
        self._isolated = np.flatnonzero(strengths == 0)
        self._push: PushSolver | None = None
        if is_near(precision, self.num_nodes):
            self._push = PushSolver(Lists(adjacency.indptr, adjacency.indices), damping, adjacency.data)
            return
        inverse = np.divide(1.0, strengths, out=np.zeros_like(strengths), where=strengths > 0)
        step = sparse.csr_array(adjacency * (damping * inverse)[None, :])  # d Pᵀ
        self._steps = {np.float64: step, np.float32: step.astype(np.float32)}
        # Errors are measured as ||D^-1/2 e||, the norm in which the walk is symmetric. The error of the start,
        # x = teleport, is at most d / sqrt(least strength); an entry errs by at most sqrt(its strength) times the norm.
        linked = strengths[strengths > 0]
        self._gain = damping * math.sqrt(linked.max() / linked.min()) if len(linked) else damping

    def solve(self, reset: Any, tol: float = 1e-8, rows: slice = slice(None)) -> np.ndarray:
        """Return the PageRank of every column of `reset`: (n, B) or (n,). Each column over all nodes sums to 1.

        Raises ValueError for a wrong shape, or a column that sums to 0, is not finite or has negative entries.

        Args:
            reset: non-negative seeds (n, B) or (n,), dense or scipy sparse, normalised here.
            tol: bound on the absolute error of every entry, apart from rounding. Near the seeds, an entry is too small
                by at most `tol` times the sum of its node's edge weights. At 1e-6 or more, float32 is used.
            rows: which nodes to return; all by default.
        """
        if reset.ndim == 1:
            return self.solve(reset[:, None], tol, rows)[:, 0]
        if reset.shape[0] != self.num_nodes:
            raise ValueError(f"reset of shape {reset.shape}: must have {self.num_nodes} rows, one per node")
        real = np.float32 if tol >= 1e-6 else np.float64
        seeds = sparse.csc_array(reset, dtype=np.float64)
        total, isolated = (np.asarray(part.sum(axis=0)).ravel() for part in (seeds, seeds[self._isolated]))
        if not (np.isfinite(total) & (total > 0)).all() or seeds.data.min(initial=0) < 0:
            raise ValueError("reset: entries must be finite and at least 0, each column with a positive sum")
        # Isolated nodes return their mass to the reset. Tiny seeds are scaled first, as float32 would round them to 0.
        teleport = (seeds * ((1.0 - self.damping) / (total - self.damping * isolated))).astype(real)
        blocks = [teleport[:, at : at + _WIDTH].toarray() for at in range(0, teleport.shape[1], _WIDTH)]
        solve = self._push.solve if self._push else self._chebyshev
        empty = np.zeros((self.num_nodes, 0), real)
        return np.concatenate([empty[rows], *(solve(block, tol)[rows] for block in blocks)], axis=1)

    def _chebyshev(self, teleport: np.ndarray, tol: float) -> np.ndarray:
        """Solve `x = step x + teleport` in k steps, the fewest whose error bound `2 gain rho^k` is at most `tol`."""
        step, radius = self._steps[teleport.dtype.type], self.damping
        rho = radius / (1.0 + math.sqrt(1.0 - radius**2))
        before, now, omega = np.zeros_like(teleport), teleport, 1.0
        for k in range(math.ceil(math.log(min(tol / self._gain, 1.0) / 2.0) / math.log(rho))):
            omega = 1.0 if k == 0 else 1.0 / (1.0 - (0.5 if k == 1 else 0.25 * omega) * radius**2)
            after = step @ now
            after += teleport
            after -= before
            after *= after.dtype.type(omega)
            after += before
            before, now = now, after
        return now


class PushSolver:
    """Forward push: a node passes mass on only while it holds enough, so that far nodes are never touched.

    The method is that of Andersen, Chung and Lang (FOCS 2006), for a whole frontier at a time. At the end a node holds
    back at most `bound * strength`, and a step of the walk multiplies a vector of strengths by `d`. So no entry of the
    result is too large, and none is too small by more than `bound * strength * d / (1 - d)`.

    `near`: the neighbours of each node, symmetric; `weights`: of these edges; None: 1 for each.
    """

    def __init__(self, near: Lists, damping: float, weights: np.ndarray | None = None) -> None:
        self._near, self._weights, self.damping = near, weights, damping
        sums = near.sizes if weights is None else np.add.reduceat(np.append(weights, 0.0), near.indptr[:-1])
        self._strengths = np.where(near.sizes > 0, sums, 0.0)
        self._thread = threading.local()  # arrays of the graph's size, all zero between calls

    def walk(self, seeds: Mapping[int, float], tol: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes that mass reaches, ascending, and their PageRank; `seeds` may have any positive sum."""
        nodes, masses = np.array(list(seeds), dtype=np.int64), np.array(list(seeds.values()))
        isolated = masses[self._strengths[nodes] == 0].sum()
        scale = (1.0 - self.damping) / (masses.sum() - self.damping * isolated)
        return self._push(nodes, masses * scale, tol)

    def solve(self, teleport: np.ndarray, tol: float) -> np.ndarray:
        """Return the PageRank of every column, (n, B); an entry may be low by `tol` times its node's strength."""
        out = np.zeros_like(teleport)
        for column, into in zip(teleport.T, out.T, strict=True):
            nodes = np.flatnonzero(column)
            reached, values = self._push(nodes, column[nodes], tol)
            into[reached] = values
        return out

    def _push(self, nodes: np.ndarray, masses: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray]:
        bound = tol * (1.0 - self.damping) / self.damping
        if not hasattr(self._thread, "arrays"):
            self._thread.arrays = np.zeros((2, len(self._near)))
        settled, waiting = self._thread.arrays
        touched = [nodes]
        try:
            waiting[nodes] = masses
            front = nodes[self._strengths[nodes] > 0]
            while len(front := front[waiting[front] > bound * self._strengths[front]]):
                mass = waiting[front]
                settled[front] += mass
                waiting[front] = 0.0
                places = self._near.places(front)
                ends = self._near.values[places]
                moved = np.repeat(self.damping * mass / self._strengths[front], self._near.sizes_of(front))
                np.add.at(waiting, ends, moved if self._weights is None else moved * self._weights[places])
                front = distinct(ends)
                touched.append(front)
            reached = distinct(np.concatenate(touched))
            return reached, settled[reached] + waiting[reached]
        finally:
            for part in touched:
                settled[part] = waiting[part] = 0.0
