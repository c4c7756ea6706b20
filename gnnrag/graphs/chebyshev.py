"""Chebyshev's semi-iteration (Golub and Varga, 1961) for `x = d Pᵀ x + teleport`, on blocks of columns.

`Pᵀ` is similar to the symmetric `D^-1/2 A D^-1/2`, whose spectrum lies in [-1, 1], so that each product gains a factor
0.27 at `d = 0.5`, where power iteration gains 0.5. In a bipartite graph, such as passages and phrases around their
sentences, one side alone is iterated, with the spectrum of `(d Pᵀ)²` in [0, d²]: twice as fast again, and leaves (most
phrases occur once) reduce to a diagonal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

# Errors are measured as ||D^-1/2 e||, in which the walk is symmetric; an entry's own error is at most sqrt(strength)
# times that. By the bounds on the spectrum, the error of the start x = teleport is at most d; on one side of a
# bipartite graph it is at most d² sqrt(1 + d²) / (1 + d).


def make_solver(step: sparse.csr_array, strengths: np.ndarray, damping: float) -> GeneralSolver | BipartiteSolver:
    """Return the fastest solver for a graph.

    Args:
        step: `d Pᵀ`. Shape (n, n).
        strengths: sum of each node's weights. Shape (n,).
        damping: `d`.
    """
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
    """Return which nodes form the smaller side of each bipartite component; None if one component is not bipartite.

    A graph is bipartite where its double cover falls apart: (v, 0) and (v, 1) are then in different components.
    """
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
