"""What LightRAG, PathRAG, MiniRAG and HyperGraphRAG share: each asks a role about a query, then searches a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.batching import MicroBatcher
from gnnrag.graphs.rendering import Renderer, above
from gnnrag.retrievers.base import Retriever, any_of, query_vectors, rank_in_order
from gnnrag.session import Session
from gnnrag.text.tokens import TokenCounter
from gnnrag.types import Query, Ranking

_FALLBACK = 20  # passages of the vector search where the graph had nothing


def classic_passages(
    items: Sequence[int], passages: Lists, neighbours: Lists, neighbour_passages: Lists | None = None
) -> list[int]:
    """Rank the passages of entities (best first) as LightRAG did in 2025, and its forks PathRAG and HyperGraphRAG do.

    A passage stands where the first entity that has it does; those of one entity by how many neighbours, of all
    entities that have the passage, cite them too, then in their own order. Neighbours are one-hop neighbours (PathRAG)
    or hyperedges (HyperGraphRAG, with `neighbour_passages`).
    """
    cited = passages if neighbour_passages is None else neighbour_passages
    rank: dict[int, int] = {}
    support: Counter[int] = Counter()
    for place, item in enumerate(items):
        citations = Counter(cited.at(neighbours[item]).tolist())
        for passage in passages[item].tolist():
            rank.setdefault(passage, place)
            support[passage] += citations[passage]
    return sorted(rank, key=lambda passage: (rank[passage], -support[passage]))


@dataclass(eq=False)
class KnowledgeGraphRetriever(Retriever):
    """Base of retrievers on a knowledge graph. Its role is asked query by query; queries are ranked in batches."""

    cosine_floor: float = 0.2  # least cosine of anything that is found
    # passages after the method's own: by cosine, or none; then a fallback has the 20 nearest alone
    tail: Literal["dense", "none"] = "dense"
    tokenizer: str = "estimate"  # what counts tokens, see TokenCounter

    channels = frozenset({"text", "graph"})
    reads = ("knowledge", "knowledge_vectors", "embeddings")
    asks_roles = True
    task_type: ClassVar[type]  # of its role; it takes the text of a query
    is_fork: ClassVar[bool] = True  # budgets count descriptions one by one, as forks of LightRAG do

    def setup(self) -> None:
        self.graph, self.vectors = self.index.knowledge, self.index.knowledge_vectors
        self.edges, self.counter = self.graph.edges, TokenCounter(self.tokenizer)
        self.shown = Renderer(self.graph, self.index.passages, self.counter, classic=self.is_fork)
        self._batcher: MicroBatcher[tuple[Query, Any], Ranking] = MicroBatcher(self.rank)

    def task(self, query: str) -> Any:
        """Return what the role is asked."""
        return self.task_type(query)

    def search_texts(self, query: str, reply: Any) -> Sequence[str]:
        """Return what is embedded beside the query; empty for no search."""
        raise NotImplementedError

    def rank_one(self, query: Query, reply: Any, vector: np.ndarray, *vectors: Any) -> Ranking:
        """Return the ranking of a query; `vectors` are those of its `search_texts`, None for an empty one."""
        raise NotImplementedError

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Ranking]:
        asked = []
        for query in queries:
            reply = None
            for role in self.role_names:
                reply = await self.roles[role](self.task(query.text), session)
                session.flag(role, *reply.flags)
            asked.append((query, reply))
        return await self._batcher(asked)

    def rank(self, asked: Sequence[tuple[Query, Any]]) -> list[Ranking]:
        """Rank queries whose replies are known; all their strings are embedded in one call."""
        rows = [(query.text, *self.search_texts(query.text, reply)) for query, reply in asked]
        vectors = query_vectors(self.index.embedder, rows)
        return [self.rank_one(query, reply, *row) for (query, reply), row in zip(asked, vectors, strict=True)]

    def with_tail(self, own: Sequence[int], query: Query, branch: str, cosines: np.ndarray) -> Ranking:
        """Rank the method's own passages, best first, then the others by cosine where `tail` says so."""
        if branch == "naive_fallback":
            own = own or above(cosines, _FALLBACK, self.cosine_floor)
        tail = cosines if self.tail == "dense" else None
        return rank_in_order(own, self.index.ids, query.top_k, branch, tail, self.mask(query))

    def scores(self, kind: str, vector: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Return the cosines of a vector with all entities, names, relations or hyperedges; shape (their number,).

        Items without a passage in a filter's `mask` (num_passages,) get -2, less than any cosine.
        """
        scores, graph = self.vectors.scores(kind, vector), self.graph
        if mask is None:
            return scores
        stated = {"relations": graph.relation_passages, "hyperedges": graph.hyper_passages}
        return np.where(any_of(stated.get(kind, graph.entity_passages), mask), scores, -2.0)
