"""HyperGraphRAG's bipartite graph: entities, and the n-ary facts (hyperedges) that they take part in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.graphs.hyperedges import FULL_IMPORTANCE, FULL_SCORE
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.picking import distinct, gathered


@dataclass(frozen=True)
class Side:
    """What one side of the search found: positions of entities, hyperedges and passages, best first."""

    entities: Sequence[int] = ()
    facts: Sequence[int] = ()
    passages: Sequence[int] = ()


class Bipartite:
    """Degrees and confidences of entities and hyperedges.

    Attributes:
        degrees: hyperedges of each entity. Shape (num_entities,), int64.
        sizes: members of each hyperedge. Shape (num_hyperedges,), int64.
        fact_confidence, entity_confidence: in [0, 1]: mean completeness of a hyperedge over the passages that state it,
            mean importance of an entity over its hyperedges and their passages. Shapes (num_hyperedges,) and
            (num_entities,), float64.
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        self.degrees, self.sizes = graph.entity_hyperedges.sizes, graph.hyper_members.sizes
        stated = graph.hyper_passages.sizes
        self.fact_confidence = np.clip(graph.hyper_scores / np.maximum(stated, 1) / FULL_SCORE, 0.0, 1.0)
        members, times = graph.hyper_members.values, np.repeat(stated, self.sizes)
        total = np.bincount(members, weights=graph.hyper_importance, minlength=graph.num_entities)
        count = np.bincount(members, weights=times, minlength=graph.num_entities)
        self.entity_confidence = np.clip(total / np.maximum(count, 1) / FULL_IMPORTANCE, 0.0, 1.0)

    def incident(self, entities: Sequence[int]) -> list[int]:
        """Return the hyperedges of entities, each once, by the degrees of both ends of an incidence, then its weight.

        A hyperedge that several entities bring stands where its best incidence does; ties in the order of entities.
        """
        rows = np.asarray(entities, dtype=np.int64)
        facts = gathered(self.graph.entity_hyperedges, rows)
        owners = np.repeat(rows, self.degrees[rows])
        order = np.lexsort((-self._weights(owners, facts), -(self.degrees[owners] + self.sizes[facts])))
        return distinct(facts[order].tolist())

    def members(self, facts: Sequence[int]) -> list[int]:
        """Return the entities of hyperedges, in first-seen order."""
        return distinct(gathered(self.graph.hyper_members, np.asarray(facts, dtype=np.int64)).tolist())

    def _weights(self, owners: np.ndarray, facts: np.ndarray) -> np.ndarray:
        """Return the importance of entities in their hyperedges. Shape (len(facts),)."""
        members, starts = self.graph.hyper_members, self.graph.hyper_members.indptr[facts]
        found = np.zeros(len(facts))
        for place in range(int(self.sizes[facts].max(initial=0))):
            rows = np.flatnonzero(self.sizes[facts] > place)
            hit = rows[members.values[starts[rows] + place] == owners[rows]]
            found[hit] = self.graph.hyper_importance[starts[hit] + place]
        return found
