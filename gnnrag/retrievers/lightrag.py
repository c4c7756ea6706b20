"""LightRAG: entities by the names in a query, relations by its themes, and the passages behind both."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gnnrag.graphs.rendering import (
    Edges,
    Found,
    Shown,
    above,
    classic_sides,
    current_passages,
    cut,
    distinct,
    merge,
    round_robin,
    seed_edges,
)
from gnnrag.parts import part
from gnnrag.retrievers.base import by_rank, rank_order
from gnnrag.retrievers.keywords import KeywordRetriever
from gnnrag.roles.base import Keywords
from gnnrag.text.tokens import TokenCounter
from gnnrag.types import Query, Ranking

_LOW, _HIGH = ("local", "hybrid", "mix"), ("global", "hybrid", "mix")  # modes that read either kind of keywords
_SHORT = 50  # characters; a shorter query without keywords is its own low-level keyword
_RESERVE = 200  # tokens of the total budget that are never used
_CLASSIC_TOKENS = 4000  # of the passages of either side


@part("retriever", "lightrag")
class LightRAGRetriever(KeywordRetriever):
    """Dual-level retrieval (Guo et al., "LightRAG: Simple and Fast Retrieval-Augmented Generation", EMNLP 2025).

    Channel `text` ranks passages: LightRAG's own in their order, then the rest by cosine (`tail`). Channel `graph`
    ranks entities and relations. Scores are 1 / rank. The branch is the mode, or `naive_fallback` where the graph had
    nothing. Role: `keywords` (mode `naive`: none).

    `fixed`: relations of an entity are ranked by their cosine to the query, not hubs first (Q-LR-3), at most 50 of
    them; relations that were searched for keep that order (Q-LR-1), and are searched by the question and its themes;
    passages are picked by weight, not cosine, and relations may pick what entities have picked; where a mode lacks its
    keywords, those of the other kind or the query take their place. Nothing depends on the order of a set (Q-LR-2).
    """

    # naive, local, global, hybrid (local and global) or mix (hybrid and naive)
    mode: Literal["naive", "local", "global", "hybrid", "mix"] = "mix"
    # current: release 1.5.7; classic: mid-2025, which the forks inherited
    release: Literal["current", "classic"] = "current"
    profile: Literal["fixed", "released"] = "fixed"  # fixed, or released with its quirks Q-LR-1 to Q-LR-3
    top_k: int | None = None  # entities and relations searched for; null: 40, classic 60
    chunk_top_k: int = 20  # passages of the vector search, and of all in the end (current)
    cosine_floor: float = 0.2  # what is less alike is not found
    # keywords, or question (and keywords); null: question, released keywords
    relation_query: Literal["keywords", "question"] | None = None
    # of an entity's relations: degree, cosine; null: cosine, released degree
    relation_rank: Literal["degree", "cosine"] | None = None
    edge_cap: int | None = None  # relations that one entity brings, 0 for all; null: 50, released all
    entity_tokens: int | None = None  # null: 6000, classic 4000
    relation_tokens: int | None = None  # null: 8000, classic 4000
    total_tokens: int = 30000  # of everything (current); the classic release gives each side's passages 4000
    per_item: int = 5  # most passages that one entity or relation gives (current)
    # how these are chosen: vector, weight; null: weight, released vector
    pick: Literal["vector", "weight"] | None = None
    tail: Literal["dense", "none"] = "dense"  # passages after LightRAG's own: by cosine, or none
    tokenizer: str = "estimate"  # what counts tokens, see TokenCounter

    def setup(self) -> None:
        """Open what is searched."""
        super().setup()
        self.asks_keywords = self.mode != "naive"
        self.is_classic, self.is_fixed = self.release == "classic", self.profile == "fixed"
        self._top_k = self.top_k or (60 if self.is_classic else 40)
        self.with_question = (self.relation_query or ("question" if self.is_fixed else "keywords")) == "question"
        self.by_cosine = (self.relation_rank or ("cosine" if self.is_fixed else "degree")) == "cosine"
        self.by_weight = (self.pick or ("weight" if self.is_fixed else "vector")) == "weight"
        self._edge_cap = (50 if self.is_fixed else 0) if self.edge_cap is None else self.edge_cap
        self.tokens = (
            (self.entity_tokens or (4000 if self.is_classic else 6000)),
            (self.relation_tokens or (4000 if self.is_classic else 8000)),
        )
        self.graph, self.vectors = self.index.knowledge, self.index.knowledge_vectors
        self.edges = Edges(self.graph)
        self.shown = Shown(self.edges, self.index.passages, TokenCounter(self.tokenizer), self.is_classic)

    def strings(self, query: str, keywords: Keywords) -> tuple[str, str, str]:
        """See `KeywordRetriever`."""
        mode = self.mode
        low, high = ", ".join(keywords.low), ", ".join(keywords.high)
        has_none = not low and not high
        if has_none and len(query) < _SHORT:
            low = query
        if self.is_fixed and (mode == "local" or has_none):
            low = low or high or query
        if self.is_fixed and (mode == "global" or has_none):
            high = high or low
        if high and self.with_question and not has_none:
            high = f"{query} {high}"
        return query, low if mode in _LOW else "", high if mode in _HIGH else ""

    def rank_one(self, query: Query, vector: np.ndarray, low: np.ndarray | None, high: np.ndarray | None) -> Ranking:
        """See `KeywordRetriever`."""
        cosines = self.index.passage_vectors @ vector
        local, other = self._local(low, vector), self._global(high)
        found = merge(local, other, self.is_classic)
        found = found if self.is_classic else cut(self.shown, found, *self.tokens)
        branch = self.mode if self.mode == "naive" or found.entities else "naive_fallback"
        if query.channel == "graph":
            entities = [self.shown.entity_hit(e) for e in found.entities]
            relations = [hit for edge in found.edges for hit in self.shown.relation_hits(edge)]
            return by_rank(round_robin(entities, relations), query.top_k, branch)
        is_near = self.mode in ("naive", "mix") or branch == "naive_fallback"
        near = above(cosines, self.chunk_top_k, self.cosine_floor) if is_near else []
        if self.is_classic:
            own = distinct([*classic_sides(self.shown, local, other, _CLASSIC_TOKENS), *near])
        else:
            chosen_by = None if self.by_weight else cosines
            own = current_passages(self.shown, found, near, chosen_by, self.per_item, shared=self.is_fixed)
            used = self.shown.tokens(found.entities, found.edges) + self.shown.counter.count(query.text) + _RESERVE
            own = self.shown.fit_passages(own[: self.chunk_top_k], self.total_tokens - used)
        return rank_order(own, self.index.ids, query.top_k, branch, cosines if self.tail == "dense" else None)

    def _local(self, low: np.ndarray | None, query: np.ndarray) -> Found:
        """Entities by the low-level keywords, and their relations."""
        if low is None:
            return Found()
        entities = above(self.vectors.scores("entities", low), self._top_k, self.cosine_floor)
        keys = [self.edges.degree_sums, self.edges.weights]
        if self.by_cosine:
            keys = [self.edges.best(self.vectors.scores("relations", query))]
        return self._side(entities, seed_edges(self.edges, entities, keys, self._edge_cap or None))

    def _global(self, high: np.ndarray | None) -> Found:
        """Relations by the high-level keywords, and their ends."""
        if high is None:
            return Found()
        scores = self.edges.best(self.vectors.scores("relations", high))
        edges = above(scores, self._top_k, self.cosine_floor)
        if self.is_classic and not self.by_cosine:  # Q-LR-1
            edges.sort(key=lambda e: (-self.edges.degree_sums[e], -self.edges.weights[e]))
        return self._side(distinct(self.edges.ends[edges].ravel().tolist()), edges)

    def _side(self, entities: list[int], edges: list[int]) -> Found:
        found = Found(entities, edges)
        return cut(self.shown, found, *self.tokens) if self.is_classic else found
