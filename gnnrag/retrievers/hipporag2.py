"""HippoRAG 2: facts near the query seed a PageRank over entities and passages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.errors import ConfigError
from gnnrag.graphs.entities import Triple
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.index.index import Index
from gnnrag.retrievers.base import best_positions, min_max, rank_passages
from gnnrag.types import Query, Ranking

_TOLERANCE = 1e-10
# The recognition memory: queries and their candidate facts to the positions of those to keep, in order of use.
FactFilter = Callable[[Sequence[str], Sequence[Sequence[Triple]]], list[list[int]]]


@dataclass
class HippoRAG2Config:
    """Constants of `HippoRAG2Retriever`; the defaults are the released ones."""

    damping: float = 0.5  # probability of following an edge
    passage_weight: float = 0.05  # seed mass of the passage that dense search likes best
    facts_k: int = 5  # candidate facts of a query
    seeds_k: int = 5  # entities that are seeded
    phrase_agg: str = "mean"  # an entity of several kept facts takes their mean, or the last (before June 2025)
    fallback_policy: str = "minmax"  # no seeds; minmax: dense scores in [0, 1]; same_scale: PageRank from passages
    relation_factor: float = 2.0  # weight of a relation edge by its count; 1 undoes the released doubling
    synonym_factor: float = 2.0  # weight of a synonym edge by its cosine
    syn_overwrites: bool = True  # a synonym edge replaces the relation edge of its pair


@dataclass(frozen=True)
class Seeds:
    """What a query was linked to.

    Attributes:
        facts: kept facts in order, as positions in the graph, with their scores in [0, 1].
        entities: seeded entities, as positions in the graph, with their weights; best first.
    """

    facts: tuple[tuple[int, float], ...] = ()
    entities: tuple[tuple[int, float], ...] = ()


class HippoRAG2Retriever:
    """Personalised PageRank over entities and passages (Gutiérrez et al., "From RAG to Memory", ICML 2025).

    The reset holds the entities of the facts nearest to the query, each weighed against how many passages know it, and
    every passage by its dense score. A query without seeds falls back to dense search; its ranking then has the branch
    `dense_fallback`, else `ppr`.

    Args:
        index: an opened index; `ids`, `entity_graph`, `embedder` and `dense_scores` are used.
        config: constants.
        fact_filter: chooses among the candidate facts; None keeps all.

    Raises:
        ConfigError: an unknown `phrase_agg` or `fallback_policy`.
    """

    channels = frozenset({"text"})
    stages = ("entity_graph", "embeddings")
    config_class = HippoRAG2Config

    def __init__(
        self, index: Index, config: HippoRAG2Config | None = None, fact_filter: FactFilter | None = None
    ) -> None:
        c = config or HippoRAG2Config()
        for name, allowed in (("phrase_agg", ("mean", "last")), ("fallback_policy", ("minmax", "same_scale"))):
            if getattr(c, name) not in allowed:
                raise ConfigError(f"retriever.{name}={getattr(c, name)!r}: allowed are {', '.join(allowed)}")
        if c.fallback_policy == "same_scale" and c.passage_weight <= 0:
            raise ConfigError("retriever.fallback_policy=same_scale needs retriever.passage_weight above 0")
        self._index, self._config, self._filter = index, c, fact_filter
        self._knowledge = index.entity_graph
        self._graph = self._knowledge.graph
        adjacency = self._graph.adjacency(c.relation_factor, c.synonym_factor, c.syn_overwrites)
        self._walk = PageRankOperator(adjacency, c.damping)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query; scores are PageRank values, or dense scores in a fallback."""
        if not queries:
            return []
        texts = [query.text for query in queries]
        scores = [min_max(row) for row in self._index.dense_scores(texts)]
        linked = self.link(texts)
        walks = [i for i, seeds in enumerate(linked) if seeds.entities or self._config.fallback_policy == "same_scale"]
        if walks:
            reset = np.stack([self._reset(linked[i], scores[i]) for i in walks], axis=1)
            solved = self._walk.solve(reset, _TOLERANCE, rows=slice(self._graph.num_entities, reset.shape[0]))
            for i, column in zip(walks, solved.T, strict=True):
                scores[i] = column
        branches = ["ppr" if seeds.entities else "dense_fallback" for seeds in linked]
        rows = zip(queries, scores, branches, strict=True)
        return [rank_passages(s, self._index.ids, q.top_k, branch) for q, s, branch in rows]

    def link(self, texts: Sequence[str]) -> list[Seeds]:
        """Return each query's facts and seeds; nothing where the index has no facts or the filter keeps none."""
        vectors = self._knowledge.fact_vectors
        if not len(vectors) or not texts:
            return [Seeds() for _ in texts]
        # One product a query: the rounding of a matrix-matrix product depends on the batch.
        scores = [min_max(vectors @ v) for v in self._index.embedder.encode(texts, is_query=True)]
        candidates = [best_positions(row, self._config.facts_k).tolist() for row in scores]
        kept = candidates
        if self._filter is not None:
            chosen = self._filter(texts, [[self._graph.facts[f] for f in facts] for facts in candidates])
            rows = zip(candidates, chosen, strict=True)
            kept = [list(dict.fromkeys(facts[i] for i in keep)) for facts, keep in rows]
        return [self._seeds([(f, float(row[f])) for f in facts]) for facts, row in zip(kept, scores, strict=True)]

    def _seeds(self, facts: list[tuple[int, float]]) -> Seeds:
        """Weigh the entities of a query's kept facts."""
        shares: defaultdict[int, list[float]] = defaultdict(list)
        for fact, score in facts:
            for entity in self._graph.fact_entities[fact].tolist():
                shares[entity].append(score / int(self._graph.passages_with[entity]))
        is_mean = self._config.phrase_agg == "mean"
        weights = {e: sum(row) / len(row) if is_mean else row[-1] for e, row in shares.items()}
        best = sorted(weights.items(), key=lambda item: (-item[1], item[0]))[: self._config.seeds_k]
        return Seeds(tuple(facts), tuple((entity, weight) for entity, weight in best if weight > 0))

    def _reset(self, seeds: Seeds, dense: np.ndarray) -> np.ndarray:
        """Return the reset of one query. Shape (num_entities + num_passages,), float64."""
        reset = np.zeros(self._graph.num_entities + self._graph.num_passages)
        reset[self._graph.num_entities :] = self._config.passage_weight * dense
        for entity, weight in seeds.entities:
            reset[entity] = weight
        return reset
