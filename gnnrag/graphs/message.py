"""The graph that a graph network passes messages on: typed nodes, and edges whose relations have texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnrag.errors import ArtefactError
from gnnrag.graphs.knowledge import Lists


@dataclass(frozen=True)
class MessageGraph:
    """Entities, passages and sentences with relations among them.

    Node ids: entities first, then passages in corpus order, then sentences (GFM-RAG propagates over the entities alone;
    with passages and sentences as nodes, as in G-reasoner, evidence takes part). Edges are stored once, as stated; the
    inverse of relation r is `r + num_relations` and is never stored.

    Attributes:
        entities: (num_entities,) distinct names.
        num_passages: number of passage nodes.
        num_sentences: number of sentence nodes.
        relations: (num_relations,) texts of the relations: predicates, structural names such as `mentions`, or the
            sentences that join two mentions.
        triples: (num_triples, 3) int32 rows (head, relation, tail), distinct and sorted.
        entity_passages: passages (0 .. num_passages - 1, not node ids) that state a fact of each entity, ascending: the
            incidence M of GFM-RAG, and its document frequency.
    """

    entities: Sequence[str]
    num_passages: int
    num_sentences: int
    relations: Sequence[str]
    triples: np.ndarray
    entity_passages: Lists

    @property
    def num_entities(self) -> int:
        """Number of entity nodes."""
        return len(self.entities)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.num_entities + self.num_passages + self.num_sentences

    @property
    def num_relations(self) -> int:
        """Number of relations, inverses not counted."""
        return len(self.relations)

    @property
    def first_passage(self) -> int:
        """Node id of passage 0."""
        return self.num_entities

    @property
    def first_sentence(self) -> int:
        """Node id of sentence 0."""
        return self.num_entities + self.num_passages

    @cached_property
    def position(self) -> dict[str, int]:
        """Name of an entity to its node id."""
        return {name: i for i, name in enumerate(self.entities)}

    @cached_property
    def document_frequency(self) -> np.ndarray:
        """Number of passages that each entity stands in. Shape (num_entities,), int64."""
        return self.entity_passages.sizes

    @cached_property
    def edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Both directions of every triple: sources, relation ids (inverses offset by `num_relations`), targets.

        Each has shape (2 * num_triples,), int64; row i + num_triples is the inverse of row i.
        """
        head, relation, tail = self.triples.T.astype(np.int64)
        return (
            np.concatenate([head, tail]),
            np.concatenate([relation, relation + self.num_relations]),
            np.concatenate([tail, head]),
        )

    def check(self) -> MessageGraph:
        """Return the graph itself. Raises ArtefactError where its arrays and strings do not belong together."""
        shape_fits = self.triples.ndim == 2 and self.triples.shape[1] == 3
        fits = shape_fits and len(self.entity_passages) == self.num_entities and self.entity_passages.is_whole
        if fits and len(self.triples):
            nodes, relations = self.triples[:, [0, 2]], self.triples[:, 1]
            fits = nodes.min() >= 0 and nodes.max() < self.num_nodes
            fits = bool(fits and relations.min() >= 0 and relations.max() < self.num_relations)
        if not fits:
            raise ArtefactError("the message graph's arrays do not fit each other; build the index again")
        return self
