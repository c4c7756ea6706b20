"""Personalised PageRank of a whole graph by Chebyshev polynomials, and near the seeds by forward push.

With `P` the random walk, `d` the damping and `r` a reset that sums to 1, the result solves, as igraph's PRPACK,
`x = d Pᵀ x + d (mass on isolated nodes) r + (1 - d) r`. `Pᵀ` is similar to the symmetric `D^-1/2 A D^-1/2`, of spectrum
in [-1, 1]: a product gains a factor 0.27 at `d = 0.5`, power iteration 0.5. In a bipartite graph one side is iterated,
with the spectrum of `(d Pᵀ)²` in [0, d²]: twice as fast again.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from gnnrag.common.tables import Lists, distinct
from gnnrag.errors import ConfigError

# Errors are measured as ||D^-1/2 e||, in which the walk is symmetric; an entry's own error is at most sqrt(strength)
# times that. By the bounds on the spectrum, the error of the start x = teleport is at most d; on one side of a
# bipartite graph it is at most d² sqrt(1 + d²) / (1 + d).


def make_solver(step: sparse.csr_array, strengths: np.ndarray, damping: float) -> GeneralSolver | BipartiteSolver:
    """Return the fastest solver for `step` = `d Pᵀ` (n, n), given the sum of each node's weights (n,)."""
    side = _smaller_side(step)
    if side is None:
        return GeneralSolver(step, strengths, damping)
    return BipartiteSolver(step, strengths, side, damping)


class GeneralSolver:
    """Chebyshev's iteration on the whole graph."""

    def __init__(self, step: sparse.csr_array, strengths: np.ndarray, damping: float) -> None:
        self._step, self._damping = _Typed(step), damping
        self._gain = damping * _spread(strengths, strengths)

    def solve(self, teleport: np.ndarray, tol: float, rows: slice) -> np.ndarray:
        """Return `rows` of the solution, each entry within `tol` for columns that stem from a reset of sum 1."""
        step = self._step.get(teleport.dtype)
        before, now = np.zeros_like(teleport), teleport
        for omega in _chebyshev_weights(self._damping, tol / self._gain):
            after = step @ now
            after += teleport
            before, now = now, _mix(after, before, omega)
        return now[rows]


class BipartiteSolver:
    """Chebyshev's iteration on one side; the other side follows from it by one product."""

    def __init__(self, step: sparse.csr_array, strengths: np.ndarray, side: np.ndarray, damping: float) -> None:
        inner, outer = np.flatnonzero(side), np.flatnonzero(~side)
        degrees = np.diff(step.indptr)
        core, leaves = outer[degrees[outer] > 1], outer[degrees[outer] == 1]
        to_inner, to_outer = sparse.csr_array(step[inner]), sparse.csr_array(step[:, inner])
        self._inner, self._damping = inner, damping
        self._to_inner, self._to_outer = _Typed(to_inner), _Typed(to_outer)  # (inner, n); (n, inner)
        self._up, self._down = _Typed(to_inner[:, core]), _Typed(to_outer[core])
        # To a leaf and back is a diagonal: (d Pᵀ)_sl (d Pᵀ)_ls. Shape (inner, 1).
        self._loops = np.asarray(to_inner[:, leaves].multiply(to_outer[leaves].T).sum(axis=1)).reshape(-1, 1)
        inner_spread, outer_spread = (_spread(strengths[nodes], strengths) for nodes in (inner, outer))
        start = damping**2 * math.sqrt(1 + damping**2) / (1 + damping)
        self._gain = start * max(inner_spread, damping * outer_spread)

    def solve(self, teleport: np.ndarray, tol: float, rows: slice) -> np.ndarray:
        """See `GeneralSolver`."""
        real = teleport.dtype
        constant = teleport[self._inner]
        constant += self._to_inner.get(real) @ teleport
        inner = self._iterate(constant, tol / self._gain)
        out = self._to_outer.get(real)[rows] @ inner
        out += teleport[rows]
        position = np.full(len(teleport), -1)
        position[rows] = np.arange(len(out))
        place = position[self._inner]
        out[place[place >= 0]] = inner[place >= 0]
        return out

    def _iterate(self, constant: np.ndarray, tol: float) -> np.ndarray:
        """Solve `x = K x + constant` for K = (d Pᵀ)² on this side, whose spectrum lies in [0, d²]."""
        real = constant.dtype
        # x = g (K x + constant) + (1 - g) x has the same solution, and its spectrum is centred on 0.
        g = 2.0 / (2.0 - self._damping**2)
        up, down = self._up.get(real) * real.type(g), self._down.get(real)
        loops = (g * self._loops + (1.0 - g)).astype(real)
        shifted, scratch = constant * real.type(g), np.empty_like(constant)
        before, now = np.zeros_like(constant), constant
        for omega in _chebyshev_weights(self._damping**2 / (2.0 - self._damping**2), tol):
            after = up @ (down @ now)
            after += np.multiply(now, loops, out=scratch)
            after += shifted
            before, now = now, _mix(after, before, omega)
        return now


