"""Nearest passages of a large corpus: a list of vectors for each centre, one byte a number, the best rescored exactly.

Jégou et al.'s inverted file (TPAMI 2011) by faiss, built from plain arrays: no faiss file is read, for it would be
trusted with memory. What is found is approximate, what is scored is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.splicing import Kept
from gnnrag.common.tables import check_below, map_array, put_arrays_apart
from gnnrag.errors import ArtefactError

FLAT_UP_TO = 200_000  # vectors: fewer are all compared
_CENTRES = 1024
_SAMPLE = 64  # vectors a centre that k-means sees
_PROBED = 48  # lists that a query looks into
_PROBED_FAR = 8  # lists that are looked into for the least cosine, which only scales
_ROWS = 1 << 16  # vectors worked on at a time
_SAMPLED = 1 << 14  # scores that tell how large the best are


def write_lists(folder: Path, vectors: np.ndarray, before: tuple[VectorLists, Kept] | None = None) -> None:
    """Put unit vectors (n, dim) into lists by what they are near; the same vectors give the same files.

    The lists of an earlier corpus are carried on (`before`: they, and what stays) while their centres were found of
    half of what there is now, or more, and of twice as much at most.
    """
    import faiss

    count, dim = vectors.shape
    all_new = Kept(np.full(count, -1, dtype=np.int64), 0)
    old, kept = before or (None, all_new)
    if old is None or old.codes.shape != (kept.count, dim) or not count <= 2 * old.trained <= 4 * count:
        sample = vectors[np.linspace(0, count - 1, min(count, _CENTRES * _SAMPLE)).astype(np.int64)]
        kmeans = faiss.Kmeans(dim, max(1, min(_CENTRES, count // _SAMPLE)), niter=8, seed=1, spherical=True)
        kmeans.train(np.ascontiguousarray(sample, dtype=np.float32))
        middles, scale, trained = np.asarray(kmeans.centroids), 127 / max(float(np.abs(sample).max()), 1e-12), count
        kept, owners, codes = all_new, np.zeros(0, dtype=np.int32), np.zeros((0, dim), dtype=np.uint8)
    else:
        middles, scale, trained = old.centres, old.scale, old.trained
        owners, codes = old.owners, old.codes[np.argsort(old.order)]
    near: Any = faiss.IndexFlatIP(dim)
    near.add(np.ascontiguousarray(middles))
    new = np.array(kept.missing, dtype=np.int64)
    theirs, added = np.empty(len(new), dtype=np.int32), np.empty((len(new), dim), dtype=np.uint8)
    for start in range(0, len(new), _ROWS):
        part = slice(start, start + _ROWS)
        rows = np.ascontiguousarray(vectors[new[part]], dtype=np.float32)
        theirs[part] = near.search(rows, 1)[1][:, 0]
        added[part] = np.rint(rows * scale).clip(-128, 127) + 128
    owners = np.concatenate([owners, theirs])[kept.rows]
    order = np.argsort(owners, kind="stable").astype(np.int32)
    codes = np.concatenate([codes, added])[kept.rows[order]]
    sizes = np.bincount(owners, minlength=len(middles)).astype(np.int64)
    put_arrays_apart(folder, centres=middles, list_sizes=sizes, list_order=order, codes=codes)
    put_arrays_apart(folder, list_scale=np.array([scale, trained]))


class VectorLists:
    """What `write_lists` wrote. Raises ArtefactError or ValueError where its parts do not belong together."""

    def __init__(self, folder: Path) -> None:
        names = ("centres", "list_sizes", "list_order", "codes", "list_scale")
        self.centres, self.sizes, self.order, self.codes, (self.scale, trained) = (map_array(folder, n) for n in names)
        self.trained = int(trained)
        check_below(self.sizes, len(self.codes) + 1)
        check_below(self.order, len(self.codes))
        fits = self.sizes.ndim == 1 and self.order.shape == (len(self.codes),)
        fits &= self.centres.shape == (len(self.sizes), self.codes.shape[1])
        if not fits or self.sizes.sum() != len(self.codes) or self.codes.dtype != np.uint8:
            raise ArtefactError(f"{folder}: its lists of vectors do not fit; build the index again")

    @classmethod
    def of(cls, folder: Path) -> VectorLists | None:
        """Read them; None where there were too few vectors for lists."""
        return cls(folder) if (folder / "codes.npy").exists() else None

    @property
    def owners(self) -> np.ndarray:
        """The list of each vector. Shape (num_vectors,), int32."""
        owners = np.zeros(len(self.order), dtype=np.int32)  # a forged order may leave some out
        owners[self.order] = np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)
        return owners


class Nearest:
    """Searches passage vectors (n, dim); `folder` holds their lists, None: all are compared."""

    def __init__(self, vectors: np.ndarray, folder: Path | None) -> None:
        import faiss

        self.vectors, dim = vectors, vectors.shape[1]
        self._searcher: Any = None
        if folder is None:
            return
        lists = VectorLists(folder)
        sizes, order, codes = lists.sizes, lists.order, lists.codes
        if codes.shape != vectors.shape:
            raise ArtefactError(f"{folder}: its lists of vectors do not fit the vectors; build the index again")
        self._centres: Any = faiss.IndexFlatIP(dim)
        self._centres.add(np.ascontiguousarray(lists.centres, dtype=np.float32))
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
