"""Synonym edges: entities whose names' vectors are close."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_BLOCK = 1024  # queries searched at a time
_SLACK = 1e-4  # below the threshold; the search's float32 sums may be off by less than this
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Synonyms:
    """Edges between names.

    Attributes:
        entities: the names, sorted.
        pairs: (n, 2) int32 positions (from, to), sorted by `from` and then nearest first, ties by name.
        cosines: (n,) float64.
    """

    entities: Sequence[str]
    pairs: np.ndarray
    cosines: np.ndarray


def find_synonyms(
    entities: Sequence[str],
    vectors: np.ndarray,
    threshold: float = 0.8,
    max_neighbours: int = 101,
    known: Synonyms | None = None,
) -> Synonyms:
    """Join each name to its nearest others: exact search, then a cosine that depends on the two vectors alone.

    A name of at most two letters and digits starts no edge, an empty one ends none.

    Args:
        entities: sorted names.
        vectors: (num_entities, dim) unit rows.
        threshold: least cosine.
        max_neighbours: most edges that start at one name.
        known: the result for other names with the same settings and embedder; only what differs is then searched.
    """
    starts = np.array([len(_NOT_ALPHANUMERIC.sub("", name)) > 2 for name in entities], dtype=bool)
    ends = np.array([bool(name) for name in entities], dtype=bool)
    none = Synonyms(entities, np.zeros((0, 2), dtype=np.int32), np.zeros(0))
    if not starts.any():
        return none
    is_new, old_pairs, old_cosines = _carried(entities, known or Synonyms((), none.pairs, none.cosines), max_neighbours)
    blocks = []
    if is_new.all():
        for pairs, cosines in _near(vectors, np.flatnonzero(starts), threshold):
            blocks.append(_nearest(pairs, cosines, starts, ends, max_neighbours))
    else:
        for pairs, cosines in _near(vectors, np.flatnonzero(is_new), threshold):
            back = ~is_new[pairs[:, 1]]  # what is not new does not search, but may be near to what does
            both = np.concatenate([pairs, pairs[back, ::-1]])
            blocks.append((both, np.concatenate([cosines, cosines[back]])))
        blocks.append((old_pairs, old_cosines))
    pairs, cosines = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return Synonyms(entities, *_nearest(pairs, cosines, starts, ends, max_neighbours))


def _carried(
    entities: Sequence[str], known: Synonyms, max_neighbours: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which names must search, and the known edges of the others at their new positions.

    A name whose list was full and lost an entry must search again: what came after that entry is not known.
    """
    position = {name: i for i, name in enumerate(entities)}
    moved = np.array([position.get(name, -1) for name in known.entities], dtype=np.int32)
    must = np.ones(len(entities), dtype=bool)
    must[moved[moved >= 0]] = False
    source, target = moved[known.pairs].T
    lost = np.bincount(known.pairs[target < 0, 0], minlength=len(moved)) > 0
    full = np.bincount(known.pairs[:, 0], minlength=len(moved)) >= max_neighbours
    again = moved[lost & full]
    must[again[again >= 0]] = True
    stays = (source >= 0) & (target >= 0)
    stays[stays] = ~must[source[stays]]
    # An edge to a name that searches again is found from there.
    stays[stays] = ~must[target[stays]]
    return must, np.stack([source[stays], target[stays]], axis=1), known.cosines[stays]


def _near(vectors: np.ndarray, sources: np.ndarray, threshold: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for blocks of sources, all (from, to) of two different rows with their cosines."""
    import faiss

    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    searcher = faiss.IndexFlatIP(vectors.shape[1])
    searcher.add(vectors)
    for first in range(0, len(sources), _BLOCK):
        block = sources[first : first + _BLOCK]
        bounds, _, found = searcher.range_search(vectors[block], threshold - _SLACK)
        counts: Any = np.diff(bounds)
        source = np.repeat(block, counts.astype(np.int64))
        source, found = source[found != source], found[found != source]
        # Row by row in float64: the same for a pair whatever else is searched, and whichever of the two asks.
        cosines = (vectors[source].astype(np.float64) * vectors[found].astype(np.float64)).sum(axis=1)
        near = cosines >= threshold
        yield np.stack([source[near], found[near]], axis=1).astype(np.int32), cosines[near]


def _nearest(
    pairs: np.ndarray, cosines: np.ndarray, starts: np.ndarray, ends: np.ndarray, max_neighbours: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest allowed edges of each name, sorted."""
    allowed = starts[pairs[:, 0]] & ends[pairs[:, 1]]
    pairs, cosines = pairs[allowed], cosines[allowed]
    order = np.lexsort((pairs[:, 1], -cosines, pairs[:, 0]))
    pairs, cosines = pairs[order], cosines[order]
    rank = np.arange(len(pairs)) - np.searchsorted(pairs[:, 0], pairs[:, 0], side="left")
    return pairs[rank < max_neighbours], cosines[rank < max_neighbours]
