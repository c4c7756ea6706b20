"""Reciprocal rank fusion of any two or more retrievers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.waiting import MicroBatcher
from gnnrag.config import build_settings
from gnnrag.errors import ConfigError, nearest
from gnnrag.index.index import Index
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.retrievers.base import Retriever, rank_graph
from gnnrag.session import Session
from gnnrag.types import Hit, Query, Ranking


@dataclass
class HybridConfig:
    """Settings of `HybridRetriever`."""

    parts: list[str] = field(default_factory=lambda: ["bm25", "dense"])  # retrievers to fuse
    settings: dict[str, Any] = field(default_factory=dict)  # settings of a part, under its name
    weights: list[float] = field(default_factory=list)  # one per part; empty: all 1
    k: int = 60  # a hit at rank r counts weight / (k + r)
    depth: int = 200  # how deep each part is read


class HybridRetriever(Retriever):
    """score(d) = sum over parts of w / (k + rank(d)) (Cormack, Clarke and Büttcher, SIGIR 2009).

    Parts are fused in every channel that all of them have. Of graph hits with one id the first part's text, sources and
    kind are kept; hits of equal score that are no passages keep the order in which the parts bring them. ConfigError:
    fewer than two parts, or weights or settings that do not match them.
    """

    config_class = HybridConfig

    def __init__(self, index: Index, config: HybridConfig | None = None, roles: Any = None) -> None:
        self.config = config or HybridConfig()
        names, parts = self.config.parts, _parts(self.config)
        self.weights = self.config.weights or [1.0] * len(names)
        if len(self.weights) != len(names):
            raise ConfigError(f"retriever.weights={self.weights}: give one weight for each of {names}")
        self.parts: list[Retriever] = []
        for cls, settings in parts:
            self.parts.append(cls(index, settings, *((roles,) if cls.roles_for(settings) else ())))
        self._batchers: list[MicroBatcher[Query, Ranking]] = [MicroBatcher(part.retrieve) for part in self.parts]
        self.channels = frozenset.intersection(*(part.channels for part in self.parts))
        self.asks_roles = any(part.asks_roles for part in self.parts)
        self.accepts_vectors = all(part.accepts_vectors for part in self.parts)
        self.order = index.position

    @staticmethod
    def stages_for(config: HybridConfig) -> tuple[str, ...]:
        """Return the index stages that the parts read."""
        needed = (cls.stages_for(settings) for cls, settings in _parts(config))
        return tuple(sorted({stage for stages in needed for stage in stages}))

    @staticmethod
    def channels_for(config: HybridConfig) -> frozenset[str]:
        """Return the channels that all parts have."""
        return frozenset.intersection(*(cls.channels_for(settings) for cls, settings in _parts(config)))

    @staticmethod
    def roles_for(config: HybridConfig) -> tuple[str, ...]:
        """Return the roles that the parts may ask."""
        return tuple(dict.fromkeys(role for cls, settings in _parts(config) for role in cls.roles_for(settings)))

    @staticmethod
    def checkpoints_for(config: HybridConfig) -> tuple[Path, ...]:
        """Return the folders of the networks that the parts use."""
        return tuple(p for cls, s in _parts(config) for p in cls.checkpoints_for(s))

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`; only where no part asks roles."""
        deep = self._deeper(queries)
        return self._fused(queries, [part.retrieve(deep) for part in self.parts])

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Ranking]:
        """Parts without roles work in batches over all questions."""
        deep, lists = self._deeper(queries), []
        for part, batcher in zip(self.parts, self._batchers, strict=True):  # one by one: traces keep their order
            rows = await (part.retrieve_for(deep, session) if part.asks_roles else batcher(deep))
            for row in rows:
                if isinstance(row, Exception):
                    raise row
            lists.append(rows)
        return self._fused(queries, lists)

    def _deeper(self, queries: Sequence[Query]) -> list[Query]:
        return [replace(q, top_k=max(q.top_k, self.config.depth)) for q in queries]

    def _fused(self, queries: Sequence[Query], lists: Sequence[Sequence[Any]]) -> list[Ranking]:
        return [self._fuse(query, [rows[i] for rows in lists]) for i, query in enumerate(queries)]

    def _fuse(self, query: Query, rankings: list[Ranking]) -> Ranking:
        scores: dict[str, float] = {}
        hits: dict[str, Hit] = {}
        for weight, ranking in zip(self.weights, rankings, strict=True):
            for hit in ranking.hits:
                scores[hit.id] = scores.get(hit.id, 0.0) + weight / (self.config.k + hit.rank)
                hits.setdefault(hit.id, hit)
        ids = sorted(scores, key=lambda i: (-scores[i], self.order.get(i, 0)))[: query.top_k]
        if query.channel == "graph":
            return rank_graph([replace(hits[i], score=scores[i]) for i in ids], query.top_k, "rrf")
        # A passage that no list holds scores 0: that is the minimum over the corpus.
        low = 0.0 if len(scores) < len(self.order) else min(scores.values(), default=0.0)
        values = np.array([scores[i] for i in ids])
        high = float(values[0]) if len(values) else 0.0
        return Ranking(tuple(ids), values, branch="rrf", low=low, high=high)


def _parts(config: HybridConfig) -> list[tuple[Any, Any]]:
    """Return each part's class and settings; ConfigError: fewer than two, an unknown one, or settings of none."""
    found, names = [], config.parts
    if len(names) < 2:
        raise ConfigError(f"retriever.parts={names}: name at least two retrievers")
    for name in config.settings:
        if name not in names:
            raise ConfigError(f"retriever.settings.{name}: no such part. {nearest(name, names)}")
    for name in names:
        cls = _part(name)
        found.append((cls, build_settings(cls, config.settings.get(name, {}), f"retriever.settings.{name}")))
    return found


def _part(name: str) -> Any:
    """Return the class of a part. Raises ConfigError for a hybrid within a hybrid."""
    if name == "hybrid":
        raise ConfigError("retriever.parts: a hybrid cannot be part of a hybrid; name its parts")
    return resolve("retriever", name, RETRIEVERS)
