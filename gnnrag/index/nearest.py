"""Nearest passages: all vectors are compared, or, of a large corpus, those that Lance's vector index finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import lance
import numpy as np

FLAT_UP_TO = 200_000  # vectors: fewer are all compared
_PROBED = 64  # lists that a query looks into
_CANDIDATES = 10  # times as many are found as are asked for, and compared exactly
_SAMPLED = 1 << 14  # scores that tell how large the best are


def index_vectors(uri: str) -> None:
    """Make the vector index of a table of vectors, or bring it up to date: product quantisation in inverted lists."""
    dataset = lance.dataset(uri)
    if dataset.describe_indices():
        dataset.optimize.optimize_indices()
        return
    lists = max(1, min(1024, dataset.count_rows() // 256))
    parts = dataset.schema.field("value").type.list_size // 4  # a byte for four numbers
    dataset.create_index("value", "IVF_PQ", metric="dot", num_partitions=lists, num_sub_vectors=parts)


class Nearest:
    """Searches passage vectors (n, dim); `dataset` is their indexed table, None: all are compared.

    `keys` are those of the passages in the table.
    """

    def __init__(self, vectors: np.ndarray, dataset: Any = None, keys: Sequence[str] = ()) -> None:
        self.vectors, self._dataset = vectors, dataset
        self._positions: dict[str, list[int]] = defaultdict(list)
        for position, key in enumerate(keys):
            self._positions[key].append(position)

    def search(self, query: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return positions and cosines (float64) of the nearest, best first and ties by position, and the least cosine.

        `query` has shape (dim,). With an index the least is approximate, too, and fewer than `count` may be found.
        """
        query, count = np.asarray(query, dtype=np.float32), min(count, len(self.vectors))
        if self._dataset is None:
            scores = self.vectors @ query
            near = largest(scores, count)
            scores, low = scores[near], float(scores.min(initial=np.inf))
        else:
            near = self._search(query, _CANDIDATES * count)
            scores = self.vectors[near] @ query
            low = float((self.vectors[self._search(-query, 1)] @ query).min(initial=np.inf))
        order = np.lexsort((near, -scores))[:count]
        return near[order], scores[order].astype(np.float64), low

    def _search(self, query: np.ndarray, count: int) -> np.ndarray:
        nearest = {"column": "value", "q": query, "k": count, "metric": "dot", "nprobes": _PROBED}
        keys = self._dataset.to_table(columns=["key", "_distance"], nearest=nearest)["key"].to_pylist()
        return np.array([p for key in keys for p in self._positions.get(key, ())], dtype=np.int64)


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
