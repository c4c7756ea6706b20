"""MiniRAG's walks: paths from starting entities to candidates of the answer's type.

A walk goes from a start over one neighbour to another one; a neighbour that leads nowhere else ends its walk. It counts
1, and 1 more for each node that may be the answer and each edge near the query. No walk is listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from rapidfuzz.distance import Levenshtein

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph


class TypePool:
    """Types, sorted (`names`), and the entities that have them; an entity of several types has each."""

    def __init__(self, graph: KnowledgeGraph, encode: Callable[[Sequence[str]], np.ndarray]) -> None:
        self._members: dict[str, list[int]] = {}
        for entity, kinds in enumerate(graph.types):
            for kind in kinds.split("|") if kinds else ():
                self._members.setdefault(kind, []).append(entity)
        self.names = tuple(sorted(self._members))
        self._folded = {kind.casefold(): kind for kind in self.names}
        self._encode = encode

    def entities(self, kinds: Sequence[str]) -> list[int]:
        """Return the entities of some types, each once, in order of types."""
        return list(dict.fromkeys(entity for kind in kinds for entity in self._members[kind]))

    def equal(self, asked: Sequence[str]) -> list[str]:
        """Return the types that are asked for in upper case, as MiniRAG's released code stores and compares them."""
        return [kind for kind in self.names if kind.upper() in asked]

    def nearest(self, asked: Sequence[str]) -> list[str]:
        """Return the types that equal what is asked for but for case; for what equals none, the one nearest to it."""
        kinds = [self._folded.get(" ".join(kind.split()).casefold()) or self._alike(kind) for kind in asked]
        return [kind for kind in dict.fromkeys(kinds) if kind]

    def _alike(self, kind: str) -> str:
        if not self.names or not kind.strip():
            return ""
        return self.names[int(np.argmax(self._vectors @ self._encode([kind])[0]))]

    @cached_property
    def _vectors(self) -> np.ndarray:
        return self._encode(self.names)


MANY = 5  # passages of a node; of one with more, only those nearest to the query count
NOT_VOTED = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Votes:
    """Which entities and edges raise the weight of a walk."""

    is_answer: np.ndarray  # (num_entities,) bool; whether each may be the answer
    rank: np.ndarray  # (num_edges,) int32; among the edges near the query, `NOT_VOTED` for the others
    directed: bool = False  # an edge counts only from its smaller end to its larger one

    @classmethod
    def of(cls, answers: Sequence[int], edges: Sequence[int], size: tuple[int, int], directed: bool = False) -> Votes:
        """Make votes from positions: answers, and edges best first, of `size` entities and edges."""
        is_answer, rank = np.zeros(size[0], dtype=bool), np.full(size[1], NOT_VOTED, dtype=np.int32)
        is_answer[np.asarray(answers, dtype=np.int64)] = True
        rank[np.asarray(edges, dtype=np.int64)] = np.arange(len(edges))
        return cls(is_answer, rank, directed)


@dataclass(frozen=True)
class Walks:
    """All walks of one start, ordered by their nodes. Shapes (num_walks,)."""

    start: int
    middle: np.ndarray
    end: np.ndarray  # -1 where a walk has one edge
    near: np.ndarray  # edges
    far: np.ndarray  # -1 where there is none

    def __len__(self) -> int:
        return len(self.middle)

    def weigh(self, votes: Votes) -> tuple[np.ndarray, np.ndarray]:
        """Return each walk's weight, and its edge nearest to the query or -1. Shapes (num_walks,), int64."""
        answers = votes.is_answer.astype(np.int64)
        near = np.where(votes.directed & (self.start > self.middle), NOT_VOTED, votes.rank[self.near])
        far = np.where((self.far < 0) | (votes.directed & (self.middle > self.end)), NOT_VOTED, votes.rank[self.far])
        counts = 1 + answers[self.start] + answers[self.middle] + np.where(self.end < 0, 0, answers[self.end])
        counts += (near != NOT_VOTED).astype(np.int64) + (far != NOT_VOTED)
        best = np.where(near <= far, self.near, self.far)
        return counts, np.where(np.minimum(near, far) == NOT_VOTED, -1, best)


