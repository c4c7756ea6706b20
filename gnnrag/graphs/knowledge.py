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


class Edges:
    """The joined pairs of an undirected multigraph: relations of one pair share an edge, a self-loop has none.

    Attributes:
        stated: (num_relations, 2) int32, head and tail of each relation.
        ends: (num_edges, 2) int32, smaller position first, sorted.
        of: (num_relations,) int32, edge of each relation, -1 for none.
        relations: relations of each edge, ascending.
        incident, neighbours: edges of each node, ascending, and the nodes at their other ends, ascending.
        degrees: (num_nodes,) int64, how many these are.
    """

    def __init__(self, stated: np.ndarray, num_nodes: int) -> None:
        self.stated, self.num_nodes = np.asarray(stated, dtype=np.int32), num_nodes
        rows = np.flatnonzero(self.stated[:, 0] != self.stated[:, 1])
        low, high = np.sort(self.stated[rows], axis=1).astype(np.int64).T
        pairs, of = np.unique(low * max(num_nodes, 1) + high, return_inverse=True)
        self.ends = np.stack(np.divmod(pairs, max(num_nodes, 1)), axis=1).astype(np.int32)
        self.of = np.full(len(self.stated), -1, dtype=np.int32)
        self.of[rows] = of
        self.relations = Lists.grouped(of, rows, len(self))
        self.incident = Lists.grouped(self.ends.T.ravel(), np.tile(np.arange(len(self)), 2), num_nodes)
        self.neighbours = Lists.grouped(self.ends.T.ravel(), self.ends[:, ::-1].T.ravel(), num_nodes)
        self.degrees = self.neighbours.sizes

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def degree_sums(self) -> np.ndarray:
        """Sum of the degrees of both ends. Shape (num_edges,), int64."""
        return self.degrees[self.ends].sum(axis=1)

    def best(self, scores: np.ndarray) -> np.ndarray:
        """Return the best score of each edge's relations. Shape (num_edges,) from (num_relations,)."""
        if not len(self):
            return np.zeros(0)
        return np.maximum.reduceat(np.asarray(scores)[self.relations.values], self.relations.indptr[:-1])

    def between(self, node: int, other: int) -> int | None:
        """Return the edge that joins two nodes, None where there is none."""
        at = int(np.searchsorted(near := self.neighbours[node], other))
        # The edges of a node ascend like its neighbours: first those to smaller ones, then those to larger ones.
        return int(self.incident[node][at]) if at < len(near) and near[at] == other else None

    def relations_between(self, node: int, other: int) -> list[int]:
        """Return the rows of all relations that join two nodes, either way round, by row."""
        edge = self.between(node, other)
        return [] if edge is None else self.relations[edge].tolist()


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
    def edges(self) -> Edges:
        """Joined pairs of entities, as LightRAG stores edges."""
        return Edges(self.ends, self.num_entities)

    @cached_property
    def edge_weights(self) -> np.ndarray:
        """Summed weights of each edge's relations. Shape (num_edges,), float64."""
        is_joined = self.edges.of >= 0
        return np.bincount(self.edges.of[is_joined], self.weights[is_joined], len(self.edges))

    @cached_property
    def edge_passages(self) -> Lists:
        """Passages that state any relation of each edge, ascending."""
        stated = self.relation_passages.matrix(self.num_passages)
        return Lists.of_matrix(self.edges.relations.matrix(self.num_relations) @ stated)

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
            label, text, name = self.labels[i], self.texts[i], self.names[head]
            said = [label, name, self.names[tail], text] if label else [name, text]
            relations.append("\n".join(said) if text else self.statement(i))
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
