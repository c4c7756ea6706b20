"""Personalised PageRank for batches of seed vectors: the one solver of every graph retriever.

With `P` the random walk of a weighted undirected graph, `d` the damping and `r` a reset that sums to 1, the result is
the solution of `x = d Pᵀ x + d (mass on isolated nodes) r + (1 - d) r` (as in HippoRAG 2 with PRPACK), which is
what igraph's PRPACK computes.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy import sparse

from gnnrag.graphs.chebyshev import make_solver

# Columns worked on at a time: a block of vectors then stays in the processor's cache, and in memory for large graphs.
_WIDTH = 32
_MAX_ENTRIES = 2**24


class PageRankOperator:
    """A graph prepared for personalised PageRank; build once, solve many times.

    Args:
        adjacency: symmetric, non-negative weights, zero diagonal. Shape (n, n).
        damping: probability of following an edge, in (0, 1).

    Raises:
        ValueError: the matrix is not square and symmetric or has negative weights, or `damping` is out of range.
    """

    def __init__(self, adjacency: Any, damping: float = 0.5) -> None:
        if not 0.0 < damping < 1.0:
            raise ValueError(f"damping={damping!r}: must lie strictly between 0 and 1")
        adjacency = sparse.csr_array(adjacency, dtype=np.float64, copy=True)
        if adjacency.shape[0] != adjacency.shape[1] or (adjacency.nnz and adjacency.data.min() < 0):
            raise ValueError(f"adjacency of shape {adjacency.shape}: must be square, with weights of at least 0")
        adjacency.sum_duplicates()
        adjacency.eliminate_zeros()
        if adjacency.nnz and abs(adjacency - adjacency.T).max() > 1e-9 * adjacency.data.max():
            raise ValueError("adjacency: must be symmetric; pass `a + a.T` for one-sided weights")
        self.num_nodes = int(adjacency.shape[0])
        self.damping = damping
        strengths = np.asarray(adjacency.sum(axis=1), dtype=np.float64).ravel()
        self._isolated = np.flatnonzero(strengths == 0)
        inverse = np.divide(1.0, strengths, out=np.zeros_like(strengths), where=strengths > 0)
        step = sparse.csr_array(adjacency * (damping * inverse)[None, :])  # d Pᵀ
        self._solver = make_solver(step, strengths, damping)

    def solve(
        self, reset: Any, tol: float = 1e-8, rows: slice | None = None, dtype: type[np.floating[Any]] | None = None
    ) -> np.ndarray:
        """Return the PageRank of every column of `reset`.

        A column's result does not depend on the other columns, bit for bit: the number of steps follows from `tol`, the
        damping and the graph alone, and every sum runs in a fixed order.

        Args:
            reset: non-negative seeds, dense or scipy sparse, normalised here. Shape (n, B) or (n,).
            tol: bound on the absolute error of every entry, apart from rounding.
            rows: which nodes to return; all by default.
            dtype: float32 or float64 to compute in; float32 by default where `tol` is 1e-6 or more.

        Returns:
            Scores; each full column sums to 1. Shape (n, B) or (n,); fewer rows with `rows`.

        Raises:
            ValueError: wrong shape; a column that sums to 0, is not finite or has negative entries.
        """
        if reset.ndim == 1:
            return self.solve(reset[:, None], tol, rows, dtype)[:, 0]
        if reset.shape[0] != self.num_nodes:
            raise ValueError(f"reset of shape {reset.shape}: must have {self.num_nodes} rows, one per node")
        real = np.dtype(dtype or (np.float32 if tol >= 1e-6 else np.float64))
        rows = slice(None) if rows is None else rows
        seeds = sparse.csc_array(reset) if sparse.issparse(reset) else np.ascontiguousarray(reset, dtype=np.float64)
        scale = self._scale(seeds)
        out = np.empty((len(range(*rows.indices(self.num_nodes))), seeds.shape[1]), dtype=real)
        width = max(1, min(_WIDTH, _MAX_ENTRIES // max(self.num_nodes, 1)))

        def solve_block(start: int) -> None:
            block = slice(start, start + width)
            part: Any = seeds[:, block]
            part = part.toarray() if sparse.issparse(part) else part
            # Scaled before it is rounded to float32, which tiny seeds would not survive.
            teleport = np.multiply(part, scale[block], out=np.empty(part.shape, dtype=real), casting="same_kind")
            out[:, block] = self._solver.solve(teleport, tol, rows)

        starts = range(0, seeds.shape[1], width)
        with ThreadPoolExecutor(max(1, min(len(starts), os.cpu_count() or 1))) as pool:
            list(pool.map(solve_block, starts))  # numpy and scipy release the interpreter lock
        return out

    def _scale(self, seeds: Any) -> np.ndarray:
        """Return each column's factor in `x = d Pᵀ x + factor * column`. Shape (B,).

        Isolated nodes hand their mass back to the reset, which makes the factor larger than (1 - d) / total.
        """
        total, isolated = _column_sums(seeds), _column_sums(seeds[self._isolated])
        entries = seeds.data if sparse.issparse(seeds) else seeds
        bad = ~(np.isfinite(total) & (total > 0))
        if bad.any() or (entries.size and entries.min() < 0):
            culprit = int(np.argmax(bad)) if bad.any() else int(np.argmax((seeds < 0).sum(axis=0)))
            raise ValueError(f"reset column {culprit}: entries must be finite and at least 0, with a positive sum")
        return (1.0 - self.damping) / (total - self.damping * isolated)


def personalised_pagerank(adjacency: Any, reset: np.ndarray, damping: float = 0.5, tol: float = 1e-8) -> np.ndarray:
    """Solve once for a graph that is not kept; see `PageRankOperator`.

    Args:
        adjacency: symmetric weights. Shape (n, n).
        reset: seeds. Shape (n, B) or (n,).
        damping: probability of following an edge.
        tol: bound on the absolute error of every entry.
    """
    return PageRankOperator(adjacency, damping).solve(reset, tol)


def _column_sums(seeds: Any) -> np.ndarray:
    """Sum each column as a sparse product: numpy's own sum depends in its last bit on the number of columns."""
    if sparse.issparse(seeds):
        return np.asarray(seeds.sum(axis=0)).ravel()
    return (sparse.csr_array(np.ones((1, len(seeds)))) @ seeds).ravel()
