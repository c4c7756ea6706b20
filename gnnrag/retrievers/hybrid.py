"""Reciprocal rank fusion of any two or more retrievers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gnnrag.config import build_settings
from gnnrag.errors import ConfigError, nearest
from gnnrag.index.index import Index
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.retrievers.base import Retriever
from gnnrag.types import Query, Ranking


@dataclass
class HybridConfig:
    """Settings of `HybridRetriever`."""

    parts: list[str] = field(default_factory=lambda: ["bm25", "dense"])  # retrievers to fuse
    settings: dict[str, Any] = field(default_factory=dict)  # settings of a part, under its name
    weights: list[float] = field(default_factory=list)  # one per part; empty: all 1
    k: int = 60  # a hit at rank r counts weight / (k + r)
    depth: int = 200  # how deep each part is read


class HybridRetriever:
    """score(d) = sum over parts of w / (k + rank(d)) (Cormack, Clarke and Büttcher, SIGIR 2009).

    Args:
        index: an opened index.
        config: parts and constants.

    Raises:
        ConfigError: fewer than two parts, or weights or settings that do not match them.
    """

    config_class = HybridConfig

    def __init__(self, index: Index, config: HybridConfig | None = None) -> None:
        self.config = config or HybridConfig()
        names = self.config.parts
        if len(names) < 2:
            raise ConfigError(f"retriever.parts={names}: name at least two retrievers")
        self.weights = self.config.weights or [1.0] * len(names)
        if len(self.weights) != len(names):
            raise ConfigError(f"retriever.weights={self.weights}: give one weight for each of {names}")
        for name in self.config.settings:
            if name not in names:
                raise ConfigError(f"retriever.settings.{name}: no such part. {nearest(name, names)}")
        self.parts: list[Retriever] = []
        for name in names:
            cls = _part(name)
            settings = build_settings(cls, self.config.settings.get(name, {}), f"retriever.settings.{name}")
            self.parts.append(cls(index, settings))
        self.channels = frozenset.intersection(*(part.channels for part in self.parts))
        self.order = index.position

    @staticmethod
    def stages_for(config: HybridConfig) -> tuple[str, ...]:
        """Return the index stages that the parts read."""
        return tuple({s for name in config.parts for s in _part(name).stages})

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`."""
        deep = [replace(q, top_k=max(q.top_k, self.config.depth)) for q in queries]
        lists = [part.retrieve(deep) for part in self.parts]
        return [self._fuse(query, [rows[i] for rows in lists]) for i, query in enumerate(queries)]

    def _fuse(self, query: Query, rankings: list[Ranking]) -> Ranking:
        scores: dict[str, float] = {}
        for weight, ranking in zip(self.weights, rankings, strict=True):
            for rank, id_ in enumerate(ranking.ids, start=1):
                scores[id_] = scores.get(id_, 0.0) + weight / (self.config.k + rank)
        ids = sorted(scores, key=lambda i: (-scores[i], self.order.get(i, 0)))[: query.top_k]
        # A passage that no list holds scores 0: that is the minimum over the corpus.
        low = 0.0 if len(scores) < len(self.order) else min(scores.values(), default=0.0)
        values = np.array([scores[i] for i in ids])
        high = float(values[0]) if len(values) else 0.0
        return Ranking(tuple(ids), values, branch="rrf", low=low, high=high)


def _part(name: str) -> Any:
    """Return the class of a part. Raises ConfigError for a hybrid within a hybrid."""
    if name == "hybrid":
        raise ConfigError("retriever.parts: a hybrid cannot be part of a hybrid; name its parts")
    return resolve("retriever", name, RETRIEVERS)
