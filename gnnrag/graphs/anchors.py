"""Clustering whose clusters depend on what is near them and on nothing else, so that a small change stays small."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

_BLOCK = 1024  # rows of one product: the similarities of a block, not of all pairs, are in memory
_DECIMALS = 5  # cosines are compared at this precision, which the rounding of a product does not reach


def anchor_clusters(
    vectors: np.ndarray,
    names: Sequence[str],
    size: float,
    margin: float,
    max_parents: int,
    salt: str = "",
) -> list[tuple[int, np.ndarray]]:
    """Cluster rows around centres that their names choose.

    A row is a centre if the hash of its name lies in the lowest 1/`size` of the hash range (at least the row of the
    lowest hash is one), so that no row's being a centre depends on another row. Every row joins its nearest centre by
    cosine, and up to `max_parents` - 1 others that are at most `margin` farther; a centre joins itself alone.
    Adding or removing a row then changes the clusters it joins or leaves, and, if it is a centre, those of the rows
    that it attracts or sets free. The search is exact: n^2 * dim / `size` multiply-adds (0.1 s for 6,000 rows of 384,
    some 20 s for 100,000, where embedding them takes 10 minutes or more), 1024 * n / `size` cosines in memory.

    Args:
        vectors: (n, dim) unit rows.
        names: n strings; equal ones are both centres or both not.
        size: how many rows share a centre, on average.
        margin: how much less similar a further centre may be.
        max_parents: how many centres a row may join.
        salt: another one draws other centres.

    Returns:
        The row of each centre, ascending, with its members in ascending order.
    """
    draws = np.array([_draw(f"{salt}:{name}") for name in names])
    centres = np.flatnonzero(draws < 1.0 / size)
    if not len(centres):
        centres = np.array([int(np.argmin(draws))])
    row, parent = _nearest(vectors, vectors[centres], margin, max_parents)
    # A centre stays by itself: with near-copies of it as centres too, the first of equals need not be the row itself.
    own = np.isin(row, centres)
    parent = np.concatenate([parent[~own], np.arange(len(centres))])
    row = np.concatenate([row[~own], centres])
    order = np.lexsort((row, parent))
    bounds = np.searchsorted(parent[order], np.arange(len(centres) + 1))
    return [(int(c), row[order][bounds[i] : bounds[i + 1]]) for i, c in enumerate(centres)]


def _nearest(
    vectors: np.ndarray, centres: np.ndarray, margin: float, max_parents: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of a row and the position of a centre it joins."""
    rows, parents = [], []
    for start in range(0, len(vectors), _BLOCK):
        cosines = np.round(vectors[start : start + _BLOCK] @ centres.T, _DECIMALS)
        best, lines = cosines.max(axis=1), np.arange(len(cosines))
        for rank in range(min(max_parents, len(centres))):
            column = np.argmax(cosines, axis=1)  # the first of equals
            joined = cosines[lines, column] >= best - margin if rank else np.ones(len(cosines), bool)
            rows.append(start + lines[joined])
            parents.append(column[joined])
            cosines[lines, column] = -np.inf
    return np.concatenate(rows), np.concatenate(parents)


def _draw(name: str) -> float:
    """Return a number in [0, 1) that the name alone decides."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") / 2**64
