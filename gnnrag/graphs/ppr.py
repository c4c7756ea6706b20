"""Personalised PageRank: on the whole graph by Chebyshev iteration, or near the seeds by forward push.

Let `P` be the random walk, `d` the damping and `r` a reset that sums to 1. Like igraph's PRPACK, this solves
`x = d Pᵀ x + d (mass on isolated nodes) r + (1 - d) r`. `Pᵀ` is similar to the symmetric `D^-1/2 A D^-1/2`, whose
eigenvalues are in [-1, 1]. At `d = 0.5` each product multiplies the error by 0.27, a step of power iteration by 0.5.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Literal

import numpy as np
from scipy import sparse

from gnnrag.arrays import Lists, distinct

Precision = Literal["auto", "exact", "fast"]
_WIDTH = 32  # columns solved at a time, few enough for the processor's cache
_EXACT_UP_TO = 200_000  # nodes: up to here, solving the whole graph is about as fast as near the seeds


class PageRankOperator:
    """A graph prepared for personalised PageRank; build once, solve many times.

    `adjacency`: (n, n) symmetric, non-negative weights, zero diagonal; `damping`: probability of following an edge, in
    (0, 1). Raises ValueError for other shapes and values. `precision`: `exact` solves on the whole graph, `fast` near
    the seeds, `auto` near the seeds if the graph has more than 200,000 nodes.

    Near the seeds it is forward push (Andersen, Chung and Lang, FOCS 2006), for a whole frontier at a time: a node
    passes mass on only while it holds enough, so that far nodes are never touched. At the end a node holds back at most
    `bound * strength` (the sum of its edge weights). A damped step maps the vector of strengths to `d` times itself. So
    no entry is too large, and none is too small by more than `bound * strength * d / (1 - d)`.
    """

    def __init__(self, adjacency: Any, damping: float = 0.5, precision: Precision = "exact") -> None:
        if not 0.0 < damping < 1.0:
            raise ValueError(f"damping={damping!r}: must lie strictly between 0 and 1")
        adjacency = sparse.csr_array(adjacency, dtype=np.float64)
        if adjacency.shape[0] != adjacency.shape[1] or (adjacency.nnz and adjacency.data.min() < 0):
            raise ValueError(f"adjacency of shape {adjacency.shape}: must be square, with weights of at least 0")
        if not (adjacency.has_canonical_format and adjacency.data.all()):
            adjacency = adjacency.copy()
            adjacency.sum_duplicates()
            adjacency.eliminate_zeros()
        self.num_nodes, self.damping = int(adjacency.shape[0]), damping
        self._strengths = np.asarray(adjacency.sum(axis=1)).ravel()
        self.is_near = precision == "fast" or (precision == "auto" and self.num_nodes > _EXACT_UP_TO)
        if self.is_near:
            self._near, self._weights = Lists(adjacency.indptr, adjacency.indices), adjacency.data
            self._thread = threading.local()  # arrays of the graph's size, all zero between calls
            return
        linked = self._strengths > 0
        inverse = np.divide(1.0, self._strengths, out=np.zeros_like(self._strengths), where=linked)
        step = sparse.csr_array(adjacency * (damping * inverse)[None, :])  # d Pᵀ
        self._steps = {np.float64: step, np.float32: step.astype(np.float32)}
        # Errors are measured as ||D^-1/2 e||, the norm in which the walk is symmetric. The error of the start,
        # x = teleport, is at most d / sqrt(least strength); an entry errs by at most sqrt(its strength) times the norm.
        known = self._strengths[linked]
        self._gain = damping * math.sqrt(known.max() / known.min()) if len(known) else damping

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
        count = seeds.shape[1]
        column = np.repeat(np.arange(count), np.diff(seeds.indptr))
        total = np.bincount(column, seeds.data, count)
        isolated = np.bincount(column, seeds.data * (self._strengths[seeds.indices] == 0), count)
        if not (np.isfinite(total) & (total > 0)).all() or seeds.data.min(initial=0) < 0:
            raise ValueError("reset: entries must be finite and at least 0, each column with a positive sum")
        # Isolated nodes return their mass to the reset. Tiny seeds are scaled first, as float32 would round them to 0.
        masses = (seeds.data * ((1.0 - self.damping) / (total - self.damping * isolated))[column]).astype(real)
        teleport = sparse.csc_array((masses, seeds.indices, seeds.indptr), shape=seeds.shape)
        width = 1 if self.is_near else _WIDTH
        solve = self._push if self.is_near else self._chebyshev
        blocks = [solve(teleport[:, at : at + width], tol)[rows] for at in range(0, count, width)]
        return np.concatenate([np.zeros((self.num_nodes, 0), real)[rows], *blocks], axis=1)

    def _chebyshev(self, seeds: sparse.csc_array, tol: float) -> np.ndarray:
        """Solve `x = step x + teleport` in k steps, the fewest whose error bound `2 gain rho^k` is at most `tol`."""
        teleport = seeds.toarray()
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

    def _push(self, seeds: sparse.csc_array, tol: float) -> np.ndarray:
        bound = tol * (1.0 - self.damping) / self.damping
        if not hasattr(self._thread, "arrays"):
            self._thread.arrays = np.zeros((2, self.num_nodes))
        settled, waiting = self._thread.arrays
        touched = [seeds.indices]
        try:
            waiting[seeds.indices] = seeds.data
            front = seeds.indices[self._strengths[seeds.indices] > 0]
            while len(front := front[waiting[front] > bound * self._strengths[front]]):
                mass = waiting[front]
                settled[front] += mass
                waiting[front] = 0.0
                places = self._near.places(front)
                ends = self._near.values[places]
                moved = np.repeat(self.damping * mass / self._strengths[front], self._near.sizes_of(front))
                np.add.at(waiting, ends, moved * self._weights[places])
                front = distinct(ends)
                touched.append(front)
            reached = distinct(np.concatenate(touched))
            out = np.zeros((self.num_nodes, 1), seeds.dtype)
            out[reached, 0] = settled[reached] + waiting[reached]
            return out
        finally:
            for part in touched:
                settled[part] = waiting[part] = 0.0
