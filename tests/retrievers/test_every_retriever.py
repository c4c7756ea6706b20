"""What holds for every retriever: rankings are sorted, no query changes another's, bad settings are named at once."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import numpy as np
import pytest

from gnnrag.config import EvaluateConfig, RolesConfig, build_settings
from gnnrag.errors import ConfigError
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
CASES = [(n, s) for n in RETRIEVERS if n not in ("gfm", "nexthop") for s in SETTINGS.get(n, [{}])]  # need checkpoints
TEXTS = (COMPOSITIONAL, "Who directed Copper Road?", "hm?", "the TROMSO", "", " ", "zzz qqq")


def opened(index: Index, name: str, settings: dict[str, Any]) -> Any:
    """Return a retriever with its offline roles."""
    cls = resolve("retriever", name, RETRIEVERS)
    chosen = build_settings(cls, settings, "retriever")
    roles = (Roles(index, RolesConfig(), EvaluateConfig().llm, None),) if cls.roles_for(chosen) else ()
    return cls(index, chosen, *roles)


@each("name, settings", CASES)
def test_a_ranking_is_sorted_and_knows_nothing_of_its_batch(index: Index, name: str, settings: dict[str, Any]) -> None:
    retriever = opened(index, name, settings)
    channels = sorted(retriever.channels)
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


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("dense", {"search": "ivf"}, "retriever.search='ivf': allowed are auto, flat, lists, hnsw"),
    ("graphrag_local", {"profile": "best"}, "profile='best': allowed are released, fixed, nano"),
    ("graphrag_local", {"text_share": 0.9}, "must be shares of 1"),
    ("graphrag_local", {"entities": 0}, "entities=0"),
    ("graphrag_local", {"stale": "keep"}, "stale='keep'"),
    *(("graphrag_global", {name: "x"}, f"retriever.{name}='x'") for name in ("profile", "selection", "order")),
    *(("graphrag_global", {name: 0}, f"retriever.{name}=0") for name in ("batch_tokens", "repeats")),
    ("hipporag2", {"phrase_agg": "sum"}, "allowed are mean, last"),
    ("hipporag2", {"fallback_policy": "none"}, "allowed are minmax, same_scale"),
    ("hipporag2", {"filter": "llm"}, "allowed are role, none"),
    ("hipporag2", {"fallback_policy": "same_scale", "passage_weight": 0.0}, "passage_weight above 0"),
    *(("hypergraphrag", {name: "x"}, f"retriever.{name}='x': allowed are")
      for name in ("profile", "rank", "fusion", "tail", "seed_fallback")),
    ("lightrag", {"mode": "bypass"}, "retriever.mode='bypass': allowed are naive, local, global, hybrid, mix"),
    ("lightrag", {"pick": "best"}, "retriever.pick='best': allowed are null, vector, weight"),
    ("linearrag", {"search": "dfs"}, "retriever.search='dfs'"),
    ("linearrag", {"passage_share": 1.0}, "retriever.passage_share=1.0"),
    ("linearrag", {"top_k_sentence": 0}, "retriever.top_k_sentence=0"),
    ("linearrag", {"max_iterations": 0}, "retriever.max_iterations=0"),
    ("linearrag", {"passage_power": -1.0}, "retriever.passage_power=-1.0: must be at least 0"),
    *(("minirag", {name: "x"}, f"retriever.{name}='x': allowed are") for name in ("profile", "tail")),
    ("pathrag", {"tokens": [1]}, "retriever.tokens=[1]: give three numbers"),
    ("raptor", {"mode": "tree"}, "mode='tree': allowed are collapsed, traverse"),
    ("raptor", {"gamma": 1.5}, "gamma=1.5"),
    *(("raptor", {name: 0}, f"{name}=0") for name in ("nodes", "tokens", "per_layer", "num_layers")),
    ("raptor", {"start_layer": 99}, "start_layer=99: this index has the layers 0 to"),
    ("raptor", {"start_layer": -1}, "start_layer=-1"),
]  # fmt: skip


@each("name, settings, words", REFUSED)
def test_settings_without_meaning_are_refused(index: Index, name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        opened(index, name, settings)
