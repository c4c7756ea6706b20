"""Names that may mean the same: synonym edges by cosine, exactly or by hashing; entity resolution by stars (DotRAG).

Each vector enters the few buckets whose directions it points along most; vectors of a common bucket are compared. A
bucket is a pair of Gaussian directions, one of each of two families, its strength the sum of the two inner products
(Becker, Ducas, Gama and Laarhoven, SODA 2016). Vectors and directions are rounded to integers, so that sums are exact
and buckets the same on every machine; they depend on the vector alone, so that updates equal a rebuild.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.extract.base import Extraction, Triple
from gnnrag.graphs.knowledge import KnowledgeGraph

MEMBERS = 64  # mean members of a bucket that is aimed at
_VECTOR_SCALE, _DIRECTION_SCALE = 2.0**11, 2.0**7  # their product times sqrt(dim) stays below 2**24: float32 is exact
_BLOCK = 4096  # vectors at a time
_SEED = 20_260_701


def num_directions(count: int) -> int:
    """Return the directions of each family for so many vectors: a power of two, so that it seldom changes."""
    directions = 16
    while directions**2 * MEMBERS < count * num_probes(directions):
        directions *= 2
    return directions


def num_probes(directions: int) -> int:
    """Return how many buckets each vector enters: 99% of pairs of cosine >= 0.8 share one (2WikiMultiHopQA's names)."""
    return round(2 * directions**0.5)


def buckets_of(vectors: np.ndarray, directions: int) -> np.ndarray:
    """Return (n, num_probes(directions)) int64 distinct buckets below directions ** 2, strongest first; dim < 4096.

    `directions` is a power of two; of equally strong buckets the one with the smaller number counts as stronger.
    """
    probes = num_probes(directions)
    rng = np.random.default_rng(_SEED)
    families = np.rint(rng.standard_normal((2, directions, vectors.shape[1])) * _DIRECTION_SCALE).astype(np.float32)
    depth = min(probes, directions)
    # The i-th and the j-th strongest direction make no bucket that i * j others do not surpass.
    first, second = np.nonzero(np.outer(np.arange(1, depth + 1), np.arange(1, depth + 1)) <= probes)
    out = np.empty((len(vectors), probes), dtype=np.int64)
    for start in range(0, len(vectors), _BLOCK):
        rows = np.rint(vectors[start : start + _BLOCK].astype(np.float64) * _VECTOR_SCALE).astype(np.float32)
        (a, strong_a), (b, strong_b) = (_strongest(rows @ family.T, depth) for family in families)
        buckets = a[:, first] * directions + b[:, second]
        # An integer less a fraction of its own, exact in float64: no order is left to chance.
        chosen = _order(strong_a[:, first] + strong_b[:, second] - buckets / directions**2, probes)
        out[start : start + _BLOCK] = np.take_along_axis(buckets, chosen, axis=1)
    return out


def _strongest(products: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `count` best columns of each row, (rows, count) int64, and their values, float64; ties by column."""
    size = products.shape[1]
    best = _order(products.astype(np.float64) - np.arange(size) / size, count)
    return best, np.take_along_axis(products, best, axis=1).astype(np.float64)


def _order(keys: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the `count` largest of each row of distinct numbers, largest first."""
    last = keys.shape[1] - count
    places = np.nonzero(keys >= np.partition(keys, last, axis=1)[:, last, None])[1].reshape(len(keys), count)
    return np.take_along_axis(places, np.argsort(-np.take_along_axis(keys, places, axis=1), axis=1), axis=1)


def sharing(buckets: np.ndarray, asks: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield per bucket that holds one who `asks` (n,) and another: those who ask and all members, ascending."""
    count = max(len(buckets), 1)
    flat = (buckets * count + np.arange(len(buckets))[:, None]).ravel()  # sorted as numbers, which is fastest
    flat.sort()
    flat, owners = np.divmod(flat, count)
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    stops = np.r_[starts[1:], len(flat)]
    asking = np.add.reduceat(asks[owners], starts) if len(flat) else np.zeros(0)
    for i in np.flatnonzero((asking > 0) & (stops - starts > 1)).tolist():
        members = owners[starts[i] : stops[i]]
        yield members[asks[members]], members


EXACT_UP_TO = 1 << 16  # names, ten seconds; beyond, only those that share a bucket are compared
_BUFFER = 8_000_000  # edges kept before those that are not among a name's nearest are dropped
_CODES = 1 << 21  # pairs of one bucket kept before each is looked at once
_PAIRS = 4096  # cosines computed at a time
_QUERY_BLOCK = 1024  # queries searched at a time
_SLACK = 1e-4  # below the threshold; the search's float32 sums may be off by less than this
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Synonyms:
    """Edges between names."""

    entities: Sequence[str]  # sorted
    pairs: np.ndarray  # (n, 2) int32 positions (from, to), by `from`, then nearest first, ties by name
    cosines: np.ndarray  # (n,) float64


def find_synonyms(
    entities: Sequence[str],
    vectors: np.ndarray,
    threshold: float = 0.8,
    max_neighbours: int = 101,
    known: Synonyms | None = None,
) -> Synonyms:
    """Join each of the sorted names to its nearest others: a search, then a cosine of the two vectors alone.

    A name of at most two letters and digits starts no edge, an empty one ends none. Up to `EXACT_UP_TO` names the
    search is exact; of more it misses about one edge in a hundred, in time less than quadratic. Whether a pair is found
    depends on its two vectors and on the number of names, by powers of four. `vectors` are (num_entities, dim) unit
    rows; with `known`, the result for other names with the same settings and embedder, only what differs is searched.
    """
    starts = np.array([len(_NOT_ALPHANUMERIC.sub("", name)) > 2 for name in entities], dtype=bool)
    ends = np.array([bool(name) for name in entities], dtype=bool)
    none = Synonyms(entities, np.zeros((0, 2), dtype=np.int32), np.zeros(0))
    if not starts.any():
        return none
    if known is None or _search(len(known.entities)) != _search(len(entities)):
        known = Synonyms((), none.pairs, none.cosines)
    is_new, old_pairs, old_cosines = _carried(entities, known, max_neighbours)
    asks = starts if is_new.all() else is_new
    directions = _search(len(entities))
    found = _near_in_buckets(vectors, asks, threshold, directions) if directions else _near(vectors, asks, threshold)
    blocks, held = [(old_pairs, old_cosines)], 0
    for pairs, cosines in found:
        if not is_new.all():
            back = ~is_new[pairs[:, 1]]  # what is not new does not search, but may be near to what does
            pairs, cosines = np.concatenate([pairs, pairs[back, ::-1]]), np.concatenate([cosines, cosines[back]])
        blocks.append((pairs, cosines))
        held += len(pairs)
        if held > _BUFFER:
            blocks, held = [_nearest(blocks, starts, ends, max_neighbours)], 0
    return Synonyms(entities, *_nearest(blocks, starts, ends, max_neighbours))


def _search(count: int) -> int:
    """Return how so many names are searched: with that many directions (`buckets_of`), or exactly (0)."""
    return num_directions(count) if count > EXACT_UP_TO else 0


def _carried(
    entities: Sequence[str], known: Synonyms, max_neighbours: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which names must search, and the known edges of the others at their new positions."""
    # A name whose list was full and lost an entry must search again: what came after that entry is not known.
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


def _near(vectors: np.ndarray, asks: np.ndarray, threshold: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all (from, to) of two different rows, of which the first asks, with their cosines."""
    import faiss

    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    quiet, sources = np.flatnonzero(~asks), np.flatnonzero(asks)
    order = np.concatenate([quiet, sources])
    searcher = faiss.IndexFlatIP(vectors.shape[1])
    searcher.add(vectors[quiet])
    for first in range(0, len(sources), _QUERY_BLOCK):
        block = sources[first : first + _QUERY_BLOCK]
        searcher.add(vectors[block])  # who comes later searches for this block, which halves the work
        bounds, _, found = searcher.range_search(vectors[block], threshold - _SLACK)
        counts: Any = np.diff(bounds)
        place = np.repeat(len(quiet) + first + np.arange(len(block)), counts.astype(np.int64))
        is_first = found < place
        yield _both_ways(vectors, asks, order[place[is_first]] * len(vectors) + order[found[is_first]], threshold)


def _near_in_buckets(
    vectors: np.ndarray, asks: np.ndarray, threshold: float, directions: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the same for rows that share a bucket; a pair may come more than once."""
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    codes, held, count = [], 0, len(vectors)
    for asking, members in sharing(buckets_of(vectors, directions), asks):
        own = vectors[members]
        for first in range(0, len(asking), _QUERY_BLOCK):
            block = asking[first : first + _QUERY_BLOCK]
            rows, columns = np.nonzero(
                (own if len(block) == len(own) else vectors[block]) @ own.T >= threshold - _SLACK
            )
            sources, targets = block[rows], members[columns]
            is_first = (sources < targets) | ~asks[targets]  # of two that ask, one is enough
            codes.append((sources * count + targets)[is_first])
            held += len(codes[-1])
            if held > _CODES:  # near ones share many buckets
                yield _both_ways(vectors, asks, _distinct(codes), threshold)
                codes, held = [], 0
    if codes:
        yield _both_ways(vectors, asks, _distinct(codes), threshold)


def _both_ways(
    vectors: np.ndarray, asks: np.ndarray, codes: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs that are near, and turned round where the other one asks, too, with their cosines."""
    pairs, cosines = _checked(vectors, *np.divmod(codes, len(vectors)), threshold)
    back = asks[pairs[:, 1]]
    return np.concatenate([pairs, pairs[back, ::-1]]), np.concatenate([cosines, cosines[back]])


def _distinct(codes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the distinct numbers, ascending: `np.unique` hashes, which takes many times as long."""
    found = np.concatenate(codes)
    found.sort()
    return found[np.r_[True, found[1:] != found[:-1]]] if len(found) else found


def _checked(
    vectors: np.ndarray, sources: np.ndarray, targets: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of two different rows that are near, with their cosines."""
    sources, targets = sources[targets != sources], targets[targets != sources]
    cosines = np.empty(len(sources))
    for first in range(0, len(sources), _PAIRS):
        # Row by row in float64: the same for a pair whatever else is searched, and whichever of the two asks.
        rows = slice(first, first + _PAIRS)
        products = vectors[sources[rows]].astype(np.float64) * vectors[targets[rows]].astype(np.float64)
        cosines[rows] = products.sum(axis=1)
    near = cosines >= threshold
    return np.stack([sources[near], targets[near]], axis=1).astype(np.int32), cosines[near]


def _nearest(
    blocks: Sequence[tuple[np.ndarray, np.ndarray]], starts: np.ndarray, ends: np.ndarray, max_neighbours: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest allowed edges of each name, sorted, each once."""
    pairs, cosines = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    allowed = starts[pairs[:, 0]] & ends[pairs[:, 1]]
    pairs, cosines = pairs[allowed], cosines[allowed]
    order = np.lexsort((pairs[:, 1], -cosines, pairs[:, 0]))
    pairs, cosines = pairs[order], cosines[order]
    again = np.r_[False, (pairs[1:] == pairs[:-1]).all(axis=1)] if len(pairs) else np.zeros(0, dtype=bool)
    pairs, cosines = pairs[~again], cosines[~again]
    rank = np.arange(len(pairs)) - np.searchsorted(pairs[:, 0], pairs[:, 0], side="left")
    return pairs[rank < max_neighbours], cosines[rank < max_neighbours]


# --------------------------------------------------------------------------------------------------------- resolution
MAX_MEMBERS = 20  # of a cluster: its seed and the nearest others
RESOLVED_EXACTLY_UP_TO, NEIGHBOURS = 20_000, 50  # with more entities, only so many neighbours of each are looked at
APART = frozenset({"person", "location", "geo", "year", "date"})  # these types join their own kind only
_NEIGHBOUR_BLOCK = 1024  # rows searched at a time
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
    for first in range(0, len(vectors), _NEIGHBOUR_BLOCK):
        block = np.arange(first, min(first + _NEIGHBOUR_BLOCK, len(vectors)))
        if len(vectors) <= RESOLVED_EXACTLY_UP_TO:
            bounds, _, found = searcher.range_search(vectors[block], threshold - _SLACK)
            sources = np.repeat(block, np.diff(bounds).astype(np.int64))
        else:  # more than are kept, so that rounding in the search decides nothing
            found = searcher.search(vectors[block], min(2 * NEIGHBOURS, len(vectors)))[1].ravel()
            sources = np.repeat(block, len(found) // len(block))
        pairs = np.stack([sources, found], axis=1)[found != sources]
        # Row by row in float64: the same for a pair whatever else is searched.
        cosines = np.einsum("ij,ij->i", *(vectors[side].astype(np.float64) for side in pairs.T))
        pairs, cosines = pairs[cosines >= threshold], cosines[cosines >= threshold]
        if len(vectors) > RESOLVED_EXACTLY_UP_TO:
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
