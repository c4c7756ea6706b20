"""HyperGraphRAG: facts and entities of a question over the bipartite graph; the role that names them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.rendering import above, distinct, passages_in_order, round_robin
from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline
from gnnrag.retrievers.base import rank_hits_in_order
from gnnrag.retrievers.keywords import NamingRole
from gnnrag.retrievers.knowledge import KnowledgeGraphRetriever, classic_passages
from gnnrag.roles.parsing import clean_line
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.roles.writers.records import split_records
from gnnrag.session import Session
from gnnrag.types import Hit, Query, Ranking


@dataclass(frozen=True, slots=True)
class HyperQueryTask:
    """Ask for the n-ary facts and the entities of a query (HyperGraphRAG)."""

    query: str


@dataclass(frozen=True, slots=True)
class HyperQuery:
    """Sentences that the query asks about, and the entities in them."""

    sentences: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


_SENTENCE_LIMIT, _NAME_LIMIT = 1000, 256  # characters


@part("role", "hyper_query.prompted")
class PromptedHyperQuery(PromptedPart[HyperQueryTask, HyperQuery]):
    """Asks once, and once more after a malformed reply. Failing both times gives nothing and `hyper_query_failed`."""

    max_tokens: int = 1024

    async def __call__(self, task: HyperQueryTask, session: Session) -> HyperQuery:
        """Return the sentences and the entities, in the order written, without repeats."""
        outcome = await self.ask(session, {"query": inline(task.query)}, parse_hyper_query)
        return HyperQuery(flags=("hyper_query_failed",)) if outcome.value is None else outcome.value


def parse_hyper_query(text: str) -> HyperQuery:
    """Return what a reply in record format C holds; only records of exactly 3 (fact) or 5 (entity) fields count.

    MalformedError where there is no such record, and no end marker that says that this is all.
    """
    records, sentences, names = split_records(text), dict[str, None](), dict[str, None]()
    for tag, fields in records.rows:
        if tag == "hyper" and len(fields) == 2 and (line := clean_line(fields[0], _SENTENCE_LIMIT)):
            sentences[line] = None
        if tag == "entity" and len(fields) == 4 and (line := clean_line(fields[0], _NAME_LIMIT)):
            names[line] = None
    if not sentences and not names and not records.is_complete:
        raise MalformedError("no complete record and no end marker")
    return HyperQuery(tuple(sentences), tuple(names))


_CLAUSE = re.compile(r"[,;:?!]\s+|\s+(?=(?:that|which|who|whose|whom|where|when)\s)", re.IGNORECASE)
_MIN_WORDS = 4  # a shorter piece says nothing by itself


@part("role", "hyper_query.offline")
class OfflineHyperQuery(NamingRole[HyperQueryTask, HyperQuery]):
    """Facts are the query and its clauses; entities are the names in it."""

    async def __call__(self, task: HyperQueryTask, session: Session) -> HyperQuery:
        return HyperQuery(clauses(task.query), self.keywords.find(task.query).low)


def clauses(query: str) -> tuple[str, ...]:
    """Return the query, then its clauses of four words or more where it has several."""
    query = " ".join(query.split())
    parts = [part.strip(" ?.!,;:") for part in _CLAUSE.split(query)]
    parts = [part for part in parts if len(part.split()) >= _MIN_WORDS]
    return (query, *parts) if len(parts) > 1 else (query,)


@dataclass(frozen=True)
class SideHits:
    """What one side of the search found: positions of entities, hyperedges and passages, best first."""

    entities: Sequence[int] = ()
    facts: Sequence[int] = ()
    passages: Sequence[int] = ()


class Bipartite:
    """Entities and hyperedges: `degrees` (num_entities,) counts hyperedges, `sizes` (num_hyperedges,) members."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        self.degrees, self.sizes = graph.entity_hyperedges.sizes, graph.hyper_members.sizes
        members = graph.hyper_members.values
        # of each entity in each of its hyperedges, in the order of `entity_hyperedges`
        self._importance = graph.hyper_importance[np.argsort(members, kind="stable")]

    def incident(self, entities: Sequence[int]) -> list[int]:
        """Return the entities' hyperedges, each by its best incidence: degrees of both ends, weight, entity order."""
        lists, rows = self.graph.entity_hyperedges, np.asarray(entities, dtype=np.int64)
        places = lists.places(rows)
        facts, owners = lists.values[places], np.repeat(rows, self.degrees[rows])
        order = np.lexsort((-self._importance[places], -(self.degrees[owners] + self.sizes[facts])))
        return distinct(facts[order].tolist())

    def members(self, facts: Sequence[int]) -> list[int]:
        """Return the entities of hyperedges, in first-seen order."""
        return distinct(self.graph.hyper_members.at(facts).tolist())


