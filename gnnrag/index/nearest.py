"""The index of passage vectors of a large corpus: product quantisation in Lance's inverted lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import lance
import numpy as np

FLAT_UP_TO = 200_000  # vectors: fewer are all compared
_SEGMENTS = 16  # of an index of vectors, above which it is made of all vectors again
_PROBED = 64  # lists that a query looks into
_SAMPLE = 10_000  # vectors by which the least cosine is estimated


def index_vectors(uri: str) -> None:
    """Make the vector index of a table of vectors, or bring it up to date."""
    dataset = lance.dataset(uri)
    indices = dataset.describe_indices()
    if indices and len(indices[0].segments) < _SEGMENTS:
        dataset.optimize.optimize_indices(num_indices_to_merge=0)  # new vectors are a segment of their own
        return
    lists = max(1, min(1024, dataset.count_rows() // 256))
    parts = dataset.schema.field("value").type.list_size // 4  # a byte for four numbers
    dataset.create_index("value", "IVF_PQ", metric="dot", num_partitions=lists, num_sub_vectors=parts, replace=True)


class Nearest:
    """Searches passage vectors (n, dim) by their indexed table; `keys` are those of the passages in it."""

    def __init__(self, vectors: np.ndarray, dataset: Any, keys: Sequence[str]) -> None:
        self.vectors, self._dataset = vectors, dataset
        self._sample = np.ascontiguousarray(vectors[:: max(1, len(vectors) // _SAMPLE)])
        self._positions: dict[str, list[int]] = defaultdict(list)
        for position, key in enumerate(keys):
            self._positions[key].append(position)

    def cosines(self, query: np.ndarray, count: int) -> np.ndarray:
        """Return the cosines of up to `count` near vectors, and for all others a low one. Shape (n,), float32.

        `query` has shape (dim,). The low cosine is the least of a sample and of those that are near.
        """
        query = np.asarray(query, dtype=np.float32)
        near = self._search(query, count)
        scores = self.vectors[near] @ query
        low = min((self._sample @ query).min(initial=np.inf), scores.min(initial=np.inf))
        cosines = np.full(len(self.vectors), low, np.float32)
        cosines[near] = scores
        return cosines

    def _search(self, query: np.ndarray, count: int) -> np.ndarray:
        nearest = {"column": "value", "q": query, "k": count, "metric": "dot", "nprobes": _PROBED}
        keys = self._dataset.to_table(columns=["key", "_distance"], nearest=nearest)["key"].to_pylist()
        return np.array([p for key in keys for p in self._positions.get(key, ())], dtype=np.int64)
