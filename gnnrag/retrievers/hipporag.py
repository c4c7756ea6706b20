"""HippoRAG 1: the names of a query seed a PageRank over entities, which is lifted to passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from gnnrag.graphs.linking import link_question
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.index.index import Index
from gnnrag.retrievers.base import min_max, rank_passages
from gnnrag.text.normphrase import norm_phrase
from gnnrag.types import Query, Ranking

_TOLERANCE = 1e-10


@dataclass
class HippoRAGConfig:
    """Constants of `HippoRAGRetriever`; the defaults are those of the published runs."""

    damping: float = 0.5  # probability of following an edge
    relation_factor: float = 2.0  # weight of a relation edge by its count; 1 undoes the released doubling
    synonym_factor: float = 2.0  # weight of a synonym edge by its cosine
    syn_overwrites: bool = True  # a synonym edge replaces the relation edge of its pair


class HippoRAGRetriever:
    """Personalised PageRank over entities alone (Gutiérrez et al., NeurIPS 2024).

    Each name in the query is linked to the entity nearest to it, which is seeded the more the fewer passages know it. A
    passage scores the sum of its facts' entities, once for each fact, scaled to [0, 1] over the corpus. The release
    finds names with a language model; here they are what the corpus calls things (`graphs.linking`). A query without
    names falls back to dense search, flagged by the branch `dense_fallback`; the release ranks it at random.

    Args:
        index: an opened index; `ids`, `entity_graph`, `embedder`, `dense_scores`, `hierarchy` and `titles` are used.
        config: constants.
    """

    channels = frozenset({"text"})
    stages = ("entity_graph", "embeddings", "hierarchy")
    config_class = HippoRAGConfig

    def __init__(self, index: Index, config: HippoRAGConfig | None = None) -> None:
        c = config or HippoRAGConfig()
        self._index, self._knowledge = index, index.entity_graph
        self._graph = self._knowledge.graph
        adjacency = self._graph.entity_adjacency(c.relation_factor, c.synonym_factor, c.syn_overwrites)
        self._walk = PageRankOperator(adjacency, c.damping)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query, with scores in [0, 1]."""
        linked = [self.link(query.text) for query in queries]
        walks = [i for i, entities in enumerate(linked) if entities]
        scores: dict[int, np.ndarray] = {}
        if walks:
            columns = [self._reset(linked[i]) for i in walks]
            mass = self._walk.solve(sparse.hstack(columns, format="csc"), _TOLERANCE)
            scores = {i: min_max(s) for i, s in zip(walks, (self._graph.slots @ mass).T, strict=True)}
        rest = [i for i in range(len(queries)) if i not in scores]
        dense = self._index.dense_scores([queries[i].text for i in rest]) if rest else ()
        scores |= {i: min_max(row) for i, row in zip(rest, dense, strict=True)}
        branches = ["ppr" if entities else "dense_fallback" for entities in linked]
        rows = zip(queries, branches, strict=True)
        return [rank_passages(scores[i], self._index.ids, q.top_k, branch) for i, (q, branch) in enumerate(rows)]

    def link(self, text: str) -> list[int]:
        """Return the entities that a query names, in order, as positions in the graph."""
        if not self._graph.num_entities:
            return []
        norm = self._index.config.graph.norm
        found = [
            norm_phrase(name.key, norm) for name in link_question(text, self._index.hierarchy, self._index.titles).names
        ]
        names = [name for name in dict.fromkeys(found) if name]
        others = [name for name in names if name not in self._graph.position]
        rows = self._index.embedder.encode(others) if others else ()
        nearest = {n: int(np.argmax(self._knowledge.entity_vectors @ v)) for n, v in zip(others, rows, strict=True)}
        return list(dict.fromkeys(self._graph.position.get(n, nearest.get(n, 0)) for n in names))

    def _reset(self, entities: Sequence[int]) -> sparse.csc_array:
        """Return the reset of one query: each entity weighs one over its passages. Shape (num_entities, 1)."""
        weights = 1.0 / self._graph.passages_with[list(entities)]
        shape = (self._graph.num_entities, 1)
        return sparse.csc_array((weights, (entities, np.zeros(len(entities), dtype=np.int64))), shape=shape)
