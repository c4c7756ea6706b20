"""Personalised PageRank for batches of seed vectors: the one solver of every graph retriever.

With `P` the random walk of a weighted undirected graph, `d` the damping and `r` a reset that sums to 1, the result is the
solution of `x = d Pᵀ x + d (mass on isolated nodes) r + (1 - d) r` (`specs/backbones_ppr_tree.md` 1.5), which is what
igraph's PRPACK computes. `Pᵀ` is similar to the symmetric `D^-1/2 A D^-1/2`, whose spectrum lies in [-1, 1]; Chebyshev's
semi-iteration (Golub and Varga, 1961) therefore gains a factor 0.27 a product at `d = 0.5`, where power iteration gains
0.5. In a bipartite graph one side alone is iterated, with the spectrum of `(d Pᵀ)²` in [0, d²]: twice as fast again, and
leaves (most phrases occur once) reduce to a diagonal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

# Columns worked on at a time: a block of vectors then stays in the processor's cache.
_WIDTH = 32


class PageRankOperator:
    """A graph prepared for personalised PageRank; build once, solve many times.

    Args:
        adjacency: symmetric, non-negative weights, zero diagonal. Shape (n, n).
        damping: probability of following an edge, in (0, 1).

    Raises:
        ValueError: the matrix is not square or has negative weights, or `damping` is out of range.
    """

    def __init__(self, adjacency: sparse.csr_array, damping: float = 0.5) -> None:
        if not 0.0 < damping < 1.0:
            raise ValueError(f"damping={damping!r}: must lie strictly between 0 and 1")
        adjacency = sparse.csr_array(adjacency, dtype=np.float64)
        if adjacency.shape[0] != adjacency.shape[1] or (adjacency.nnz and adjacency.data.min() < 0):
            raise ValueError(f"adjacency of shape {adjacency.shape}: must be square, with weights of at least 0")
        self.num_nodes = int(adjacency.shape[0])
        self.damping = damping
        strengths = np.asarray(adjacency.sum(axis=1), dtype=np.float64).ravel()
        self._isolated = np.flatnonzero(strengths == 0)
        linked = strengths[strengths > 0]
        self._spread = math.sqrt(linked.max() / linked.min()) if len(linked) else 1.0
        inverse = np.divide(1.0, strengths, out=np.zeros_like(strengths), where=strengths > 0)
        step = sparse.csr_array(adjacency * (damping * inverse)[None, :])  # d Pᵀ
        side = _smaller_side(adjacency)
        self._solver = _General(step, damping) if side is None else _Bipartite(step, side, damping)

    def solve(
        self, reset: Any, tol: float = 1e-8, rows: slice | None = None, dtype: type[np.floating[Any]] | None = None
    ) -> np.ndarray:
        """Return the PageRank of every column of `reset`.

        A column's result does not depend on the other columns, bit for bit: the number of steps follows from `tol` and
        `damping` alone, and all sums run in a fixed order.

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
        out = np.empty((len(range(*rows.indices(self.num_nodes))), reset.shape[1]), dtype=real)
        columns = sparse.csc_array(reset) if sparse.issparse(reset) else reset
        for start in range(0, reset.shape[1], _WIDTH):
            block = columns[:, start : start + _WIDTH]
            block = block.toarray() if sparse.issparse(block) else block
            teleport = self._teleport(block, start, real)
            out[:, start : start + _WIDTH] = self._solver.solve(teleport, tol / self._spread, rows)
        return out

    def _teleport(self, reset: np.ndarray, offset: int, real: np.dtype[Any]) -> np.ndarray:
        """Scale each column so that `x = d Pᵀ x + column`: isolated nodes hand their mass back to the reset."""
        seeds = np.ascontiguousarray(reset, dtype=np.float64)
        # Sums as sparse products: numpy's own depend on the number of columns in the last bit.
        total, isolated = _column_sums(seeds), _column_sums(seeds[self._isolated])
        bad = ~(np.isfinite(total) & (total > 0))
        if bad.any() or (seeds.size and seeds.min() < 0):
            culprit = int(np.argmax(bad if bad.any() else (seeds < 0).any(axis=0))) + offset
            raise ValueError(f"reset column {culprit}: entries must be finite and at least 0, with a positive sum")
        share = isolated / total
        scale = (1.0 - self.damping) / (1.0 - self.damping * share) / total
        return np.multiply(seeds, scale, out=np.empty(seeds.shape, dtype=real), casting="same_kind")


def personalised_pagerank(
    adjacency: sparse.csr_array, reset: np.ndarray, damping: float = 0.5, tol: float = 1e-8
) -> np.ndarray:
    """Solve once for a graph that is not kept; see `PageRankOperator`.

    Args:
        adjacency: symmetric weights. Shape (n, n).
        reset: seeds. Shape (n, B) or (n,).
        damping: probability of following an edge.
        tol: bound on the absolute error of every entry.
    """
    return PageRankOperator(adjacency, damping).solve(reset, tol)


