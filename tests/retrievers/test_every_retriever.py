"""What holds for every retriever: a ranking is sorted and finite, and no query of a batch changes another's."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from gnnrag.config import EvaluateConfig, RolesConfig, build_settings
from gnnrag.index.index import Index
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.roles.registry import Roles
from gnnrag.session import Session
from gnnrag.types import Query
from tests.helpers.each import each
from tests.helpers.parts import COMPOSITIONAL

PROFILES = [{"profile": "fixed"}, {"profile": "released"}]
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "dense": [{}, {"search": "hnsw"}],
    "hybrid": [{"parts": ["bm25", "dense"]}],
    "raptor": [{"mode": "collapsed"}, {"mode": "traverse"}],
    "graphrag_local": [*PROFILES, {"profile": "nano"}],
    "lightrag": [*PROFILES, {"mode": "hybrid", "release": "classic"}],
    "minirag": PROFILES,
    "hypergraphrag": [{**profile, "rank": rank} for profile in PROFILES for rank in ("released", "paper", "cosine")],
    "pathrag": PROFILES,
    "linearrag": PROFILES,
}
CASES = [(n, s) for n in RETRIEVERS if n != "gfm" for s in SETTINGS.get(n, [{}])]  # gfm needs a checkpoint
TEXTS = (COMPOSITIONAL, "Who directed Copper Road?", "hm?", "the TROMSO", "", " ", "zzz qqq")


@each("name, settings", CASES)
def test_a_ranking_is_sorted_and_knows_nothing_of_its_batch(index: Index, name: str, settings: dict[str, Any]) -> None:
    cls = resolve("retriever", name, RETRIEVERS)
    chosen = build_settings(cls, settings, "retriever")
    roles = (Roles(index, RolesConfig(), EvaluateConfig().llm, None),) if cls.roles_for(chosen) else ()
    retriever = cls(index, chosen, *roles)
    channels = sorted(cls.channels_for(chosen))
    queries = [Query(t, c, top_k=n) for c in channels for n, t in enumerate(TEXTS, start=3)]

    def ask(*asked: Query) -> list[Any]:
        if retriever.asks_roles:
            return list(asyncio.run(retriever.retrieve_for(asked, Session("s"))))
        return list(retriever.retrieve(asked))

    assert ask() == []
    for query, ranking in zip(queries, ask(*queries), strict=True):
        assert len(ranking) <= query.top_k and len(set(ranking.ids)) == len(ranking), query
        assert np.isfinite(ranking.scores).all() and (np.diff(ranking.scores) <= 0).all(), query
        (alone,) = ask(query)
        assert (alone.ids, alone.branch) == (ranking.ids, ranking.branch), query
        assert np.array_equal(alone.scores, ranking.scores), query
