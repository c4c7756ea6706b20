"""The index of passage vectors of a large corpus: product quantisation in Lance's inverted lists."""

from __future__ import annotations

from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    """Searches the indexed table of passage vectors; `keys` (n,) are those of the passages in it."""

    def __init__(self, dataset: Any, keys: pa.ChunkedArray) -> None:
        self._dataset = dataset
        table = dataset.to_table(columns=["key"], with_row_id=True)
        rows = table["_rowid"].to_numpy()[pc.index_in(keys.cast(pa.string()), table["key"]).to_numpy()]
        self._order = np.argsort(rows)  # passages by their rows in the table; equal ones share a row
        self._rows = rows[self._order]
        sample = range(0, len(table), max(1, len(table) // _SAMPLE))
        self._sample = _matrix(dataset.take([*sample], columns=["value"]))

    def cosines(self, query: np.ndarray, count: int) -> np.ndarray:
        """Return the cosines of up to `count` near vectors, and for all others a low one. Shape (n,), float32.

        `query` has shape (dim,), float32. The low cosine is the least of a sample and of those that are near.
        """
        nearest = {"column": "value", "q": query, "k": count, "metric": "dot", "nprobes": _PROBED}
        # The vectors come with the rows: reading them from the mapped artefact would keep most of it in memory.
        found = self._dataset.to_table(columns=["value"], nearest=nearest, with_row_id=True)
        scores, rows = _matrix(found) @ query, found["_rowid"].to_numpy()
        low = min((self._sample @ query).min(initial=np.inf), scores.min(initial=np.inf))
        cosines = np.full(len(self._rows), low, np.float32)
        starts, ends = (np.searchsorted(self._rows, rows, side) for side in ("left", "right"))
        for start, end, score in zip(starts, ends, scores, strict=True):
            cosines[self._order[start:end]] = score
        return cosines


def _matrix(table: pa.Table) -> np.ndarray:
    return table["value"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)  # type: ignore[no-any-return]