class _General:
    """Chebyshev's iteration on the whole graph."""

    def __init__(self, step: sparse.csr_array, damping: float) -> None:
        self._step, self._damping = {np.dtype(np.float64): step}, damping

    def solve(self, teleport: np.ndarray, tol: float, rows: slice) -> np.ndarray:
        step = _as_type(self._step, teleport.dtype)
        before, now, omega = np.zeros_like(teleport), teleport, 1.0
        for _ in range(_num_steps(tol, self._damping)):
            omega = 1.0 / (1.0 - 0.25 * self._damping**2 * omega) if omega != 1.0 else 1.0 / (1.0 - 0.5 * self._damping**2)
            after = step @ now
            after += teleport
            after -= before
            after *= teleport.dtype.type(omega)
            after += before
            before, now = now, after
        return now[rows]


class _Bipartite:
    """Chebyshev's iteration on one side; the other side follows from it by one product."""

    def __init__(self, step: sparse.csr_array, side: np.ndarray, damping: float) -> None:
        inner, outer = np.flatnonzero(side), np.flatnonzero(~side)
        self._inner, self._damping = inner, damping
        to_inner = sparse.csr_array(step[inner])  # (inner, n)
        to_outer = sparse.csr_array(step[:, inner])  # (n, inner), zero rows for the inner nodes
        degrees = np.diff(step.indptr)
        core = outer[degrees[outer] > 1]
        leaves = outer[degrees[outer] == 1]
        # To a leaf and back is a diagonal: (d Pᵀ)_sl (d Pᵀ)_ls.
        loops = (to_inner[:, leaves].multiply(sparse.csr_array(to_outer[leaves]).T)).sum(axis=1)
        f64 = np.dtype(np.float64)
        self._to_inner, self._to_outer = {f64: to_inner}, {f64: to_outer}
        self._up = {f64: sparse.csr_array(to_inner[:, core])}
        self._down = {f64: sparse.csr_array(to_outer[core])}
        self._loops = np.asarray(loops).ravel()[:, None]

    def solve(self, teleport: np.ndarray, tol: float, rows: slice) -> np.ndarray:
        real = teleport.dtype
        constant = teleport[self._inner]
        constant += _as_type(self._to_inner, real) @ teleport
        inner = self._iterate(constant, tol)
        out = _as_type(self._to_outer, real)[rows] @ inner
        out += teleport[rows]
        is_here = np.zeros(len(teleport), dtype=bool)
        is_here[rows] = True
        kept = is_here[self._inner]
        position = np.cumsum(is_here) - 1
        out[position[self._inner[kept]]] = inner[kept]
        return out

    def _iterate(self, constant: np.ndarray, tol: float) -> np.ndarray:
        """Solve `x = K x + constant` for K = (d Pᵀ)² on this side, with its spectrum in [0, d²]."""
        real = constant.dtype
        up, down = _as_type(self._up, real), _as_type(self._down, real)
        # Shifting by gamma centres the spectrum on 0, where Chebyshev's weights are simple.
        gamma = 2.0 / (2.0 - self._damping**2)
        radius = self._damping**2 / (2.0 - self._damping**2)
        loops = (gamma * self._loops + (1.0 - gamma)).astype(real)
        up = up * real.type(gamma)
        constant = constant * real.type(gamma)
        before, now, omega = np.zeros_like(constant), constant, 1.0
        scratch = np.empty_like(constant)
        for _ in range(_num_steps(tol, radius)):
            omega = 1.0 / (1.0 - 0.25 * radius**2 * omega) if omega != 1.0 else 1.0 / (1.0 - 0.5 * radius**2)
            after = up @ (down @ now)
            after += np.multiply(now, loops, out=scratch)
            after += constant
            after -= before
            after *= real.type(omega)
            after += before
            before, now = now, after
        return now


def _num_steps(tol: float, radius: float) -> int:
    """Steps after which Chebyshev's bound 2 rho^k on the error is below `tol`, for a spectrum in [-radius, radius]."""
    rho = radius / (1.0 + math.sqrt(1.0 - radius**2))
    return max(1, math.ceil(math.log(min(tol, 1.0) / 2.0) / math.log(rho)))


def _smaller_side(adjacency: sparse.csr_array) -> np.ndarray | None:
    """Return which nodes form the smaller side of each bipartite component; None if one component is not bipartite.

    A graph is bipartite where its double cover falls apart: (v, 0) and (v, 1) are then in different components.
    """
    n = adjacency.shape[0]
    empty = sparse.csr_array((n, n))
    cover = sparse.block_array([[empty, adjacency], [adjacency, empty]], format="csr")
    _, labels = csgraph.connected_components(cover, directed=False)
    first, second = labels[:n], labels[n:]
    if (first == second).any():
        return None
    sizes = np.bincount(first, minlength=labels.max() + 1 if n else 0)
    # Ties (and isolated nodes) go by label, the same way for all nodes of a component.
    return (sizes[first] < sizes[second]) | ((sizes[first] == sizes[second]) & (first < second))


def _column_sums(values: np.ndarray) -> np.ndarray:
    return (sparse.csr_array(np.ones((1, len(values)))) @ values).ravel()


def _as_type(matrices: dict[np.dtype[Any], sparse.csr_array], real: np.dtype[Any]) -> sparse.csr_array:
    """Return the matrix in this precision, converted once."""
    if real not in matrices:
        matrices[real] = matrices[np.dtype(np.float64)].astype(real)
    return matrices[real]
