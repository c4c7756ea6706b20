"""Which vectors may be close: those that share a cell of a fixed partition of the sphere (locality-sensitive filters).

An exact all-pairs search costs n squared. Here each vector enters the few cells whose directions it points along most,
and only vectors of a common cell are compared. Unlike a trained or grown search structure (IVF, HNSW), the cells of a
vector depend on that vector alone: whether a pair is compared has nothing to do with what else is there or came first,
so a changed corpus gives what a rebuild gives.

A cell is a pair of directions, one of each of two families of Gaussian directions; its strength for a vector is the sum
of the two inner products (Becker, Ducas, Gama and Laarhoven, SODA 2016, with products of two codes). Vectors and
directions are rounded to integers, so that the sums are exact and equal on every machine and in every batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

MEMBERS = 16  # mean members of a cell that is aimed at
_VECTOR_SCALE, _DIRECTION_SCALE = 2.0**11, 2.0**7  # their product times sqrt(dim) stays below 2**24: float32 is exact
_BLOCK = 4096  # vectors at a time
_SEED = 20_260_701


def num_directions(count: int) -> int:
    """Return the directions of each family for so many vectors: a power of two, so that it seldom changes."""
    directions = 16
    while directions**2 * MEMBERS < count * num_probes(directions):
        directions *= 2
    return directions


def num_probes(directions: int) -> int:
    """Return how many cells each vector enters.

    So many that of pairs with a cosine of 0.8 or more 99% share one, measured on the names of 2WikiMultiHopQA (58,248
    vectors of all-MiniLM-L6-v2) with 256, 512 and 1,024 directions.
    """
    return round(2 * directions**0.5)


def cells_of(vectors: np.ndarray, directions: int) -> np.ndarray:
    """Return the cells of each vector.

    Args:
        vectors: (n, dim) unit rows, dim below 4096.
        directions: how many each family has, see `num_directions`.

    Returns:
        (n, num_probes(directions)) int64 distinct cells below directions ** 2, strongest first.
    """
    probes = num_probes(directions)
    rng = np.random.default_rng(_SEED)
    families = np.rint(rng.standard_normal((2, directions, vectors.shape[1])) * _DIRECTION_SCALE).astype(np.float32)
    depth = min(probes, directions)
    out = np.empty((len(vectors), probes), dtype=np.int64)
    for first in range(0, len(vectors), _BLOCK):
        rows = np.rint(vectors[first : first + _BLOCK].astype(np.float64) * _VECTOR_SCALE).astype(np.float32)
        (a, strong_a), (b, strong_b) = (_strongest(rows @ family.T, depth) for family in families)
        sums = (strong_a[:, :, None] + strong_b[:, None, :]).reshape(len(rows), -1)
        cells = (a[:, :, None] * directions + b[:, None, :]).reshape(len(rows), -1)
        chosen = _order(sums, cells, out.shape[1])
        out[first : first + _BLOCK] = np.take_along_axis(cells, chosen, axis=1)
    return out


def _strongest(products: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `count` best columns of each row and their values, both (rows, count) int64; ties by column."""
    values = products.astype(np.int64)
    columns = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    best = _order(values, columns, count)
    return best, np.take_along_axis(values, best, axis=1)


def _order(values: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the `count` largest values of each row, ties by id: the ids of a row are distinct."""
    keys = ids - values * (int(ids.max(initial=0)) + 1)  # one distinct integer each: no order is left to chance
    some = np.argpartition(keys, min(count, keys.shape[1]) - 1, axis=1)[:, :count]
    return np.take_along_axis(some, np.argsort(np.take_along_axis(keys, some, axis=1), axis=1), axis=1)


def sharing(cells: np.ndarray, asks: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for each cell that holds one who asks and at least one other, those who ask and all members, ascending.

    Args:
        cells: (n, probes), see `cells_of`.
        asks: (n,) bool.
    """
    flat = cells.ravel()
    order = np.argsort(flat, kind="stable")
    owners, bounds = order // cells.shape[1], np.flatnonzero(np.diff(flat[order])) + 1
    starts, stops = np.r_[0, bounds], np.r_[bounds, len(order)]
    asking = np.add.reduceat(asks[owners], starts) if len(order) else np.zeros(0)
    for i in np.flatnonzero((asking > 0) & (stops - starts > 1)).tolist():
        members = owners[starts[i] : stops[i]]
        yield members[asks[members]], members
