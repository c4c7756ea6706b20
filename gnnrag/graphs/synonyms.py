"""Synonym edges: entities whose names' vectors are close (`specs/backbones_ppr_tree.md` 1.4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

_BLOCK = 1024  # queries searched at a time
_SLACK = 1e-4  # below the threshold; the search's float32 sums may be off by less than this
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


def find_synonyms(
    entities: Sequence[str],
    vectors: np.ndarray,
    threshold: float = 0.8,
    max_neighbours: int = 101,
    sources: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Join each name to its nearest others: exact search, then a cosine that depends on the two vectors alone.

    A name of at most two letters and digits starts no edge, an empty one ends none. Nearest first, ties by name.

    Args:
        entities: sorted names.
        vectors: (num_entities, dim) unit rows.
        threshold: least cosine.
        max_neighbours: most edges that start at one name.
        sources: positions to start from; all by default.

    Returns:
        (from, to) positions of shape (n, 2), int32, sorted by `from` and then nearest first; cosines of shape (n,).
    """
    wanted = range(len(entities)) if sources is None else sources.tolist()
    starts = np.array([i for i in wanted if len(_NOT_ALPHANUMERIC.sub("", entities[i])) > 2], dtype=np.int64)
    if not len(starts):
        return np.zeros((0, 2), dtype=np.int32), np.zeros(0)
    import faiss

    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    searcher = faiss.IndexFlatIP(vectors.shape[1])
    searcher.add(vectors)
    is_empty = np.array([not name for name in entities])
    pairs, cosines = [], []
    for first in range(0, len(starts), _BLOCK):
        block = starts[first : first + _BLOCK]
        bounds, _, found = searcher.range_search(vectors[block], threshold - _SLACK)
        counts: Any = np.diff(bounds)
        source = np.repeat(block, counts.astype(np.int64))
        keep = (found != source) & ~is_empty[found]
        source, found = source[keep], found[keep]
        # Row by row in float64: the same for a pair whatever else is searched, and whichever of the two asks.
        cosine = (vectors[source].astype(np.float64) * vectors[found].astype(np.float64)).sum(axis=1)
        order = np.lexsort((found, -cosine, source))
        order = order[cosine[order] >= threshold]
        source, found, cosine = source[order], found[order], cosine[order]
        rank = np.arange(len(source)) - np.searchsorted(source, source, side="left")
        near = rank < max_neighbours
        pairs.append(np.stack([source[near], found[near]], axis=1).astype(np.int32))
        cosines.append(cosine[near])
    return np.concatenate(pairs), np.concatenate(cosines)
