"""Nearest passages of a large corpus: a list of vectors for each centre, one byte a number, the best rescored exactly.

Jégou et al.'s inverted file (TPAMI 2011) by faiss, built from plain arrays: no faiss file is read, for it would be
trusted with memory. What is found is approximate, what is scored is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.arrays import get_vectors

FLAT_UP_TO = 200_000  # vectors: fewer are all compared
_CENTRES = 1024
_SAMPLE = 64  # vectors a centre that k-means sees
_PROBED = 48  # lists that a query looks into
_PROBED_FAR = 8  # lists that are looked into for the least cosine, which only scales
_ROWS = 1 << 16  # vectors worked on at a time
_SAMPLED = 1 << 14  # scores that tell how large the best are


def write_lists(folder: Path, vectors: np.ndarray) -> None:
    """Put unit vectors (n, dim) into lists by what they are near; the same vectors give the same files."""
    import faiss

    count, dim = vectors.shape
    sample = vectors[np.linspace(0, count - 1, min(count, _CENTRES * _SAMPLE)).astype(np.int64)]
    kmeans = faiss.Kmeans(dim, max(1, min(_CENTRES, count // _SAMPLE)), niter=8, seed=1, spherical=True)
    kmeans.train(np.ascontiguousarray(sample, dtype=np.float32))
    centres, scale = np.asarray(kmeans.centroids), 127 / max(float(np.abs(sample).max()), 1e-12)
    near: Any = faiss.IndexFlatIP(dim)
    near.add(np.ascontiguousarray(centres))
    owners, codes = np.empty(count, dtype=np.int32), np.empty((count, dim), dtype=np.uint8)
    for start in range(0, count, _ROWS):
        rows = np.ascontiguousarray(vectors[start : start + _ROWS], dtype=np.float32)
        owners[start : start + _ROWS] = near.search(rows, 1)[1][:, 0]
        codes[start : start + _ROWS] = np.rint(rows * scale).clip(-128, 127) + 128
    order = np.argsort(owners, kind="stable").astype(np.int32)
    sizes = np.bincount(owners, minlength=len(centres)).astype(np.int64)
    for name, array in (("centres", centres), ("list_sizes", sizes), ("list_order", order), ("codes", codes[order])):
        np.save(folder / f"{name}.npy", array)


class Nearest:
    """Searches passage vectors (n, dim); `folder` holds their lists, None: all are compared."""

    def __init__(self, vectors: np.ndarray, folder: Path | None) -> None:
        import faiss

        self.vectors, dim = vectors, vectors.shape[1]
        self._searcher: Any = None
        if folder is None:
            return
        paths = [folder / f"{name}.npy" for name in ("centres", "list_sizes", "list_order", "codes")]
        centres, sizes, order, codes = map(get_vectors, paths)
        self._centres: Any = faiss.IndexFlatIP(dim)
        self._centres.add(np.ascontiguousarray(centres, dtype=np.float32))
        kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
        self._searcher = faiss.IndexIVFScalarQuantizer(
            self._centres, dim, len(sizes), kind, faiss.METRIC_INNER_PRODUCT, False
        )
        self._searcher.is_trained = True
        self._searcher.nprobe = min(_PROBED, len(sizes))
        self._far: Any = faiss.IVFSearchParameters()
        self._far.nprobe = min(_PROBED_FAR, len(sizes))
        stops = np.cumsum(sizes).tolist()
        for at, (start, stop) in enumerate(zip([0, *stops], stops, strict=False)):
            ids, rows = order[start:stop].astype(np.int64), np.ascontiguousarray(codes[start:stop])
            if len(ids):
                self._searcher.invlists.add_entries(at, len(ids), faiss.swig_ptr(ids), faiss.swig_ptr(rows))
        self._searcher.ntotal = len(codes)

    def search(self, query: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return positions and cosines (float64) of the nearest, best first and ties by position, and the least cosine.

        `query` has shape (dim,). Of lists the least is approximate, too, and fewer than `count` may be found.
        """
        query, count = np.asarray(query, dtype=np.float32), min(count, len(self.vectors))
        if self._searcher is None:
            scores = self.vectors @ query
            found = largest(scores, count)
            scores, low = scores[found], float(scores.min(initial=np.inf))
        else:
            # faiss rounds a query to bytes, too.
            coded = query[None] * (127 / max(float(np.abs(query).max()), 1e-12))
            found = self._searcher.search(coded, min(2 * count, len(self.vectors)))[1][0]
            found = found[found >= 0]
            scores = self.vectors[found] @ query
            low = float(self.vectors[self._searcher.search(-coded, 1, params=self._far)[1][0, 0]] @ query)
        order = np.lexsort((found, -scores))[:count]
        return found[order], scores[order].astype(np.float64), low


def largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the positions of the `count` largest of many scores, in no order; among equal ones, any."""
    # A sample tells below which value there is nothing to be sorted.
    step = len(scores) // _SAMPLED
    if step > 1:
        sample = scores[::step]
        kept = min(len(sample) - 1, 2 * count // step + 20)
        found = np.flatnonzero(scores > np.partition(sample, len(sample) - 1 - kept)[len(sample) - 1 - kept])
        if len(found) >= count:
            return found[np.argpartition(scores[found], len(found) - count)[len(found) - count :]]
    return np.argpartition(scores, len(scores) - count)[len(scores) - count :] if count else np.zeros(0, dtype=np.int64)
