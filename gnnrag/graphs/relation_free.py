"""LinearRAG's graph: entities joined to passages, and to each other by sentences alone; what a question wakes there.

LinearRAG (arXiv 2510.10114, ICLR 2026) has no relations: a sentence in which two entities occur stands for one. The
index takes names and vectors, and no language model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy import sparse

from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.knowledge import Lists


@dataclass(frozen=True)
class Activation:
    """What a question woke.

    Attributes:
        scores: of each active entity, 0 of the others. Shape (num_entities,), float64.
        tiers: how far from the question it got that score: 1 for a seed. Shape (num_entities,), int64.
        weights: all that reached an entity, its seed included. Shape (num_entities,), float64.
    """

    scores: np.ndarray
    tiers: np.ndarray
    weights: np.ndarray

    @property
    def bonus(self) -> np.ndarray:
        """Score over tier, by which an entity lifts the passages that hold it. Shape (num_entities,)."""
        return self.scores / np.maximum(self.tiers, 1)


@dataclass(frozen=True)
class RelationFreeGraph:
    """Entities, the sentences that name them and the passages that hold them.

    Attributes:
        names: of the entities: the keys of `build_relation_free`.
        phrases: the first phrase of each entity, as a position in the hierarchy graph. Shape (num_entities,).
        sentence_entities: distinct entities of each sentence.
        counts: how often a passage names an entity. Shape (num_passages, num_entities), float64.
    """

    names: Sequence[str]
    phrases: np.ndarray
    sentence_entities: Lists
    counts: sparse.csr_array

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Name to entity."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def entity_sentences(self) -> Lists:
        """The sentences of each entity, ascending."""
        lists = self.sentence_entities
        sentences = np.repeat(np.arange(len(lists)), lists.sizes)
        order = np.argsort(lists.values, kind="stable")
        sizes = np.bincount(lists.values, minlength=len(self.names))
        return Lists(np.concatenate([[0], np.cumsum(sizes)]), sentences[order])

    def adjacency(self, neighbours: np.ndarray) -> sparse.csr_array:
        """Return the graph to walk on, entities first: w(p, e) = c(p, e) / sum of c(p, .); neighbours weigh 1.

        Args:
            neighbours: (n, 2) pairs of passages that follow each other.

        Returns:
            Symmetric weights. Shape (num_entities + num_passages,) * 2, float64.
        """
        num_passages = self.counts.shape[0]
        totals = np.asarray(self.counts.sum(axis=1)).ravel()
        inverse = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
        holds = sparse.csr_array(self.counts * inverse[:, None])
        ones, (low, high) = np.ones(len(neighbours)), neighbours.T
        chain = sparse.coo_array((ones, (low, high)), shape=(num_passages, num_passages)).tocsr()
        return sparse.block_array([[None, holds.T], [holds, chain + chain.T]], format="csr")


def build_relation_free(
    graph: HierarchyGraph, keys: Sequence[str], texts: Sequence[str] | None = None
) -> RelationFreeGraph:
    """Build the graph from the phrases of a corpus.

    Args:
        graph: its sentences and phrases.
        keys: of the phrases: those with equal ones are one entity, empty for none.
        texts: of the passages, to count the keys in as strings, as released; None counts the sentences that name one.
    """
    position: dict[str, int] = {}
    numbers = [position.setdefault(key, len(position)) if key else -1 for key in keys]
    groups, names = np.array(numbers, dtype=np.int64), list(position)
    phrases = np.flatnonzero(groups >= 0)[np.unique(groups[groups >= 0], return_index=True)[1]]
    sentences = np.repeat(np.arange(len(graph.sentences)), np.diff(graph.sentence_indptr))
    entities = groups[graph.sentence_phrases]
    shape = (len(graph.sentences), len(names))
    is_kept = entities >= 0
    pairs = (sentences[is_kept], entities[is_kept])
    named = sparse.coo_array((np.ones(len(pairs[0])), pairs), shape=shape).tocsr()
    named.sum_duplicates()
    named.data[:] = 1.0
    passages = np.repeat(np.arange(graph.num_passages), np.diff(graph.passage_indptr))
    ones = np.ones(len(passages))
    has = sparse.coo_array((ones, (passages, graph.passage_sentences)), (graph.num_passages, shape[0])).tocsr()
    counts = sparse.csr_array(has @ named)
    if texts is not None:
        rows, columns = counts.nonzero()
        counts.data = np.array([texts[p].count(names[e]) for p, e in zip(rows, columns, strict=True)], dtype=float)
    return RelationFreeGraph(names, phrases, Lists(named.indptr, named.indices), counts)


def neighbours(titles: Sequence[str], rule: str) -> np.ndarray:
    """Return the passages that follow each other and are joined. Shape (n, 2), int64.

    Args:
        titles: of the passages.
        rule: `all`; `document`: those of one title; `none`.
    """
    joins = {"all": lambda a, b: True, "document": lambda a, b: bool(a) and a == b, "none": lambda a, b: False}[rule]
    pairs = [(i, i + 1) for i, (here, there) in enumerate(pairwise(titles)) if joins(here, there)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Bridging:
    """How what is active wakes more, through the sentences nearest to the question: a score s becomes s * cosine.

    Attributes:
        search: `best`: all active entities of a round at once, each through its own best sentences; a sentence passes
            on the highest score that chose it, and an entity keeps the better of old and new. `bfs`, as released: one
            after the other, a sentence goes to whoever comes first and the latest score stays. `matrix`, as released
            too: a sentence passes on the sum of all current scores in it, arrivals are summed, tiers begin at 0.
        rounds: how often.
        threshold: least score that is passed on or taken in.
        top_k: sentences of an entity in one round; none is used twice.
    """

    search: str
    rounds: int
    threshold: float
    top_k: int

    def activate(self, graph: RelationFreeGraph, seeds: Sequence[tuple[int, float]], cosines: np.ndarray) -> Activation:
        """Return what seeds wake.

        Args:
            graph: the graph.
            seeds: (entity, cosine of its name) for each name, in order; of equal entities the last stands.
            cosines: of sentences and question. Shape (num_sentences,), float64.
        """
        count, is_matrix = len(graph.names), self.search == "matrix"
        found = Activation(np.zeros(count), np.zeros(count, np.int64), np.zeros(count))
        current = dict(seeds)
        entities, scores = np.array(list(current), dtype=np.int64), np.array(list(current.values()))
        found.scores[entities] = found.weights[entities] = scores
        found.tiers[entities] = first = 0 if is_matrix else 1
        if is_matrix:  # two names of one entity spread twice
            scores = np.array([sum(score for entity, score in seeds if entity == one) for one in current])
        state = _Round(self, graph, cosines, np.zeros(len(cosines), dtype=bool), found.weights)
        spread = state.in_turn if self.search == "bfs" else state.at_once
        for tier in range(first + 1, first + 1 + self.rounds):
            entities, scores = spread(entities, scores)
            is_better = scores / tier > found.bonus[entities] if self.search == "best" else np.full(len(scores), True)
            found.scores[entities[is_better]], found.tiers[entities[is_better]] = scores[is_better], tier
        return found


@dataclass(frozen=True)
class _Round:
    """A round of spreading: from entities and their scores to those reached; marks sentences, adds to weights."""

    rule: Bridging
    graph: RelationFreeGraph
    cosines: np.ndarray
    used: np.ndarray
    weights: np.ndarray

    def in_turn(self, entities: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As released: the order of entities matters."""
        new: dict[int, float] = {}
        for entity, score in zip(entities.tolist(), scores.tolist(), strict=True):
            if score < self.rule.threshold:
                continue
            own = self.graph.entity_sentences[entity]
            own = own[~self.used[own]]
            for sentence in own[np.argsort(-self.cosines[own], kind="stable")[: self.rule.top_k]].tolist():
                self.used[sentence] = True
                if (passed := score * self.cosines[sentence]) >= self.rule.threshold:
                    for reached in self.graph.sentence_entities[sentence].tolist():
                        self.weights[reached] += passed
                        new[reached] = passed
        return np.array(list(new), dtype=np.int64), np.array(list(new.values()))

    def at_once(self, entities: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As sparse products: entities to their best sentences, these to their entities."""
        is_matrix, members = self.rule.search == "matrix", self.graph.sentence_entities
        sentences, passed = self._chosen(entities, scores)
        sizes, reached = members.sizes[sentences], members.values[members.places(sentences)]
        if is_matrix:
            current = np.bincount(entities, scores, len(self.weights))
            passed = np.bincount(np.repeat(np.arange(len(sentences)), sizes), current[reached], len(sentences))
        self.used[sentences] = True
        arrived = np.repeat(passed * self.cosines[sentences].clip(0.0), sizes)
        if not is_matrix:
            reached, arrived = reached[arrived >= self.rule.threshold], arrived[arrived >= self.rule.threshold]
        total = np.bincount(reached, arrived, len(self.weights))
        self.weights[:] += total
        if not is_matrix:
            total[:] = 0.0
            np.maximum.at(total, reached, arrived)
        found = np.flatnonzero(total >= self.rule.threshold)
        return found, total[found]

    def _chosen(self, entities: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best unused sentences of entities above the threshold, and the highest score that chose each."""
        is_alive, lists = scores >= self.rule.threshold, self.graph.entity_sentences
        entities, scores = entities[is_alive], scores[is_alive]
        sentences = lists.values[lists.places(entities)]
        owners = np.repeat(np.arange(len(entities)), lists.sizes[entities])
        owners, sentences = owners[~self.used[sentences]], sentences[~self.used[sentences]]
        order = np.lexsort((sentences, -self.cosines[sentences], owners))
        owners, sentences = owners[order], sentences[order]
        is_best = np.arange(len(owners)) - np.searchsorted(owners, owners) < self.rule.top_k
        chosen, row = np.unique(sentences[is_best], return_inverse=True)
        passed = np.zeros(len(chosen))
        np.maximum.at(passed, row, scores[owners[is_best]])
        return chosen, passed