@part("retriever", "hypergraphrag")
class HyperGraphRAGRetriever(KnowledgeGraphRetriever):
    """Retrieval over n-ary facts (Luo et al., "HyperGraphRAG", arXiv 2503.21322).

    Channel `text` ranks passages: those of a vector search, of the hyperedge side and of the entity side, position by
    position, then the rest by cosine (`tail`). Channel `graph` ranks hyperedges (kind relation) and entities of both
    sides. Scores are 1 / rank. The branch is `hybrid`, `entities` or `hyperedges` by what was found, or
    `naive_fallback` where that was nothing. Role: `hyper_query`; where it names nothing, the query itself is searched
    among the facts.

    Scores are those of the released code; the paper's confidences and cut-offs are not there. With `profile=released`
    passages of the hyperedge side come before those of the entity side, without the vector search that the paper has.
    (The release itself ranks nothing where either side is empty.)
    """

    profile: Literal["fixed", "released"] = "fixed"
    top_k: int = 60  # entities, and hyperedges
    near_k: int = 5  # fixed: passages of the vector search
    entity_tokens: int = 4000  # of the entities of each side
    fact_tokens: int = 4000  # of the hyperedges of each side
    passage_tokens: int = 4000  # of the passages of each side

    role_names, task_type = ("hyper_query",), HyperQueryTask

    def setup(self) -> None:
        super().setup()
        self.bipartite = Bipartite(self.graph)

    def search_texts(self, query: str, reply: HyperQuery) -> tuple[str, str]:
        low, high = ", ".join(reply.entities), ", ".join(reply.sentences)
        return (low, high) if low or high else ("", query)

    def rank_one(
        self, query: Query, reply: HyperQuery, vector: np.ndarray, low: np.ndarray | None, high: np.ndarray | None
    ) -> Ranking:
        cosines, mask = self.index.passage_vectors @ vector, self.mask(query)
        entity_side = SideHits() if low is None else self.entity_side(low, mask)
        fact_side = SideHits() if high is None else self.fact_side(high, mask)
        branch = {(True, True): "hybrid", (True, False): "entities", (False, True): "hyperedges"}.get(
            (bool(entity_side.entities), bool(fact_side.facts)), "naive_fallback"
        )
        if query.channel == "graph":
            facts = [self._fact_hit(f) for f in distinct([*fact_side.facts, *entity_side.facts])]
            entities = distinct([*fact_side.entities, *entity_side.entities])
            hits = facts + [self.shown.entity_hit(e) for e in entities]
            return rank_hits_in_order(hits, query.top_k, branch, self.passes(query))
        sides = fact_side.passages, entity_side.passages
        near = above(cosines, self.near_k, self.cosine_floor)
        own = distinct([*sides[0], *sides[1]]) if self.profile == "released" else round_robin(near, *sides)
        return self.with_tail(own, query, branch, cosines)

    def entity_side(self, low: np.ndarray, mask: np.ndarray | None = None) -> SideHits:
        """Return entities near the names `low`, their hyperedges by degrees, passages of both."""
        scores = self.scores("entities", low, mask)
        near = above(scores, self.top_k, self.cosine_floor)
        facts = self.bipartite.incident(near)
        passages = classic_passages(
            near, self.graph.entity_passages, self.graph.entity_hyperedges, self.graph.hyper_passages
        )
        return self._side(near, self.shown.fit(facts, self.graph.hyper_texts.__getitem__, self.fact_tokens), passages)

    def fact_side(self, high: np.ndarray, mask: np.ndarray | None = None) -> SideHits:
        """Return the hyperedges near the facts of a query, their members and their passages."""
        scores = self.scores("hyperedges", high, mask)
        near = above(scores, self.top_k, self.cosine_floor)
        near.sort(key=lambda fact: (-scores[fact], -self.graph.hyper_scores[fact]))
        facts = self.shown.fit(near, self.graph.hyper_texts.__getitem__, self.fact_tokens)
        return self._side([], facts, passages_in_order(facts, self.graph.hyper_passages))

    def _side(self, near: Sequence[int], facts: list[int], passages: Sequence[int]) -> SideHits:
        entities = distinct([*near, *self.bipartite.members(facts)])
        entities = self.shown.fit(entities, self.shown.entity_row, self.entity_tokens)
        return SideHits(entities, facts, self.shown.fit(passages, self.shown.passage_row, self.passage_tokens))

    def _fact_hit(self, fact: int) -> Hit:
        text = self.graph.hyper_texts[fact]
        return self.shown.hit("relation", text, text, self.graph.hyper_passages[fact])
