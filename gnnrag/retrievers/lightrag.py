"""LightRAG: entities by the names in a query, relations by its themes, and the passages behind both."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from gnnrag.graphs.rendering import (
    GraphHits,
    above,
    current_passages,
    cut,
    distinct,
    merge,
    round_robin,
    seed_edges,
)
from gnnrag.parts import part
from gnnrag.retrievers.base import rank_hits_in_order
from gnnrag.retrievers.knowledge import KnowledgeGraphRetriever
from gnnrag.roles.base import Keywords, KeywordsTask
from gnnrag.types import Query, Ranking

_LOW, _HIGH = ("local", "hybrid", "mix"), ("global", "hybrid", "mix")  # modes that read either kind of keywords
_SHORT = 50  # characters; a shorter query without keywords is its own low-level keyword
_RESERVE = 200  # tokens of the total budget that are never used
_PROMPT = 900  # tokens of the total that the released instructions to the reader take, at four characters each
_EDGES = 50  # relations that one entity brings in `fixed`


@part("retriever", "lightrag")
class LightRAGRetriever(KnowledgeGraphRetriever):
    """Dual-level retrieval (Guo et al., "LightRAG: Simple and Fast Retrieval-Augmented Generation", EMNLP 2025).

    Channel `text` ranks passages: LightRAG's own in their order, then the rest by cosine (`tail`). Channel `graph`
    ranks entities and relations. Scores are 1 / rank. The branch is the mode, or `naive_fallback` where the graph had
    nothing. Role: `keywords` (mode `naive`: none).

    `profile=released` is release 1.5.7. `fixed` differs from it in these points:
    - Relations of an entity are ranked by their cosine to the query, not hubs first, and at most 50 are kept.
    - Relations are searched by the question and its themes.
    - The instructions to the reader take nothing of `total_tokens`.
    - Graph hits alternate; released, entities and then edges are rows of a table, as its reader sees them.
    - Passages are picked by weight, not cosine; relations may pick passages that entities have picked.
    - Where a mode lacks its keywords, those of the other kind or the query take their place.
    """

    # naive, local, global, hybrid (local and global) or mix (hybrid and naive)
    mode: Literal["naive", "local", "global", "hybrid", "mix"] = "mix"
    profile: Literal["fixed", "released"] = "fixed"
    top_k: int = 40  # entities and relations searched for
    chunk_top_k: int = 20  # passages of the vector search, and of all in the end
    entity_tokens: int = 6000
    relation_tokens: int = 8000
    total_tokens: int = 30000
    per_item: int = 5  # most passages that one entity or relation gives

    task_type, is_fork = KeywordsTask, False

    @property
    def role_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Mode `naive` asks nothing."""
        return () if self.mode == "naive" else ("keywords",)

    def setup(self) -> None:
        super().setup()
        self.is_fixed = self.profile == "fixed"

    def search_texts(self, query: str, reply: Keywords | None) -> tuple[str, str]:
        """Return what entities and relations are searched by."""
        reply = reply or Keywords()
        low, high = ", ".join(reply.low), ", ".join(reply.high)
        has_none = not low and not high
        if has_none and len(query) < _SHORT:
            low = query
        if self.is_fixed and (self.mode == "local" or has_none):
            low = low or high or query
        if self.is_fixed and (self.mode == "global" or has_none):
            high = high or low
        if self.is_fixed and high and not has_none:
            high = f"{query} {high}"
        return low if self.mode in _LOW else "", high if self.mode in _HIGH else ""

    def rank_one(
        self, query: Query, reply: Keywords | None, vector: np.ndarray, low: np.ndarray | None, high: np.ndarray | None
    ) -> Ranking:
        cosines, mask = self.index.passage_vectors @ vector, self.mask(query)
        hits = merge(self._local(low, vector, mask), self._global(high, mask))
        hits = cut(self.shown, hits, self.entity_tokens, self.relation_tokens)
        branch = self.mode if self.mode == "naive" or hits.entities else "naive_fallback"
        if query.channel == "graph":
            entities = [self.shown.entity_hit(e) for e in hits.entities]
            relations = [self.shown.relation_hits(edge) for edge in hits.edges]
            if self.is_fixed:
                shown = round_robin(entities, [hit for rows in relations for hit in rows])
            else:  # rows of two tables, as the reader of the release sees them
                shown = [
                    replace(h, text=self.shown.entity_row(e)) for e, h in zip(hits.entities, entities, strict=True)
                ]
                for edge, rows in zip(hits.edges, relations, strict=True):
                    shown += [
                        replace(rows[0], text=self.shown.edge_row(edge)),
                        *(replace(r, text="") for r in rows[1:]),
                    ]
            return rank_hits_in_order(shown, query.top_k, branch, self.passes(query))
        is_near = self.mode in ("naive", "mix") or branch == "naive_fallback"
        near = above(cosines, self.chunk_top_k, self.cosine_floor) if is_near else []
        chosen_by = None if self.is_fixed else cosines
        own = current_passages(self.shown, hits, near, chosen_by, self.per_item, shared=self.is_fixed)
        used = self.shown.tokens(hits.entities, hits.edges) + self.shown.counter.count(query.text) + _RESERVE
        used += 0 if self.is_fixed else _PROMPT
        own = self.shown.fit_passages(own[: self.chunk_top_k], self.total_tokens - used)
        return self.with_tail(own, query, branch, cosines)

    def _local(self, low: np.ndarray | None, query: np.ndarray, mask: np.ndarray | None) -> GraphHits:
        """Entities by the low-level keywords, and their relations."""
        if low is None:
            return GraphHits()
        entities = above(self.scores("entities", low, mask), self.top_k, self.cosine_floor)
        if self.is_fixed:
            by_cosine = [self.edges.best(self.scores("relations", query, mask))]
            return GraphHits(entities, seed_edges(self.edges, entities, by_cosine, _EDGES))
        return GraphHits(entities, seed_edges(self.edges, entities, [self.edges.degree_sums, self.edges.weights]))

    def _global(self, high: np.ndarray | None, mask: np.ndarray | None) -> GraphHits:
        """Relations by the high-level keywords, and their ends."""
        if high is None:
            return GraphHits()
        scores = self.edges.best(self.scores("relations", high, mask))
        edges = above(scores, self.top_k, self.cosine_floor)
        return GraphHits(distinct(self.edges.ends[edges].ravel().tolist()), edges)
