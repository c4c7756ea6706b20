"""The part of a graph of facts around what a question names.

A network that learned on neighbourhoods ranks hubs first on the whole graph: their states are sums over neighbours that
no question reaches. So it answers on neighbourhoods too, as NSM and GNN-RAG do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnrag.gnn.entity import EntityQuestion, EntityQuestions
from gnnrag.gnn.seeds import seed_weight
from gnnrag.gnn.subgraph import Subgraph
from gnnrag.graphs.knowledge import Lists
from gnnrag.graphs.rendering import gathered


@dataclass
class NeighbourhoodConfig:
    """How much of the graph a question about entities sees."""

    hops: int | None = 3  # from the seeds; null: the whole graph, as GFM-RAG
    fan: int = 60  # edges at most by which one node leads on, drawn once for the graph; seeds lead to all neighbours


class Neighbourhoods:
    """Cuts the neighbourhood of each question out of a graph of facts."""

    def __init__(self, source: EntityQuestions, config: NeighbourhoodConfig | None = None) -> None:
        self.source, self.config = source, config or NeighbourhoodConfig()
        edges = np.stack(source.graph.edges)
        self._edges = edges[:, np.lexsort((edges[2], edges[1], edges[0]))]
        first = np.searchsorted(self._edges[0], np.arange(source.graph.num_nodes + 1))
        self._ends = Lists(first, self._edges[2])  # where the edges of each node lead

    def nodes(self, seeds: Sequence[int]) -> np.ndarray:
        """Return the nodes within reach, ascending; a hub leads to a sample of its neighbours, always the same."""
        if self.config.hops is None:
            return np.arange(self.source.graph.num_entities)
        reached = front = np.array(seeds, dtype=np.int64)
        for hop in range(self.config.hops):
            found = np.unique(gathered(self._ends if hop == 0 else self._sampled, front))
            front = np.setdiff1d(found, reached, assume_unique=True)
            reached = np.union1d(reached, front)
        return reached

    @cached_property
    def _sampled(self) -> Lists:
        """Where the edges of each node lead, `fan` of them at most."""
        counts, first = self._ends.sizes, self._ends.indptr
        rank = np.arange(len(self._edges[0])) - first[self._edges[0]]
        for hub in np.flatnonzero(counts > self.config.fan).tolist():
            rank[first[hub] : first[hub + 1]] = np.random.default_rng(hub).permutation(counts[hub])
        kept = np.concatenate([[0], np.cumsum(np.minimum(counts, self.config.fan))])
        return Lists(kept, self._ends.values[rank < self.config.fan])

    def cut(self, found: EntityQuestion, vector: np.ndarray) -> Subgraph:
        """Return what the network sees of a question with an (F,) text vector: all edges among its nodes."""
        nodes = self.nodes(sorted(found.seeds))
        rows = self._ends.places(nodes)
        place = np.minimum(np.searchsorted(nodes, self._edges[2][rows]), max(len(nodes) - 1, 0))
        rows, place = (part[nodes[place] == self._edges[2][rows]] for part in (rows, place))
        relations = np.unique(self._edges[1][rows])
        graph, config, vectors = self.source.graph, self.source.config, self.source.relation_vectors
        seeds = np.zeros(len(nodes), dtype=np.float32)
        for entity, sure in found.seeds.items():
            seeds[np.searchsorted(nodes, entity)] = sure * seed_weight(graph, config, entity)
        return Subgraph(
            nodes=nodes,
            passages=np.full(len(nodes), -1),
            source=np.searchsorted(nodes, self._edges[0][rows]),
            relation=np.searchsorted(relations, self._edges[1][rows]),
            target=place,
            relations=relations,
            relation_vectors=np.asarray(vectors[relations], dtype=np.float32),
            question=vector.astype(np.float32),
            seeds=seeds,
            features=np.zeros((len(nodes), 0), np.float32),
            edge_features=np.zeros((len(rows), 0), np.float32),
            node_vectors=np.zeros((0, vectors.shape[1]), np.float16),
        )
