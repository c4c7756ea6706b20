"""The knowledge graph of extracted triples (LightRAG family, GraphRAG, DotRAG): entities, relations, sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from gnnrag.arrays import Lists

Table = Literal["entities", "names", "relations", "hyperedges"]
TABLES: tuple[Table, ...] = ("entities", "names", "relations", "hyperedges")


class Adjacency:
    """An undirected multigraph in compressed rows: slots sorted by node, then neighbour, then relation.

    Parallel relations are slots of their own.
    `ends` (num_relations, 2) is kept as stated, int32; self-loops have no slots.

    Attributes:
        indptr: (num_nodes + 1,) int64, first slot of each node.
        neighbours, relations: (num_slots,) int32, the other end and the row in `ends`.
        distinct: distinct neighbours of each node, ascending; `degree` (num_nodes,) int64 counts them.
    """

    def __init__(self, ends: np.ndarray, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.ends = np.asarray(ends, dtype=np.int32)
        rows = np.flatnonzero(self.ends[:, 0] != self.ends[:, 1]).astype(np.int32)
        heads, tails = self.ends[rows].T
        owners, others = np.concatenate([heads, tails]), np.concatenate([tails, heads])
        relations = np.concatenate([rows, rows])
        order = np.lexsort((relations, others, owners))
        owners, self.neighbours, self.relations = owners[order], others[order], relations[order]
        self.indptr = np.searchsorted(owners, np.arange(num_nodes + 1))
        is_first = np.ones(len(owners), dtype=bool)
        is_first[1:] = (owners[1:] != owners[:-1]) | (self.neighbours[1:] != self.neighbours[:-1])
        self.distinct = Lists.grouped(owners[is_first], self.neighbours[is_first], num_nodes)
        self.degree = self.distinct.sizes

    def relations_between(self, node: int, other: int) -> np.ndarray:
        """Return the rows of all relations that join two nodes, either way round, by row. Shape (n,), int32."""
        start, stop = self.indptr[node], self.indptr[node + 1]
        low, high = np.searchsorted(self.neighbours[start:stop], [other, other + 1])
        return self.relations[start + low : start + high]


@dataclass(frozen=True)
class KnowledgeGraph:
    """Entities, relations and hyperedges of a corpus; arrays hold positions."""

    num_passages: int  # with and without entities
    names: Sequence[str]  # (num_entities,) distinct display names, sorted by case-folded name; they serve as ids
    types: Sequence[str]  # several are joined by "|"; empty where unknown
    descriptions: Sequence[str]  # empty where nothing is said
    aliases: Sequence[Sequence[str]]  # other spellings of each entity
    entity_passages: Lists  # passages that mention each entity, ascending
    ends: np.ndarray  # (num_relations, 2) int32, head and tail as stated; relations of one pair stay apart
    labels: Sequence[str]  # predicate or keywords; empty where the description says it all
    texts: Sequence[str]  # descriptions of relations
    weights: np.ndarray  # (num_relations,) float64, summed strengths of what was merged
    relation_passages: Lists  # passages that state each relation, ascending
    hyper_texts: Sequence[str]  # (num_hyperedges,) sentences of n-ary facts
    hyper_scores: np.ndarray  # (num_hyperedges,) summed completeness
    hyper_members: Lists  # entities of each hyperedge, in order of mention
    hyper_importance: np.ndarray  # of the values of `hyper_members`
    hyper_passages: Lists  # passages that state each hyperedge, ascending

    @property
    def num_entities(self) -> int:
        return len(self.names)

    @property
    def num_relations(self) -> int:
        return len(self.ends)

    @cached_property
    def position(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def incident(self) -> Lists:
        """Relations of each entity, ascending; a relation of a thing with itself is left out."""
        rows = np.flatnonzero(self.ends[:, 0] != self.ends[:, 1])
        return Lists.grouped(self.ends[rows].T.ravel(), np.concatenate([rows, rows]), self.num_entities)

    @cached_property
    def adjacency(self) -> Adjacency:
        """The graph to grow neighbourhoods and to search paths in; its relations are rows of `ends`."""
        return Adjacency(self.ends, self.num_entities)

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distinct joined pairs, as LightRAG stores edges.

        Returns (num_pairs, 2) int32, smaller position first, sorted; (num_relations,) int32, the pair of each relation,
        -1 for a self-loop; (num_pairs,) float64 summed weights.
        """
        low, high = self.ends.min(axis=1, initial=2**31 - 1), self.ends.max(axis=1, initial=-1)
        proper = low != high
        keys = low.astype(np.int64) * max(self.num_entities, 1) + high
        distinct, inverse = np.unique(keys[proper], return_inverse=True)
        of = np.full(self.num_relations, -1, dtype=np.int32)
        of[proper] = inverse
        ends = np.stack(np.divmod(distinct, max(self.num_entities, 1)), axis=1).astype(np.int32)
        return ends, of, np.bincount(inverse, weights=self.weights[proper], minlength=len(distinct))

    @property
    def degrees(self) -> np.ndarray:
        """Number of distinct neighbours of each entity. Shape (num_entities,), int64."""
        return self.adjacency.degree

    @property
    def neighbours(self) -> Lists:
        """Distinct neighbours of each entity, ascending."""
        return self.adjacency.distinct

    @cached_property
    def passage_entities(self) -> Lists:
        """Entities of each passage, ascending."""
        return self.entity_passages.transposed(self.num_passages)

    @cached_property
    def entity_hyperedges(self) -> Lists:
        """Hyperedges of each entity, ascending."""
        return self.hyper_members.transposed(self.num_entities)

    def statement(self, relation: int) -> str:
        """Return a relation as text: its description, or head, label and tail."""
        if self.texts[relation]:
            return self.texts[relation]
        head, tail = self.ends[relation]
        return f"{self.names[head]} {self.labels[relation].replace('_', ' ')} {self.names[tail]}"

    def relation_id(self, relation: int) -> str:
        """Return a relation's id: head, label or description, tail."""
        head, tail = self.ends[relation]
        return f"{self.names[head]} | {self.labels[relation] or self.texts[relation]} | {self.names[tail]}"

    def embedded_texts(self) -> dict[Table, list[str]]:
        """Return what is embedded of each item.

        An entity: name and description, a line each. A relation: keywords, ends and description (LightRAG); where it
        has no description, head, predicate and tail; where the description is a sentence that joins many, its head and
        the sentence, so that relations of one sentence share a vector. A hyperedge: its sentence.
        """
        relations = []
        for i, (head, tail) in enumerate(self.ends.tolist()):
            label, text = self.labels[i], self.texts[i]
            if label and text:
                relations.append(f"{label}\n{self.names[head]}\n{self.names[tail]}\n{text}")
            else:
                relations.append(f"{self.names[head]}\n{text}" if text else self.statement(i))
        described = zip(self.names, self.descriptions, strict=True)
        return {
            "entities": [f"{name}\n{text}" if text else name for name, text in described],
            "names": list(self.names),
            "relations": relations,
            "hyperedges": list(self.hyper_texts),
        }


@dataclass(frozen=True)
class KnowledgeVectors:
    """Vectors of the knowledge graph's texts; equal texts share one."""

    matrix: np.ndarray  # (num_strings, dim) float32 unit rows, stored as float16
    rows: Lists  # for each of `TABLES`, the row of each item

    def scores(self, table: Table, vector: np.ndarray) -> np.ndarray:
        """Cosine of a query vector (dim,) and every item of a table. Shape (num_items,), float32."""
        rows = self.rows[TABLES.index(table)]
        if not len(rows):
            return np.zeros(0, dtype=np.float32)
        first, last = int(rows.min()), int(rows.max()) + 1
        return (self.matrix[first:last] @ vector)[rows - first]
