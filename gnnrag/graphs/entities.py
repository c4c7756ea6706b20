"""The entity graph of HippoRAG 1 and 2, weighted as released: entities joined by facts, passages and similar names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import sparse

from gnnrag.arrays import Lists
from gnnrag.text.normalise import norm_phrase

Triple = tuple[str, str, str]


@dataclass(frozen=True)
class EntityGraph:
    """Entities, facts and where the facts come from. Entity nodes come first, then passage nodes."""

    num_passages: int  # with and without facts
    entities: Sequence[str]  # normalised names, sorted
    facts: Sequence[Sequence[str]]  # distinct normalised head, relation, tail, sorted
    fact_entities: np.ndarray  # (num_facts, 2) int32, head and tail as positions in `entities`
    fact_passages: Lists  # the passages that state each fact, ascending
    synonyms: np.ndarray  # (num_synonyms, 2) int32 (from, to), normally both directions; see `gnnrag.graphs.synonyms`
    similarities: np.ndarray  # (num_synonyms,) float64 cosines
    fact_times: np.ndarray  # of the values of `fact_passages`, int32: how often a passage states a fact
    fact_spellings: np.ndarray  # and in how many spellings

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @cached_property
    def position(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.entities)}

    @cached_property
    def slots(self) -> sparse.csr_array:
        """How many distinct facts of each passage hold each entity. Shape (num_passages, num_entities)."""
        facts = self.fact_passages.owners
        rows, columns = np.repeat(self.fact_passages.values, 2), self.fact_entities[facts].ravel()
        values = np.ones((len(facts), 2))
        values[self.fact_entities[facts, 0] == self.fact_entities[facts, 1], 1] = 0.0  # one slot for both ends
        return _summed(rows, columns, values.ravel(), (self.num_passages, self.num_entities))

    @cached_property
    def passages_with(self) -> np.ndarray:
        """Number of passages whose facts hold each entity. Shape (num_entities,), int64."""
        return np.bincount(self.slots.indices, minlength=self.num_entities)

    def entity_adjacency(
        self, syn_overwrites: bool = True, counted: Literal["once", "spellings", "times"] = "once"
    ) -> sparse.csr_array:
        """Symmetric weights between entities. Shape (num_entities, num_entities), float64.

        A relation weighs twice the (passage, fact) occurrences of its pair, and a synonym twice its cosine, as the
        released code stores both in both directions; a synonym found from one side only weighs half. Where a pair has
        both, the cosine replaces the count (`syn_overwrites`, as released) or is added. A fact that a passage states
        more than once is `counted` each time (HippoRAG 1), once a spelling (HippoRAG 2 as released), or once.
        """
        shape = (self.num_entities, self.num_entities)
        heads, tails = self.fact_entities.T
        times = {"spellings": self.fact_spellings, "times": self.fact_times}.get(counted, np.ones(len(self.fact_times)))
        counts = np.bincount(self.fact_passages.owners, times, len(self.facts)) * (heads != tails)
        relations = _summed(heads, tails, counts, shape)
        relations = relations + relations.T
        sources, targets = self.synonyms.T
        if syn_overwrites:
            relations = relations - relations * _summed(sources, targets, np.ones(len(sources)), shape)
        directed = relations + _summed(sources, targets, self.similarities, shape)
        return _tidy(directed + directed.T)

    def adjacency(self, **settings: Any) -> sparse.csr_array:
        """Symmetric float64 weights of all nodes, entities first: `entity_adjacency`; a passage's edges weigh 1."""
        holds = self.slots.copy()
        holds.data[:] = 1.0
        blocks = [
            [self.entity_adjacency(**settings), holds.T],
            [holds, sparse.csr_array((self.num_passages, self.num_passages))],
        ]
        return _tidy(sparse.block_array(blocks, format="csr"))


@dataclass(frozen=True)
class EntityKnowledge:
    """An entity graph with the vectors of its strings."""

    graph: EntityGraph
    entity_vectors: np.ndarray  # (num_entities, dim) float32 unit rows
    statement_vectors: np.ndarray  # (num_statements, dim) float32 unit rows
    fact_statements: np.ndarray  # (num_facts,) rows, shared within a sentence and head
    is_sentences: bool = False  # relations are sentences, not predicates

    @cached_property
    def statement_facts(self) -> Lists:
        """The facts of each statement, ascending."""
        return Lists.grouped(self.fact_statements, np.arange(len(self.graph.facts)), len(self.statement_vectors))


def build_entity_graph(triples: Sequence[Iterable[Triple]], norm: str = "hipporag") -> EntityGraph:
    """Build the graph, without synonyms, from each passage's triples in corpus order.

    Facts equal after normalisation are one. With `unicode`, a fact whose head or tail has no letter or digit is
    dropped; with `hipporag` such names are one empty entity, as released.
    """
    stated: dict[Triple, dict[int, list[Triple]]] = {}
    for passage, rows in enumerate(triples):
        for head, relation, tail in rows:
            fact = (norm_phrase(head, norm), norm_phrase(relation, norm), norm_phrase(tail, norm))
            if norm != "hipporag" and not (fact[0] and fact[2]):
                continue
            stated.setdefault(fact, {}).setdefault(passage, []).append((head, relation, tail))
    facts = sorted(stated)
    entities = sorted({name for head, _, tail in facts for name in (head, tail)})
    position = {name: i for i, name in enumerate(entities)}
    pairs = [(position[head], position[tail]) for head, _, tail in facts]
    return EntityGraph(
        len(triples),
        tuple(entities),
        tuple(facts),
        np.array(pairs, dtype=np.int32).reshape(-1, 2),
        Lists.of([list(stated[fact]) for fact in facts]),
        np.zeros((0, 2), dtype=np.int32),
        np.zeros(0),
        np.array([len(rows) for fact in facts for rows in stated[fact].values()], dtype=np.int32),
        np.array([len(set(rows)) for fact in facts for rows in stated[fact].values()], dtype=np.int32),
    )


def _summed(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    """Return a CSR matrix in which entries at the same place are summed."""
    return _tidy(sparse.coo_array((values, (rows, columns)), shape=shape).tocsr())


def _tidy(matrix: sparse.csr_array) -> sparse.csr_array:
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix
