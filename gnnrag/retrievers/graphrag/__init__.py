"""GraphRAG's local and global search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from gnnrag.errors import ConfigError
from gnnrag.parts import part
from gnnrag.retrievers.base import (
    ANSWER,
    Retriever,
    any_of,
    best_positions,
    rank_hits_in_order,
    rank_in_order,
    rank_passages,
)
from gnnrag.retrievers.graphrag.report_roles import Point, ReduceTask, ReportPointsTask
from gnnrag.retrievers.graphrag.reports import ReportView, deepest, fill_batches, keep_points, shuffled
from gnnrag.session import Session, concurrently
from gnnrag.text.tokens import estimate_tokens
from gnnrag.types import Hit, Query, Ranking


@part("retriever", "graphrag_local")
class GraphRAGLocalRetriever(Retriever):
    """Entities by the cosine of query and description, then what the graph knows around them (arXiv 2404.16130).

    Passages come by (order of the entity, number of its relations that the passage states). Without a single one, dense
    search takes over (branch `dense_fallback`). Graph hits are the selected entities, the reports of their communities
    and their relations, in this order. Scores are 1 / rank. ConfigError for shares that leave nothing.
    """

    profile: Literal["released", "fixed"] = "fixed"  # released: twice as many entities as asked for
    entities: Annotated[int, Ge(1)] = 10  # entities taken by their vectors
    max_tokens: int = 12000  # of everything
    community_share: Annotated[float, Ge(0)] = 0.15  # of it for reports
    text_share: Annotated[float, Ge(0)] = 0.5  # of it for passages; the rest is for entities and relations
    out_relations: int = 10  # relations out of the selection, for each selected entity
    max_level: int = 2  # reports up to this level, 0 is coarsest

    channels = frozenset({"text", "graph"})
    reads = ("knowledge", "knowledge_vectors", "communities", "reports", "embeddings")

    def setup(self) -> None:
        if self.community_share + self.text_share > 1:
            raise ConfigError(
                f"retriever.community_share={self.community_share} and text_share={self.text_share} must be shares of 1"
            )
        self.count = 2 * self.entities if self.profile == "released" else self.entities
        self.graph, self.vectors = self.index.knowledge, self.index.knowledge_vectors
        self.view = ReportView(self.index)
        self.rank = self.graph.edges.degrees[self.graph.ends].sum(axis=1)
        self.report_tokens = int(self.max_tokens * self.community_share)
        self.text_tokens = int(self.max_tokens * self.text_share)
        self.table_tokens = self.max_tokens - self.report_tokens - self.text_tokens
        self._communities_of = self.view.communities.members.transposed(self.graph.num_entities)  # coarsest first

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        vectors = self.index.embedder.encode([query.text for query in queries], is_query=True) if queries else ()
        return [self._rank(query, vector) for query, vector in zip(queries, vectors, strict=True)]

    def _rank(self, query: Query, vector: np.ndarray) -> Ranking:
        mask = self.mask(query)
        entities = self.select(vector, mask)
        if query.channel == "graph":
            (kept, relations), reports = self.table(entities), self.reports(entities, mask)
            hits = [self.view.entity_hit(e, self._passages_of(e)) for e in kept]
            hits += [self.view.hit(i) for i in reports]
            hits += [self.view.relation_hit(r) for r in relations]
            return rank_hits_in_order(hits, query.top_k, "graphrag_local", self.passes(query))
        passages = self.passages(entities, mask)
        if not passages:
            cosines = self.index.passage_vectors @ vector
            return rank_passages(cosines, self.index.ids, query.top_k, "dense_fallback", mask=mask)
        if mask is not None:  # what passes and these entities do not have follows by cosine
            tail = self.index.passage_vectors @ vector
            return rank_in_order(passages, self.index.ids, query.top_k, "graphrag_local", tail, mask)
        ids = tuple(self.index.ids[p] for p in passages[: query.top_k])
        return Ranking(ids, 1.0 / np.arange(1, len(ids) + 1), branch="graphrag_local")

    def select(self, vector: np.ndarray, mask: np.ndarray | None = None) -> list[int]:
        """Return the entities nearest to a query vector (dim,), best first.

        With `mask` (num_passages,) only those of passages that pass, where there are any.
        """
        scores = self.vectors.scores("entities", vector)
        if mask is not None:
            scores = np.where(any_of(self.graph.entity_passages, mask), scores, -np.inf)
        return best_positions(scores, self.count).tolist()

    def reports(self, entities: Sequence[int], mask: np.ndarray | None = None) -> list[int]:
        """Return the communities of the entities by (how many of them they hold, rating), as far as reports fit."""
        matches = Counter(i for e in entities for i in self._communities_of[e].tolist())
        items = [
            i for i in sorted(matches) if self.view.communities.levels[i] <= self.max_level and self.view.rests(i, mask)
        ]
        items.sort(key=lambda i: (-matches[i], -self.view.ratings[i]))
        return _that_fit(items, [self.view.text(i) for i in items], self.report_tokens)

    def table(self, entities: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the entities and the relations of the local table.

        Entities may fill it; relations of the first one, two, ... are added until they overflow (the step before
        stands).
        """
        kept = _that_fit(list(entities), [self.view.entity_text(e) for e in entities], self.table_tokens)
        left = self.table_tokens - sum(estimate_tokens(self.view.entity_text(e)) for e in kept)
        table: list[int] = []
        for count in range(1, len(kept) + 1):
            relations = self.relations(kept[:count])
            if sum(estimate_tokens(self.graph.statement(r)) for r in relations) > left:
                break
            table = relations
        return kept, table

    def relations(self, selected: Sequence[int]) -> list[int]:
        """Return relations inside the selection by rank (sum of degrees), then some out of it by (links, rank)."""
        g = self.graph
        chosen = np.zeros(g.num_entities, dtype=bool)
        chosen[list(selected)] = True
        near = np.unique(np.concatenate([g.incident[e] for e in selected]))
        inside = chosen[g.ends[near]].all(axis=1)
        own, out = near[inside], near[~inside]
        is_head = chosen[g.ends[out, 0]]
        outer = np.where(is_head, g.ends[out, 1], g.ends[out, 0])
        inner = np.where(is_head, g.ends[out, 0], g.ends[out, 1])
        joined = np.unique(np.stack([outer, inner], axis=1), axis=0)[:, 0]
        links = np.bincount(joined, minlength=g.num_entities)[outer]
        own = own[np.lexsort((own, -self.rank[own]))]
        out = out[np.lexsort((out, -self.rank[out], -links))][: self.out_relations * len(selected)]
        return [*own.tolist(), *out.tolist()]

    def passages(self, entities: Sequence[int], mask: np.ndarray | None = None) -> list[int]:
        """Return the passages of the entities by (order of the entity, relations stated), as far as they fit."""
        passages = list(dict.fromkeys(p for e in entities for p in self._passages_of(e) if mask is None or mask[p]))
        return _that_fit(passages, [self.index.passages[p].content for p in passages], self.text_tokens)

    def _passages_of(self, entity: int) -> list[int]:
        """Return an entity's passages, those that state most of its relations first; ties by corpus order."""
        stated = Counter(
            p for r in self.graph.incident[entity].tolist() for p in self.graph.relation_passages[r].tolist()
        )
        return sorted(self.graph.entity_passages[entity].tolist(), key=lambda p: (-stated[p], p))


def _that_fit(items: list[int], texts: Sequence[str], budget: int) -> list[int]:
    """Return the first items whose texts fit together; the first one in any case."""
    used = np.cumsum([estimate_tokens(text) for text in texts])
    return items[: max(1, int((used <= budget).sum()))]


# ------------------------------------------------------------------------------------------------------ global search
NO_DATA = "The reports on this collection hold nothing that answers the question."
HEADER = "id|title|occurrence weight|content|rank\n"


@dataclass(frozen=True)
class GlobalAnswer:
    text: str  # `NO_DATA` where no point was positive
    points: tuple[Point, ...]  # all positive points, best first
    reports: Mapping[int, str]  # by position: those read, of the best points first, with that point's text


@part("retriever", "graphrag_global")
class GraphRAGGlobalRetriever(Retriever):
    """Map-reduce over community reports (Edge et al., arXiv 2404.16130, section 3.1.6).

    Graph hits: the answer (kind community, id `answer`) with what it rests on; the communities of points, best point
    first, and the entities that their reports cite; the other communities. Text hits: the passages that reports cite,
    in the same order. Scores are 1 / rank. The branch says `_no_data` where nothing was found.
    Roles: `report_points` and `report_reduce`.
    """

    # released: reports of parents beside those of their children, and the reduce step stops at an overflow
    profile: Literal["released", "fixed"] = "fixed"
    max_level: int = 2  # reports up to this level, 0 is coarsest
    seed: int = 86  # reports are shuffled, so that similar ones do not share a batch
    batch_tokens: Annotated[int, Ge(1)] = 12000
    reduce_tokens: Annotated[int, Ge(1)] = 12000
    reduce_words: int = 2000

    channels = frozenset({"text", "graph"})
    reads = ("knowledge", "communities", "reports")
    role_names, asks_roles = ("report_points", "report_reduce"), True

    def setup(self) -> None:
        self.view = ReportView(self.index)
        self.keys = self.view.communities.keys

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Ranking]:
        """Return one ranking for each query; a text that two channels ask is searched once."""
        answers: dict[tuple[str, str | None], GlobalAnswer] = {}
        for query in queries:
            if (query.text, query.filter) not in answers:
                answers[query.text, query.filter] = await self.search(query.text, session, self.mask(query))
        return [self._ranking(query, answers[query.text, query.filter]) for query in queries]

    async def search(self, query: str, session: Session, mask: np.ndarray | None = None) -> GlobalAnswer:
        """Choose reports, map, reduce; with `mask` (num_passages,) reports that rest on passages that pass."""
        chosen = [i for i in self.candidates() if self.view.rests(i, mask)]
        batches = self.batches(chosen)
        session.record("global_search", reports=len(chosen), batches=[[self.keys[i] for i in b] for b in batches])
        tasks = [ReportPointsTask(query, tuple((self.keys[i], self.view.text(i)) for i in b)) for b in batches]
        role = self.roles["report_points"]
        replies = await concurrently(session, [partial(role, task) for task in tasks])
        for reply in replies:
            session.flag("report_points", *reply.flags)
        points = [point for reply in replies for point in reply.points]
        tokens = [estimate_tokens(point.text) for point in points]
        is_fixed = self.profile == "fixed"
        ranked, kept = keep_points([p.score for p in points], tokens, self.reduce_tokens, is_fixed)
        session.record("global_points", ranked=len(ranked), kept=[[points[i].score, points[i].text] for i in kept])
        text = NO_DATA
        if kept:
            task = ReduceTask(query, tuple(points[i] for i in kept), self.reduce_words)
            reduced = await self.roles["report_reduce"](task, session)
            session.flag("report_reduce", *reduced.flags)
            text = reduced.text or NO_DATA
        cited: dict[int, str] = {}
        for point in (points[i] for i in ranked):
            for id_ in point.reports:
                cited.setdefault(self.view.communities.position[id_], point.text)
        rest = sorted((i for batch in batches for i in batch if i not in cited), key=self._weight)
        return GlobalAnswer(text, tuple(points[i] for i in ranked), cited | dict.fromkeys(rest, ""))

    def candidates(self) -> list[int]:
        """Return the reports that may be read, by position."""
        communities = self.view.communities
        if self.profile == "released":
            return np.flatnonzero(communities.levels <= self.max_level).tolist()
        return deepest(communities, self.max_level)

    def batches(self, chosen: Sequence[int]) -> list[list[int]]:
        """Return the reports of each map call: shuffled into batches, and there by (occurrence weight, rating)."""
        order = [chosen[n] for n in shuffled(len(chosen), self.seed)]
        tokens = {i: estimate_tokens(self.view.text(i)) for i in order}
        batches = fill_batches(order, tokens, self.batch_tokens, estimate_tokens(HEADER))
        return [sorted(sorted(batch), key=self._weight) for batch in batches]

    def _weight(self, report: int) -> tuple[float, float]:
        return (-self.view.communities.occurrence[report], -self.view.ratings[report])

    def _ranking(self, query: Query, answer: GlobalAnswer) -> Ranking:
        cited = [i for i, point in answer.reports.items() if point]
        branch = "graphrag_global" + ("" if answer.points else "_no_data")
        shown = list(answer.reports.items())[: query.top_k]
        if query.channel == "text":
            ids = tuple(dict.fromkeys(p for i, point in shown for p in self.view.passages(i, point)))[: query.top_k]
            if (mask := self.mask(query)) is not None:
                order, tail = [self.index.position[id_] for id_ in ids], self.index.dense_scores([query.text])[0]
                return rank_in_order(order, self.index.ids, query.top_k, branch, tail, mask)
            return Ranking(ids, 1.0 / np.arange(1, len(ids) + 1), branch=branch)
        entities = dict.fromkeys(e for i in cited for e in self.view.entities(i))
        passages = tuple(dict.fromkeys(p for i in cited for p in self.view.passages(i, answer.reports[i])))
        text = answer.text
        if cited:
            keys = ", ".join(self.keys[i] for i in cited)
            text += f"\n\nCommunities: {keys}\nPassages: {', '.join(passages[:20])}"
        hits = [Hit(ANSWER, 1.0, 1, "community", text, passages)]
        hits += [self.view.hit(i, point) for i, point in shown[: len(cited)]]
        hits += [self.view.entity_hit(e) for e in entities]
        hits += [self.view.hit(i) for i, _ in shown[len(cited) :]]
        return rank_hits_in_order(hits, query.top_k, branch, self.passes(query))
