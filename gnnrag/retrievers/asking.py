"""Retrievers over the knowledge graph that ask a role about each query: LightRAG, PathRAG, MiniRAG, HyperGraphRAG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnrag.batching import MicroBatcher
from gnnrag.retrievers.base import Retriever, query_vectors
from gnnrag.session import Session
from gnnrag.types import Query, Ranking


class AskingRetriever(Retriever):
    """Asks its role query by query, so that traces keep their order; ranks many queries at once."""

    channels = frozenset({"text", "graph"})
    reads = ("knowledge", "knowledge_vectors", "embeddings")
    asks_roles = True

    def setup(self) -> None:
        """Open what is searched."""
        self.graph, self.vectors = self.index.knowledge, self.index.knowledge_vectors
        self._batcher: MicroBatcher[tuple[Query, Any], Ranking] = MicroBatcher(self.rank)

    def task(self, query: str) -> Any:
        """Return what the role is asked."""
        raise NotImplementedError

    def strings(self, query: str, reply: Any) -> Sequence[str]:
        """Return what is embedded beside the query; empty for no search."""
        raise NotImplementedError

    def rank_one(self, query: Query, reply: Any, vector: np.ndarray, *vectors: Any) -> Ranking:
        """Return the ranking of a query; `vectors` are those of its `strings`, None for an empty one."""
        raise NotImplementedError

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Ranking | Exception]:
        """See `Retriever`."""
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
        rows = [(query.text, *self.strings(query.text, reply)) for query, reply in asked]
        vectors = query_vectors(self.index.embedder, rows)
        return [self.rank_one(query, reply, *row) for (query, reply), row in zip(asked, vectors, strict=True)]
