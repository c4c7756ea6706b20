"""Entity resolution (DotRAG, section on hybrid entity resolution): clusters are stars around well connected names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnrag.extract.base import Extraction, Triple
from gnnrag.graphs.knowledge import KnowledgeGraph, Lists

MAX_MEMBERS = 20  # of a cluster: its seed and the nearest others
EXACT_UP_TO, NEIGHBOURS = 20_000, 50  # with more entities, only so many neighbours of each are looked at
APART = frozenset({"person", "location", "geo", "year", "date"})  # these types join their own kind only
_BLOCK = 1024  # rows searched at a time
_SLACK = 1e-4  # below the threshold; the search's float32 sums may be off by less than this
_YEAR = re.compile(r"\d{3,4}")


@dataclass(frozen=True)
class Merge:
    """One entry of the undo log: entities that became one."""

    name: str  # the best connected of them
    members: tuple[tuple[str, str, tuple[str, ...]], ...]  # (name, type, spellings) before, `name` first


def resolution_text(name: str, kind: str) -> str:
    """Return what is embedded of an entity: a description would make anything of one topic alike."""
    return f"{name} ({kind})" if kind else name


def candidate_clusters(graph: KnowledgeGraph, vectors: np.ndarray, threshold: float = 0.6) -> list[list[int]]:
    """Return the clusters of two or more entities that a curator has to look at, from (num_entities, dim) unit rows.

    Entities open clusters by degree, descending, then by position; each takes in the unassigned ones of cosine
    `threshold` or more, the nearest 19 where there are more. Vectors are of `resolution_text`. Returns positions, the
    seed first and then by degree; disjoint, in the order of their seeds.
    """
    order = np.lexsort((np.arange(graph.num_entities), -graph.degrees))
    rank = np.empty(graph.num_entities, dtype=np.int64)
    rank[order] = np.arange(graph.num_entities)
    if not len(order):
        return []
    near, cosines = _neighbours(vectors, threshold)
    kinds = [_kind(name, kind) for name, kind in zip(graph.names, graph.types, strict=True)]
    assigned = np.zeros(graph.num_entities, dtype=bool)
    clusters = []
    for seed in order.tolist():
        if assigned[seed]:
            continue
        assigned[seed] = True
        first, last = near.indptr[seed], near.indptr[seed + 1]
        found = [
            (-cosine, other)
            for other, cosine in zip(near.values[first:last].tolist(), cosines[first:last].tolist(), strict=True)
            if not assigned[other] and _may_join(kinds[seed], kinds[other])
        ]
        if found:
            members = sorted((other for _, other in sorted(found)[: MAX_MEMBERS - 1]), key=lambda i: rank[i])
            assigned[members] = True
            clusters.append([seed, *members])
    return clusters


def merges_of(graph: KnowledgeGraph, groups: Sequence[Sequence[str]]) -> list[Merge]:
    """Return the merges that groups of names ask for, those of one name left out, sorted by name."""
    merges = []
    for group in groups:
        at = sorted((graph.position[name] for name in group), key=lambda i: (-graph.degrees[i], i))
        if len(at) > 1:
            rows = tuple((graph.names[i], graph.types[i], tuple(graph.aliases[i])) for i in at)
            merges.append(Merge(rows[0][0], rows))
    return sorted(merges, key=lambda merge: merge.name)


def renaming(merges: Sequence[Merge]) -> dict[str, str]:
    """Return every spelling of a merged entity with the name that it is now known by."""
    renamed: dict[str, str] = {}
    for merge in merges:
        for name, _, aliases in merge.members:
            renamed |= {spelling: merge.name for spelling in (name, *aliases) if spelling != merge.name}
    return renamed


def without_loops(extractions: Sequence[Extraction], renamed: Mapping[str, str]) -> list[Extraction]:
    """Leave out the triples and relations between names that have become one."""

    def is_loop(head: str, tail: str) -> bool:
        head, tail = " ".join(head.split()), " ".join(tail.split())
        return head != tail and renamed.get(head, head) == renamed.get(tail, tail)

    kept = []
    for found in extractions:
        triples: tuple[Triple, ...] = tuple(t for t in found.triples if not is_loop(t[0], t[2]))
        relations = tuple(r for r in found.relations if not is_loop(r.head, r.tail))
        kept.append(replace(found, triples=triples, relations=relations))
    return kept


def _kind(name: str, kind: str) -> str:
    return "year" if _YEAR.fullmatch(name.strip()) else kind.casefold()


def _may_join(one: str, other: str) -> bool:
    return one == other or not (one in APART or other in APART)


def _neighbours(vectors: np.ndarray, threshold: float) -> tuple[Lists, np.ndarray]:
    """Return the neighbours of each row, ascending, and their cosines: all, or the nearest 50 of very many."""
    import faiss

    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    searcher = faiss.IndexFlatIP(vectors.shape[1])
    searcher.add(vectors)
    blocks = [(np.zeros((0, 2), np.int64), np.zeros(0))]
    for first in range(0, len(vectors), _BLOCK):
        block = np.arange(first, min(first + _BLOCK, len(vectors)))
        if len(vectors) <= EXACT_UP_TO:
            bounds, _, found = searcher.range_search(vectors[block], threshold - _SLACK)
            sources = np.repeat(block, np.diff(bounds).astype(np.int64))
        else:  # more than are kept, so that rounding in the search decides nothing
            found = searcher.search(vectors[block], min(2 * NEIGHBOURS, len(vectors)))[1].ravel()
            sources = np.repeat(block, len(found) // len(block))
        pairs = np.stack([sources, found], axis=1)[found != sources]
        # Row by row in float64: the same for a pair whatever else is searched.
        cosines = np.einsum("ij,ij->i", *(vectors[side].astype(np.float64) for side in pairs.T))
        pairs, cosines = pairs[cosines >= threshold], cosines[cosines >= threshold]
        if len(vectors) > EXACT_UP_TO:
            order = np.lexsort((pairs[:, 1], -cosines, pairs[:, 0]))
            pairs, cosines = pairs[order], cosines[order]
            rank = np.arange(len(pairs)) - np.searchsorted(pairs[:, 0], pairs[:, 0])
            pairs, cosines = pairs[rank < NEIGHBOURS], cosines[rank < NEIGHBOURS]
        blocks.append((pairs, cosines))
    pairs, cosines = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    ordered = np.lexsort((pairs[:, 1], pairs[:, 0]))
    indptr = np.zeros(len(vectors) + 1, dtype=np.int64)
    np.cumsum(np.bincount(pairs[:, 0], minlength=len(vectors)), out=indptr[1:])
    return Lists(indptr, pairs[ordered, 1].astype(np.int32)), cosines[ordered]