class _Typed:
    """A matrix in float64 and, once asked for, in float32."""

    def __init__(self, matrix: Any) -> None:
        self._matrices = {np.dtype(np.float64): sparse.csr_array(matrix)}

    def get(self, real: np.dtype[Any]) -> sparse.csr_array:
        if real not in self._matrices:
            self._matrices[real] = self._matrices[np.dtype(np.float64)].astype(real)
        return self._matrices[real]


def _chebyshev_weights(radius: float, tol: float) -> list[float]:
    """Weights of as many steps as bring the bound 2 rho^k below `tol`, for a spectrum in [-radius, radius]."""
    rho = radius / (1.0 + math.sqrt(1.0 - radius**2))
    weights = [1.0]
    for _ in range(math.ceil(math.log(min(tol, 1.0) / 2.0) / math.log(rho)) - 1):
        weights.append(1.0 / (1.0 - (0.5 if len(weights) == 1 else 0.25 * weights[-1]) * radius**2))
    return weights


def _mix(after: np.ndarray, before: np.ndarray, omega: float) -> np.ndarray:
    """Return `omega (after - before) + before`, in the memory of `after`."""
    if omega != 1.0:
        after -= before
        after *= after.dtype.type(omega)
        after += before
    return after


def _spread(strengths: np.ndarray, all_strengths: np.ndarray) -> float:
    """How much larger an entry's error can be than the error in the symmetric norm."""
    linked, everything = strengths[strengths > 0], all_strengths[all_strengths > 0]
    return math.sqrt(linked.max() / everything.min()) if len(linked) else 1.0


def _smaller_side(step: sparse.csr_array) -> np.ndarray | None:
    """Return which nodes form the smaller side of each bipartite component; None if one component is not bipartite."""
    # A graph is bipartite where its double cover falls apart: (v, 0) and (v, 1) are then in different components.
    n = step.shape[0]
    empty = sparse.csr_array((n, n))
    cover = sparse.block_array([[empty, step], [step, empty]], format="csr")
    _, labels = csgraph.connected_components(cover, directed=False)
    first, second = labels[:n], labels[n:]
    if (first == second).any():
        return None
    sizes = np.bincount(first, minlength=2 * n + 1)
    # Ties (and isolated nodes) go by label, the same way for all nodes of a component.
    return (sizes[first] < sizes[second]) | ((sizes[first] == sizes[second]) & (first < second))


