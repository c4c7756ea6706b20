"""LightRAG: entities by the names in a query, relations by its themes, and the passages behind both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from gnnrag.graphs.knowledge import Edges
from gnnrag.graphs.rendering import GraphHits, Renderer, distinct, round_robin
from gnnrag.parts import part
from gnnrag.retrievers.base import rank_hits_in_order
from gnnrag.retrievers.knowledge import KnowledgeGraphRetriever, above
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
        local, global_ = self._local(low, vector, mask), self._global(high, mask)
        fit = self.shown.fit
        hits = GraphHits(
            fit(round_robin(local.entities, global_.entities), self.shown.entity_row, self.entity_tokens),
            fit(round_robin(local.edges, global_.edges), self.shown.edge_row, self.relation_tokens),
        )
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
        own = fit(own[: self.chunk_top_k], self.shown.passage_row, self.total_tokens - used)
        return self.with_tail(own, query, branch, cosines)

    def _local(self, low: np.ndarray | None, query: np.ndarray, mask: np.ndarray | None) -> GraphHits:
        """Entities by the low-level keywords, and their relations."""
        if low is None:
            return GraphHits()
        entities = above(self.scores("entities", low, mask), self.top_k, self.cosine_floor)
        if self.is_fixed:
            by_cosine = [self.edges.best(self.scores("relations", query, mask))]
            return GraphHits(entities, seed_edges(self.edges, entities, by_cosine, _EDGES))
        return GraphHits(entities, seed_edges(self.edges, entities, [self.edges.degree_sums, self.graph.edge_weights]))

    def _global(self, high: np.ndarray | None, mask: np.ndarray | None) -> GraphHits:
        """Relations by the high-level keywords, and their ends."""
        if high is None:
            return GraphHits()
        scores = self.edges.best(self.scores("relations", high, mask))
        edges = above(scores, self.top_k, self.cosine_floor)
        return GraphHits(distinct(self.edges.ends[edges].ravel().tolist()), edges)


# --------------------------------------------------------------------------------------- passages of rows, best edges
MAX_SHARE, MIN_SHARE = 5, 1  # passages of the first and of the last entity


def current_passages(
    shown: Renderer,
    hits: GraphHits,
    near: Sequence[int],
    cosines: np.ndarray | None,
    per_item: int,
    shared: bool = False,
) -> list[int]:
    """Return the passages of the vector search (`near`), of entities and of edges, merged position by position.

    With `cosines` (num_passages,) rows pick by vector, at most `per_item` each, else by weight. Edges pick among all
    their passages if `shared`; else, as released, among those that no entity has picked.
    """
    graph = shown.graph
    ours = pick([graph.entity_passages[e].tolist() for e in hits.entities], cosines, per_item)
    theirs = pick([graph.edge_passages[e].tolist() for e in hits.edges], cosines, per_item, () if shared else ours)
    return round_robin(near, ours, theirs)


def own_passages(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Give each passage to the first row that cites it; returns non-empty rows, most cited passage first."""
    rows = [row for row in rows if len(row)]
    cited = Counter(passage for row in rows for passage in distinct(row))
    seen: set[int] = set()
    owned = []
    for row in rows:
        fresh = [passage for passage in distinct(row) if passage not in seen]
        seen.update(fresh)
        owned.append(sorted(fresh, key=lambda passage: -cited[passage]))
    return owned


def shares(count: int, most: int = MAX_SHARE, least: int = MIN_SHARE) -> list[int]:
    """Return how many passages each of `count` rows may give: falling from `most` to `least`, half rounded to even."""
    if count == 1:
        return [most]
    return [round(most - i / (count - 1) * (most - least)) for i in range(count)]


def pick_by_weight(owned: Sequence[Sequence[int]], most: int = MAX_SHARE, least: int = MIN_SHARE) -> list[int]:
    """Pick passages by their rows' shares (LightRAG's WEIGHT)."""
    # What a row cannot use of its share is handed out afterwards, one passage at a time, to the first row with any
    # left.
    allowed = shares(len(owned), most, min(most, least))
    used = [min(share, len(row)) for share, row in zip(allowed, owned, strict=True)]
    picked = [passage for row, n in zip(owned, used, strict=True) for passage in row[:n]]
    rest = [passage for row, n in zip(owned, used, strict=True) for passage in row[n:]]
    return picked + rest[: sum(allowed) - sum(used)]


def pick_by_vector(owned: Sequence[Sequence[int]], cosines: np.ndarray, most: int = MAX_SHARE) -> list[int]:
    """Pick the half of the shares' maximum that is nearest to the query (LightRAG's VECTOR); ties in row order."""
    # Rows left without a passage of their own count for the number that is picked.
    pool = [passage for row in owned for passage in row]
    return sorted(pool, key=lambda passage: -float(cosines[passage]))[: most * len(owned) // 2]


def pick(
    rows: Sequence[Sequence[int]], cosines: np.ndarray | None, most: int = MAX_SHARE, without: Iterable[int] = ()
) -> list[int]:
    """Pick by vector, or by weight where `cosines` (num_passages,) is None; none of `without`."""
    gone = set(without)
    owned = own_passages([[p for p in row if p not in gone] for row in rows])
    return pick_by_weight(owned, most) if cosines is None else pick_by_vector(owned, cosines, most)


def seed_edges(edges: Edges, entities: Sequence[int], keys: Sequence[np.ndarray], cap: int | None = None) -> list[int]:
    """Return the edges of entities, each once, an entity's `cap` best at most, by `keys` (num_edges,), higher first."""
    # A later key breaks the ties of those before it; ties of all are in the order of the entities.
    candidates = edges.incident.at(entities)
    if cap is not None:
        rows = [_best_first(edges.incident[e], keys)[:cap] for e in entities]
        candidates = np.concatenate(rows) if rows else candidates[:0]
    _, first = np.unique(candidates, return_index=True)
    return _best_first(candidates[np.sort(first)], keys).tolist()


def _best_first(edges: np.ndarray, keys: Sequence[np.ndarray]) -> np.ndarray:
    return edges[np.lexsort([-key[edges] for key in reversed(keys)])] if len(edges) else edges