class WalkGraph:
    """Walks over an entity's `fan_out` heaviest edges (undirected; ties by position; None: all), and their passages."""

    def __init__(self, graph: KnowledgeGraph, fan_out: int | None = None) -> None:
        self.graph, edges = graph, graph.edges
        ways = edges.incident
        owners = np.repeat(np.arange(len(ways)), ways.sizes)
        to = edges.ends[ways.values].sum(axis=1, dtype=np.int64) - owners
        order = np.lexsort((to, -graph.edge_weights[ways.values], owners))
        if fan_out is not None:
            place = np.arange(len(order)) - ways.indptr[owners[order]]
            order = order[place < fan_out]
        order = order[np.lexsort((to[order], owners[order]))]
        indptr = np.zeros(len(ways) + 1, dtype=np.int64)
        np.cumsum(np.bincount(owners[order], minlength=len(ways)), out=indptr[1:])
        self.to, self.by = Lists(indptr, to[order]), Lists(indptr, ways.values[order])

    def walks(self, start: int) -> Walks:
        first, by = self.to[start], self.by[start]
        owner = np.repeat(np.arange(len(first)), self.to.sizes_of(first))
        end, far = self.to.at(first), self.by.at(first)
        onward = end != start
        owner, end, far = owner[onward], end[onward], far[onward]
        ended = np.flatnonzero(np.bincount(owner, minlength=len(first)) == 0)
        if len(ended):
            nothing = np.full(len(ended), -1)
            owner, end, far = (np.concatenate(pair) for pair in ((owner, ended), (end, nothing), (far, nothing)))
            order = np.argsort(owner, kind="stable")
            owner, end, far = owner[order], end[order], far[order]
        return Walks(start, first[owner], end, by[owner], far)

    def passages(self, starts: Sequence[int], votes: Votes, cosines: np.ndarray, most: int = 3) -> list[list[int]]:
        """Return each start's passages of most evidence, best first, ties by cosine (num_passages,)."""
        out = []
        for row in self.evidence(starts, votes, cosines):
            where = np.flatnonzero(row)
            out.append(where[np.lexsort((where, -cosines[where], -row[where]))[:most]].tolist())
        return out

    def evidence(self, starts: Sequence[int], votes: Votes, cosines: np.ndarray) -> np.ndarray:
        """Return the evidence of passages for each start, (len(starts), num_passages) float64, whole numbers.

        A walk counts its weight for every passage of its start, its other nodes and its best voted edge; of another
        node with more than `MANY` passages, for the half nearest to the query. A start without walks counts for its own
        passages.
        """
        graph, nearest = self.graph, self._nearest(cosines)
        out = np.zeros((len(starts), graph.num_passages))
        for row, start in zip(out, starts, strict=True):
            walks = self.walks(start)
            counts, best = walks.weigh(votes)
            row[graph.entity_passages[start]] += counts.sum() if len(walks) else 1
            for items, lists in ((walks.middle, nearest), (walks.end, nearest), (best, self.graph.edge_passages)):
                there = items >= 0
                weights = np.bincount(items[there], counts[there], len(lists))
                used = np.flatnonzero(weights)
                owners = np.repeat(weights[used], lists.sizes_of(used))
                row += np.bincount(lists.at(used), owners, graph.num_passages)
        return out

    def last_evidence(self, starts: Sequence[int], votes: Votes, query: str) -> list[Counter[int]]:
        """Return what the released code counts: the last walk of each start, whatever the others say.

        A node counts all its passages only the first time that a walk meets it. A node with as many descriptions as
        passages counts those whose description is nearest to the query, by edit similarity of words, every time.
        Counts are in order of first mention.
        """
        met, counters = np.zeros(self.graph.num_entities, dtype=bool), []
        passages = self.graph.entity_passages
        for start in starts:
            walks = self.walks(start)
            if not len(walks):
                counters.append(Counter(passages[start].tolist()))
                continue
            met[walks.middle[:-1]] = True
            met[walks.end[:-1][walks.end[:-1] >= 0]] = True
            counts, best = (row[-1] for row in walks.weigh(votes))
            units = self.graph.edge_passages[best].tolist() if best >= 0 else []
            units += passages[start].tolist()
            for node in [n for n in (walks.middle[-1], walks.end[-1]) if n >= 0]:
                narrowed = self._narrowed(node, query)
                units += passages[node].tolist() if narrowed is None and not met[node] else narrowed or []
                met[node] = True
            counters.append(Counter({passage: n * int(counts) for passage, n in Counter(units).items()}))
        return counters

    def best_walks(self, start: int, votes: Votes, most: int) -> list[tuple[list[int], int]]:
        """Return the nodes and the weight of the walks that count most, ties by their nodes."""
        walks = self.walks(start)
        counts, _ = walks.weigh(votes)
        best = np.argsort(-counts, kind="stable")[:most].tolist()
        nodes = [[start, int(walks.middle[i]), int(walks.end[i])] for i in best]
        return [([n for n in row if n >= 0], int(counts[i])) for row, i in zip(nodes, best, strict=True)]

    def _nearest(self, cosines: np.ndarray) -> Lists:
        """Return the passages of each entity, those of one with many cut to the half nearest to the query."""
        passages, sizes = self.graph.entity_passages, self.graph.entity_passages.sizes
        rows = np.flatnonzero(sizes > MANY)
        values = passages.at(rows)
        owners = np.repeat(rows, sizes[rows])
        order = np.lexsort((values, -cosines[values], owners))
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes[rows]) - sizes[rows], sizes[rows])
        far = order[place >= np.maximum(MANY, sizes[owners] // 2)]
        dropped = np.zeros(len(passages.values), dtype=bool)
        dropped[np.flatnonzero(np.repeat(sizes > MANY, sizes))[far]] = True
        kept = np.concatenate([[0], np.cumsum(~dropped)])
        return Lists(kept[passages.indptr], passages.values[~dropped])

    def _narrowed(self, node: int, query: str) -> list[int] | None:
        """Return the passages of a node whose descriptions are nearest to the query; None where that cannot be told."""
        passages, descriptions = self.graph.entity_passages[node], self.graph.descriptions[node].split("\n")
        if not MANY < len(passages) == len(descriptions):
            return None
        asked = query.lower().split()
        alike = [Levenshtein.normalized_similarity(text.lower().split(), asked) for text in descriptions]
        best = sorted(range(len(alike)), key=lambda i: -alike[i])[: max(MANY, len(passages) // 2)]
        return passages[best].tolist()


def score_passages(
    mentions: Sequence[Sequence[tuple[float, Sequence[int]]]], near: Container[int], sticky: bool = False
) -> dict[int, float]:
    """Return passage to score, in order of first mention.

    Each mention's candidates are (score, passages, best first) in order. A candidate gives its score, the first of a
    mention twice that, to each of its passages, and ten times as much to its best one if that is in `near`, the
    passages nearest to the query; with `sticky` then to its other passages too.
    """
    scores: dict[int, float] = {}
    for candidates in mentions:
        for i, (score, passages) in enumerate(candidates):
            base = score * 2 if i == 0 else score
            for place, passage in enumerate(passages):
                is_best = bool(passages) and passages[0] in near and (sticky or place == 0)
                scores[passage] = scores.get(passage, 0.0) + base * (10 if is_best else 1)
    return scores
