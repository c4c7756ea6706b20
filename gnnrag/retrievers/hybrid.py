"""Reciprocal rank fusion of any two or more retrievers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from gnnrag.batching import MicroBatcher
from gnnrag.errors import ConfigError, nearest
from gnnrag.parts import build, find_class, from_settings, part
from gnnrag.retrievers.base import Retriever, rank_hits
from gnnrag.session import Session
from gnnrag.types import Hit, Query, Ranking


@part("retriever", "hybrid")
class HybridRetriever(Retriever):
    """score(d) = sum over parts of w / (k + rank(d)) (Cormack, Clarke and Büttcher, SIGIR 2009).

    Parts are fused in every channel that all of them have. Of graph hits with one id the first part's text, sources and
    kind are kept; hits of equal score that are no passages keep the order in which the parts bring them. ConfigError:
    fewer than two parts, or weights or settings that do not match them.
    """

    parts: list[str] = field(default_factory=lambda: ["bm25", "dense"])  # retrievers to fuse
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # settings of a part, under its name
    weights: list[float] = field(default_factory=list)  # one per part; empty: all 1
    k: int = 60  # a hit at rank r counts weight / (k + r)
    depth: int = 200  # how deep each part is read

    def __post_init__(self) -> None:
        if len(self.parts) < 2 or "hybrid" in self.parts:
            raise ConfigError(f"retriever.parts={self.parts}: name at least two retrievers, none of them hybrid")
        if unknown := self.settings.keys() - set(self.parts):
            raise ConfigError(f"retriever.settings.{min(unknown)}: no such part. {nearest(min(unknown), self.parts)}")
        if self.weights and len(self.weights) != len(self.parts):
            raise ConfigError(f"retriever.weights={self.weights}: give one weight for each of {self.parts}")
        self.fused: list[Any] = [
            from_settings(find_class("retriever", name), self.settings.get(name, {}), f"retriever.settings.{name}")
            for name in self.parts
        ]

    reads = property(lambda self: tuple(dict.fromkeys(name for part in self.fused for name in part.reads)))
    role_names = property(lambda self: tuple(dict.fromkeys(name for part in self.fused for name in part.role_names)))
    checkpoints = property(lambda self: tuple(path for part in self.fused for path in part.checkpoints))
    channels = property(lambda self: frozenset.intersection(*(part.channels for part in self.fused)))
    asks_roles = property(lambda self: any(part.asks_roles for part in self.fused))
    accepts_vectors = property(lambda self: all(part.accepts_vectors for part in self.fused))

    def setup(self) -> None:
        self.fused = [build("retriever", part, index=self.index, roles=self.roles) for part in self.fused]
        self._batchers: list[MicroBatcher[Query, Ranking]] = [MicroBatcher(part.retrieve) for part in self.fused]
        self.order = self.index.position

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        deep = self._deeper(queries)
        return self._fused(queries, [part.retrieve(deep) for part in self.fused])

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Ranking]:
        """Parts without roles work in batches over all questions."""
        deep, lists = self._deeper(queries), []
        for retriever, batcher in zip(self.fused, self._batchers, strict=True):  # in turn: traces keep their order
            lists.append(await (retriever.retrieve_for(deep, session) if retriever.asks_roles else batcher(deep)))
        return self._fused(queries, lists)

    def _deeper(self, queries: Sequence[Query]) -> list[Query]:
        return [replace(q, top_k=max(q.top_k, self.depth)) for q in queries]

    def _fused(self, queries: Sequence[Query], lists: Sequence[Sequence[Any]]) -> list[Ranking]:
        return [self._fuse(query, [rows[i] for rows in lists]) for i, query in enumerate(queries)]

    def _fuse(self, query: Query, rankings: list[Ranking]) -> Ranking:
        scores: dict[str, float] = {}
        hits: dict[str, Hit] = {}
        for weight, ranking in zip(self.weights or [1.0] * len(self.parts), rankings, strict=True):
            for hit in ranking.hits:
                scores[hit.id] = scores.get(hit.id, 0.0) + weight / (self.k + hit.rank)
                hits.setdefault(hit.id, hit)
        ids = sorted(scores, key=lambda i: (-scores[i], self.order.get(i, 0)))[: query.top_k]
        if query.channel == "graph":
            return rank_hits([replace(hits[i], score=scores[i]) for i in ids], query.top_k, "rrf")
        # A passage that no list holds scores 0: that is the minimum over the corpus.
        low = 0.0 if len(scores) < len(self.order) else min(scores.values(), default=0.0)
        values = np.array([scores[i] for i in ids])
        high = float(values[0]) if len(values) else 0.0
        return Ranking(tuple(ids), values, branch="rrf", low=low, high=high)
