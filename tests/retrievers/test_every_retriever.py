"""What holds for every retriever: rankings are sorted, no query changes another's, bad settings are named at once."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from gnnrag.config import EvaluateConfig, RolesConfig
from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.parts import build
from gnnrag.roles.registry import Roles
from gnnrag.session import Session
from gnnrag.types import Query
from tests.helpers.names import RETRIEVERS
from tests.helpers.parts import COMPOSITIONAL

PROFILES = [{"profile": "fixed"}, {"profile": "released"}]
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "dense": [{}, {"search": "hnsw"}],
    "hybrid": [{"parts": ["bm25", "dense"]}],
    "raptor": [{"mode": "collapsed"}, {"mode": "traverse"}],
    "graphrag_local": PROFILES,
    "lightrag": [*PROFILES, {"mode": "hybrid"}],
    "minirag": PROFILES,
    "hypergraphrag": [{"rank_by": rank} for rank in ("released", "paper", "cosine")],
    "pathrag": [{"flow": "released"}, {"flow": "paper"}],
    "linearrag": PROFILES,
}
CASES = [
    (n, s) for n in RETRIEVERS if n not in ("gfm", "nexthop") for s in SETTINGS.get(n, [{}])
]  # need checkpoints
TEXTS = (COMPOSITIONAL, "Who directed Copper Road?", "hm?", "the TROMSO", "", " ", "zzz qqq")


def opened(index: Index, name: str, settings: dict[str, Any]) -> Any:
    """Return a retriever with its offline roles."""
    roles = Roles(index, RolesConfig(), EvaluateConfig().llm, None)
    return build("retriever", {"name": name, **settings}, index=index, roles=roles)


@pytest.mark.parametrize(("name", "settings"), CASES)
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
    ("dense", {"search": "ivf"}, "hnsw"),
    ("chg", {"precision": "x"}, "exact"),
    *(("hipporag", {name: "x"}, allowed) for name, allowed in (("names", "role"), ("no_names", "dense"))),
    *(("hipporag2", {name: "x"}, allowed) for name, allowed in (("phrase_agg", "mean"), ("fallback_policy", "minmax"))),
    ("hipporag2", {"filter": "llm"}, "role"),
    ("hipporag2", {"fallback_policy": "same_scale", "passage_weight": 0.0}, "passage_weight"),
    ("graphrag_local", {"profile": "best"}, "released"),
    ("graphrag_local", {"text_share": 0.9}, "community_share"),
    ("graphrag_local", {"entities": 0}, "entities"),
    *(("graphrag_global", {name: "x"}, name) for name in ("profile", "selection", "order")),
    *(("graphrag_global", {name: 0}, name) for name in ("batch_tokens", "repeats")),
    *(("hypergraphrag", {name: "x"}, name) for name in ("rank_by", "tail")),
    ("lightrag", {"mode": "bypass"}, "mix"),
    ("lightrag", {"profile": "best"}, "released"),
    ("linearrag", {"search": "dfs"}, "bfs"),
    *(("linearrag", {name: 0}, name) for name in ("top_k_sentence", "max_iterations")),
    ("linearrag", {"passage_share": 1.0}, "passage_share"),
    ("linearrag", {"passage_power": -1.0}, "passage_power"),
    *(("minirag", {name: "x"}, name) for name in ("profile", "tail")),
    ("pathrag", {"flow": "x"}, "paper"),
    ("raptor", {"mode": "tree"}, "traverse"),
    ("raptor", {"gamma": 1.5}, "gamma"),
    *(("raptor", {name: 0}, name) for name in ("nodes", "tokens", "per_layer", "num_layers")),
    *(("raptor", {"start_layer": layer}, "start_layer") for layer in (99, -1)),
    ("gfm", {"batch": 0}, "batch"),
    ("gfm", {"fallback": "x"}, "dense"),
    *(("nexthop", {name: 0}, name) for name in ("hops", "beam", "temperature")),
    ("nexthop", {"hops": 9}, "hops"),
]


@pytest.mark.parametrize(("name", "settings", "word"), REFUSED)
def test_settings_without_meaning_are_refused(index: Index, name: str, settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError) as error:
        opened(index, name, settings)
    assert word in str(error.value) and next(iter(settings)) in str(error.value)
