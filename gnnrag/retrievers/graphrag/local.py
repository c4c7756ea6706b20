"""GraphRAG's local search: entities near the query, and around them communities, relations and passages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.llm.base import estimate_tokens
from gnnrag.retrievers.base import Retriever, best_positions, by_rank, rank_passages
from gnnrag.retrievers.graphrag.reports import ReportView, local_order, split_budget
from gnnrag.types import Query, Ranking

PROFILES = ("released", "fixed", "nano")
_NANO = (3200, 4800, 4000)  # tokens of reports, relations and passages in nano-graphrag


@dataclass
class GraphRAGLocalConfig:
    """Constants of `GraphRAGLocalRetriever`; the defaults are those of Microsoft GraphRAG 3.1.2."""

    profile: str = "fixed"  # released: twice as many entities as asked for; nano: as nano-graphrag
    entities: int | None = None  # entities taken by their vectors; null: 10, nano 20
    max_tokens: int = 12000  # of everything; nano has budgets of its own
    community_share: float = 0.15  # of it for reports
    text_share: float = 0.5  # of it for passages; the rest is for entities and relations
    out_relations: int = 10  # relations out of the selection, for each selected entity
    max_level: int = 2  # reports up to this level, 0 is coarsest
    stale: str = "flag"  # reports that are out of date: flag or drop


class GraphRAGLocalRetriever(Retriever):
    """Entities by the cosine of query and description, then what the graph knows around them (arXiv 2404.16130).

    Passages come by (order of the entity, number of its relations that the passage states). Without a single one, dense
    search takes over (branch `dense_fallback`). Graph hits are the selected entities, the reports of their communities
    and their relations, in this order. Scores are 1 / rank. ConfigError for an unknown profile, shares that leave
    nothing, or `entities` below 1.
    """

    channels = frozenset({"text", "graph"})
    stages = ("knowledge", "knowledge_vectors", "communities", "reports", "embeddings")
    config_class = GraphRAGLocalConfig

    def __init__(self, index: Index, config: GraphRAGLocalConfig | None = None) -> None:
        self.config = c = config or GraphRAGLocalConfig()
        if c.profile not in PROFILES:
            raise ConfigError(f"retriever.profile={c.profile!r}: allowed are {', '.join(PROFILES)}")
        if min(c.community_share, c.text_share) < 0 or c.community_share + c.text_share > 1:
            raise ConfigError(
                f"retriever.community_share={c.community_share} and text_share={c.text_share} must be shares of 1"
            )
        wanted = c.entities if c.entities is not None else 20 if c.profile == "nano" else 10
        if wanted < 1:
            raise ConfigError(f"retriever.entities={wanted}: must be at least 1")
        self.count = 2 * wanted if c.profile == "released" else wanted
        self.index, self.graph, self.vectors = index, index.knowledge, index.knowledge_vectors
        self.view = ReportView(index, c.stale)
        self.rank = self.graph.degrees[self.graph.ends].sum(axis=1)
        budget = split_budget(c.max_tokens, c.community_share, c.text_share)
        self.report_tokens, self.table_tokens, self.text_tokens = _NANO if c.profile == "nano" else budget
        self._of_entity = self.view.communities.of_entities(self.graph.num_entities)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`."""
        texts = [query.text for query in queries if query.text.strip()]
        vectors = iter(self.index.embedder.encode(texts, is_query=True) if texts else ())
        return [self._rank(query, next(vectors) if query.text.strip() else None) for query in queries]

    def _rank(self, query: Query, vector: np.ndarray | None) -> Ranking:
        entities = self.select(vector)
        if query.channel == "graph":
            return self._graph_ranking(query, entities)
        passages = self.passages(entities)
        if not passages and vector is not None:
            return rank_passages(self.index.passage_vectors @ vector, self.index.ids, query.top_k, "dense_fallback")
        ids = tuple(self.index.ids[p] for p in passages[: query.top_k])
        return Ranking(ids, 1.0 / np.arange(1, len(ids) + 1), branch="graphrag_local")

    def _graph_ranking(self, query: Query, entities: Sequence[int]) -> Ranking:
        (kept, relations), reports = self.table(entities), self.reports(entities)
        hits = [self.view.entity_hit(e, self._of_one(e)) for e in kept]
        hits += [self.view.hit(i) for i in reports]
        hits += [self.view.relation_hit(r) for r in relations]
        return by_rank(hits, query.top_k, self.view.branch("graphrag_local", reports))

    def select(self, vector: np.ndarray | None) -> list[int]:
        """Return the entities nearest to a query vector (dim,), best first; without one, those of highest degree."""
        scores = self.graph.degrees.astype(np.float64) if vector is None else self.vectors.scores("entities", vector)
        return best_positions(scores, self.count).tolist()

    def reports(self, entities: Sequence[int]) -> list[int]:
        """Return the communities of the entities by (how many of them they hold, rating), as far as reports fit."""
        matches = Counter(i for e in entities for i in self._of_entity[e].tolist())
        found = [i for i in sorted(matches) if self.view.communities.levels[i] <= self.config.max_level]
        found = self.view.usable(found)
        order = local_order([matches[i] for i in found], [float(self.view.ratings[i]) for i in found])
        return self._that_fit([found[n] for n in order], [self.view.text(found[n]) for n in order], self.report_tokens)

    def table(self, entities: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the entities and the relations of the local table.

        Entities may fill it; relations of the first one, two, ... are added until they overflow (the step before
        stands). Nano-graphrag takes all relations by (degrees, weight), as far as they fit.
        """
        g = self.graph
        if self.config.profile == "nano":
            near = np.unique(np.concatenate([g.incident[e] for e in entities] or [np.zeros(0, np.int64)]))
            ranked = near[np.lexsort((near, -g.weights[near], -self.rank[near]))].tolist()
            return list(entities), self._that_fit(ranked, [g.statement(r) for r in ranked], self.table_tokens)
        kept = self._that_fit(list(entities), [self.view.entity_text(e) for e in entities], self.table_tokens)
        left = self.table_tokens - sum(estimate_tokens(self.view.entity_text(e)) for e in kept)
        table: list[int] = []
        for count in range(1, len(kept) + 1):
            relations = self.relations(kept[:count])
            if sum(estimate_tokens(g.statement(r)) for r in relations) > left:
                break
            table = relations
        return kept, table

    def relations(self, selected: Sequence[int]) -> list[int]:
        """Return relations inside the selection by rank (sum of degrees), then some out of it by (links, rank)."""
        g = self.graph
        chosen = np.zeros(g.num_entities, dtype=bool)
        chosen[list(selected)] = True
        near = np.unique(np.concatenate([g.incident[e] for e in selected]))
        ends = g.ends[near]
        inside = chosen[ends].all(axis=1)
        own, out = near[inside], near[~inside]
        outer = np.where(chosen[g.ends[out, 0]], g.ends[out, 1], g.ends[out, 0])
        inner = np.where(chosen[g.ends[out, 0]], g.ends[out, 0], g.ends[out, 1])
        joined = np.unique(np.stack([outer, inner], axis=1), axis=0)[:, 0]
        links = np.bincount(joined, minlength=g.num_entities)[outer]
        own = own[np.lexsort((own, -self.rank[own]))]
        out = out[np.lexsort((out, -self.rank[out], -links))][: self.config.out_relations * len(selected)]
        return [*own.tolist(), *out.tolist()]

    def passages(self, entities: Sequence[int]) -> list[int]:
        """Return the passages of the entities by (order of the entity, relations stated), as far as they fit."""
        found = list(dict.fromkeys(p for e in entities for p in self._of_one(e)))
        texts = [self.index.passages[p].content for p in found]
        return self._that_fit(found, texts, self.text_tokens)

    def _of_one(self, entity: int) -> list[int]:
        """Return an entity's passages, those that state most of its relations first; ties by corpus order."""
        stated = Counter(
            p for r in self.graph.incident[entity].tolist() for p in self.graph.relation_passages[r].tolist()
        )
        return sorted(self.graph.entity_passages[entity].tolist(), key=lambda p: (-stated[p], p))

    @staticmethod
    def _that_fit(items: list[int], texts: Sequence[str], budget: int) -> list[int]:
        """Return the first items whose texts fit together; the first one in any case."""
        used = np.cumsum([estimate_tokens(text) for text in texts])
        return items[: max(1, int((used <= budget).sum()))]
