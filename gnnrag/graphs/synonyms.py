"""Names that may mean the same, by their vectors: synonym edges, and entity resolution by stars (DotRAG)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph

EXACT_UP_TO = 1 << 16  # vectors, ten seconds; of more, only those in the nearest of faiss's inverted lists are compared
_QUERY_BLOCK = 1024  # queries searched at a time
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


def near_pairs(
    vectors: np.ndarray, asks: np.ndarray, threshold: float, most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (n, 2) int32 pairs of two different rows of a cosine of `threshold` or more, and these, (n,) float64.

    The first of a pair is one of `asks`, positions, ascending; its `most` nearest come nearest first, ties by position.
    """
    import faiss

    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    searcher: Any = faiss.IndexFlatIP(vectors.shape[1])
    if len(vectors) > EXACT_UP_TO:
        lists = int(4 * len(vectors) ** 0.5)
        searcher = faiss.IndexIVFFlat(searcher, vectors.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
        searcher.cp.seed, searcher.nprobe = 1, max(8, lists // 32)
        searcher.train(vectors)
    searcher.add(vectors)
    blocks = [(np.zeros((0, 2), np.int64), np.zeros(0))]
    for first in range(0, len(asks), _QUERY_BLOCK):
        block = asks[first : first + _QUERY_BLOCK]
        bounds, cosines, targets = searcher.range_search(vectors[block], threshold)
        sources = np.repeat(block, np.diff(bounds).astype(np.int64))
        pairs, cosines = np.stack([sources, targets], axis=1)[sources != targets], cosines[sources != targets]
        order = np.lexsort((pairs[:, 1], -cosines, pairs[:, 0]))
        pairs, cosines = pairs[order], cosines[order]
        rank = np.arange(len(pairs)) - np.searchsorted(pairs[:, 0], pairs[:, 0])
        is_among = rank < (len(vectors) if most is None else most)
        blocks.append((pairs[is_among], cosines[is_among]))
    all_pairs, all_cosines = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return all_pairs.astype(np.int32), all_cosines.astype(np.float64)


def find_synonyms(
    entities: Sequence[str], vectors: np.ndarray, threshold: float = 0.8, max_neighbours: int = 101
) -> tuple[np.ndarray, np.ndarray]:
    """Join each of the sorted names to its nearest others: (n, 2) int32 positions (from, to), (n,) float64 cosines.

    A name of at most two letters and digits starts no edge, an empty one ends none. `vectors` are (num_entities, dim)
    unit rows.
    """
    starts = [i for i, name in enumerate(entities) if len(_NOT_ALPHANUMERIC.sub("", name)) > 2]
    ends = np.array([i for i, name in enumerate(entities) if name], dtype=np.int64)
    if not starts:
        return np.zeros((0, 2), dtype=np.int32), np.zeros(0)
    pairs, cosines = near_pairs(vectors[ends], np.searchsorted(ends, starts), threshold, max_neighbours)
    return ends[pairs].astype(np.int32), cosines


# --------------------------------------------------------------------------------------------------------- resolution
MAX_MEMBERS = 20  # of a cluster: its seed and the nearest others
RESOLVED_EXACTLY_UP_TO, NEIGHBOURS = 20_000, 50  # with more entities, only so many neighbours of each are looked at
APART = frozenset({"person", "location", "geo", "year", "date"})  # these types join their own kind only
_YEAR = re.compile(r"\d{3,4}")


def candidate_clusters(graph: KnowledgeGraph, vectors: np.ndarray, threshold: float = 0.6) -> list[list[int]]:
    """Return the clusters of two or more entities that a curator has to look at, from (num_entities, dim) unit rows.

    Entities open clusters by degree, descending, then by position; each takes in the unassigned ones of cosine
    `threshold` or more, the nearest 19 where there are more. The vectors are of `name (type)`. Returns positions, the
    seed first and then by degree; disjoint, in the order of their seeds.
    """
    order = np.argsort(-graph.edges.degrees, kind="stable").tolist()
    rank = {entity: i for i, entity in enumerate(order)}
    most = None if len(vectors) <= RESOLVED_EXACTLY_UP_TO else NEIGHBOURS
    pairs, _ = near_pairs(vectors, np.arange(len(vectors)), threshold, most)
    near = Lists(np.searchsorted(pairs[:, 0], np.arange(len(vectors) + 1)), pairs[:, 1])
    named = zip(graph.names, graph.types, strict=True)
    kinds = ["year" if _YEAR.fullmatch(name.strip()) else kind.casefold() for name, kind in named]
    left, clusters = set(order), []
    for seed in order:
        if seed not in left:
            continue
        may_join = [
            i for i in near[seed].tolist() if kinds[i] == kinds[seed] or APART.isdisjoint((kinds[i], kinds[seed]))
        ]
        members = [i for i in may_join if i in left][: MAX_MEMBERS - 1]
        left -= {seed, *members}
        if members:
            clusters.append([seed, *sorted(members, key=rank.__getitem__)])
    return clusters


def renaming(graph: KnowledgeGraph, groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return every spelling of the names in each group with the best connected of them."""
    renamed: dict[str, str] = {}
    for group in groups:
        first, *others = sorted((graph.position[name] for name in group), key=lambda i: (-graph.edges.degrees[i], i))
        spellings = {s for i in (first, *others) for s in (graph.names[i], *graph.aliases[i])} if others else set()
        renamed |= dict.fromkeys(sorted(spellings - {graph.names[first]}), graph.names[first])
    return renamed