class PushSolver:
    """Forward push: mass moves on from a node only while it holds enough of it, so that far nodes are never touched.

    Andersen, Chung and Lang (FOCS 2006), a frontier at a time. What has not moved on is at most `bound * strength` at
    each node, and the walk multiplies a vector of strengths by `d`: no entry of the result is too large, and none is
    too small by more than `bound * strength * d / (1 - d)`.

    `near`: the neighbours of each node, symmetric; `weights`: of those edges, None: 1 each.
    """

    def __init__(self, near: Lists, damping: float, weights: np.ndarray | None = None) -> None:
        self._near, self._weights, self.damping = near, weights, damping
        sums = near.sizes if weights is None else np.add.reduceat(np.append(weights, 0.0), near.indptr[:-1])
        self._strengths = np.where(near.sizes > 0, sums, 0.0)
        self._own = threading.local()  # arrays of the graph's size, zero but while a thread is at work

    def walk(self, seeds: Mapping[int, float], tol: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes that mass reaches, ascending, and their PageRank, of seeds of any positive sum."""
        nodes, masses = np.array(list(seeds), dtype=np.int64), np.array(list(seeds.values()))
        isolated = masses[self._strengths[nodes] == 0].sum()
        scale = (1.0 - self.damping) / (masses.sum() - self.damping * isolated)
        return self._push(nodes, masses * scale, tol)

    def solve(self, teleport: np.ndarray, tol: float, rows: slice) -> np.ndarray:
        """See `GeneralSolver`; an entry may lack `tol` for each unit of its node's weights. Column by column."""
        out = np.zeros_like(teleport)
        for column, into in zip(teleport.T, out.T, strict=True):
            nodes = np.flatnonzero(column)
            found, values = self._push(nodes, column[nodes], tol)
            into[found] = values
        return out[rows]

    def _push(self, nodes: np.ndarray, masses: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray]:
        bound = tol * (1.0 - self.damping) / self.damping
        if not hasattr(self._own, "arrays"):
            self._own.arrays = np.zeros((2, len(self._near)))
        settled, waiting = self._own.arrays
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
            found = distinct(np.concatenate(touched))
            return found, settled[found] + waiting[found]
        finally:
            for part in touched:
                settled[part] = waiting[part] = 0.0


# Columns worked on at a time: a block of vectors then stays in the processor's cache, and in memory for large graphs.
_WIDTH = 32
_MAX_ENTRIES = 2**24
PRECISIONS = ("auto", "exact", "fast")
_EXACT_UP_TO = 200_000  # nodes: below, the whole graph is solved about as fast as the part of it near the seeds


def is_near(precision: str, num_nodes: int) -> bool:
    """Tell whether PageRank is computed near the seeds alone; ConfigError for an unknown `precision`."""
    if precision not in PRECISIONS:
        raise ConfigError(f"precision={precision!r}: allowed are {', '.join(PRECISIONS)}")
    return precision == "fast" or (precision == "auto" and num_nodes > _EXACT_UP_TO)


class PageRankOperator:
    """A graph prepared for personalised PageRank; build once, solve many times.

    `adjacency`: (n, n) symmetric, non-negative weights, zero diagonal; `damping`: probability of following an edge, in
    (0, 1). Raises ValueError where they are not. `precision`: `exact` solves on the whole graph, `fast` near the seeds,
    `auto` near the seeds of graphs of more than 200,000 nodes; ConfigError for any other.
    """

    def __init__(self, adjacency: Any, damping: float = 0.5, precision: str = "exact") -> None:
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
        self._solver: Any
        if is_near(precision, self.num_nodes):
            self._solver = PushSolver(Lists(adjacency.indptr, adjacency.indices), damping, adjacency.data)
        else:
            step = sparse.csr_array(adjacency * (damping * inverse)[None, :])  # d Pᵀ
            self._solver = make_solver(step, strengths, damping)

    def solve(
        self, reset: Any, tol: float = 1e-8, rows: slice | None = None, dtype: type[np.floating[Any]] | None = None
    ) -> np.ndarray:
        """Return the PageRank of every column of `reset`: (n, B) or (n,), each full column sums to 1.

        A column's result does not depend on the other columns, bit for bit. Raises ValueError for a wrong shape, or a
        column that sums to 0, is not finite or has negative entries.

        Args:
            reset: non-negative seeds (n, B) or (n,), dense or scipy sparse, normalised here.
            tol: bound on the absolute error of every entry, apart from rounding; near the seeds, on what an entry lacks
                for each unit of its node's weights.
            rows: which nodes to return; all by default.
            dtype: float32 or float64 to compute in; by default float32 where `tol` is 1e-6 or more.
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
        """Return each column's factor in `x = d Pᵀ x + factor * column`, (B,): isolated nodes hand back their mass."""
        total, isolated = _column_sums(seeds), _column_sums(seeds[self._isolated])
        entries = seeds.data if sparse.issparse(seeds) else seeds
        bad = ~(np.isfinite(total) & (total > 0))
        if bad.any() or (entries.size and entries.min() < 0):
            culprit = int(np.argmax(bad)) if bad.any() else int(np.argmax((seeds < 0).sum(axis=0)))
            raise ValueError(f"reset column {culprit}: entries must be finite and at least 0, with a positive sum")
        return (1.0 - self.damping) / (total - self.damping * isolated)


def personalised_pagerank(adjacency: Any, reset: np.ndarray, damping: float = 0.5, tol: float = 1e-8) -> np.ndarray:
    """Solve once for a graph that is not kept; arguments, shapes and errors of `PageRankOperator` and its `solve`."""
    return PageRankOperator(adjacency, damping).solve(reset, tol)


def _column_sums(seeds: Any) -> np.ndarray:
    """Sum each column as a sparse product: numpy's own sum depends in its last bit on the number of columns."""
    if sparse.issparse(seeds):
        return np.asarray(seeds.sum(axis=0)).ravel()
    return (sparse.csr_array(np.ones((1, len(seeds)))) @ seeds).ravel()
