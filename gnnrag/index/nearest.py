"""Nearest passages of a large corpus: faiss's inverted lists of one byte a number, the best rescored exactly.

Jégou et al.'s inverted file (TPAMI 2011). What is found is approximate, what is scored is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

FLAT_UP_TO = 200_000  # vectors: fewer are all compared
FILE = "lists.faiss"
_CENTRES = 1024
_SAMPLE = 64  # vectors a centre that k-means sees
_PROBED = 48  # lists that a query looks into
_PROBED_FAR = 8  # lists that are looked into for the least cosine, which only scales
_ROWS = 1 << 16  # vectors added at a time
_SAMPLED = 1 << 14  # scores that tell how large the best are


def write_lists(folder: Path, vectors: np.ndarray) -> None:
    """Put unit vectors (n, dim) into lists by what they are near."""
    import faiss

    count, dim = vectors.shape
    centres = max(1, min(_CENTRES, count // _SAMPLE))
    searcher: Any = faiss.index_factory(dim, f"IVF{centres},SQ8", faiss.METRIC_INNER_PRODUCT)
    sample = vectors[np.linspace(0, count - 1, min(count, centres * _SAMPLE)).astype(np.int64)]
    searcher.train(np.ascontiguousarray(sample, dtype=np.float32))
    for start in range(0, count, _ROWS):
        searcher.add(np.ascontiguousarray(vectors[start : start + _ROWS], dtype=np.float32))
    faiss.write_index(searcher, str(folder / FILE))


class Nearest:
    """Searches passage vectors (n, dim); `folder` holds their lists, None: all are compared."""

    def __init__(self, vectors: np.ndarray, folder: Path | None) -> None:
        self.vectors = vectors
        self._searcher: Any = None
        if folder is not None:
            import faiss

            self._searcher = faiss.read_index(str(folder / FILE))
            self._searcher.nprobe = _PROBED
            self._far: Any = faiss.IVFSearchParameters()
            self._far.nprobe = _PROBED_FAR

    def search(self, query: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return positions and cosines (float64) of the nearest, best first and ties by position, and the least cosine.

        `query` has shape (dim,). Of lists the least is approximate, too, and fewer than `count` may be found.
        """
        query, count = np.asarray(query, dtype=np.float32), min(count, len(self.vectors))
        if self._searcher is None:
            scores = self.vectors @ query
            near = largest(scores, count)
            scores, low = scores[near], float(scores.min(initial=np.inf))
        else:
            near = self._searcher.search(query[None], min(2 * count, len(self.vectors)))[1][0]
            near = near[near >= 0]
            scores = self.vectors[near] @ query
            low = float(self.vectors[self._searcher.search(-query[None], 1, params=self._far)[1][0, 0]] @ query)
        order = np.lexsort((near, -scores))[:count]
        return near[order], scores[order].astype(np.float64), low


def largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the positions of the `count` largest of many scores, in no order; among equal ones, any."""
    if not count:
        return np.zeros(0, dtype=np.int64)
    # A sample tells below which value there is nothing to be sorted.
    step = len(scores) // _SAMPLED
    if step > 1:
        sample = scores[::step]
        last = len(sample) - 1 - min(len(sample) - 1, 2 * count // step + 20)
        above = np.flatnonzero(scores > np.partition(sample, last)[last])
        if len(above) >= count:
            return above[np.argpartition(scores[above], len(above) - count)[len(above) - count :]]
    return np.argpartition(scores, len(scores) - count)[len(scores) - count :]
