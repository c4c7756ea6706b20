"""What holds for every retriever, and the settings that each refuses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag import parts
from gnnrag.config import EvaluateConfig, RolesConfig
from gnnrag.errors import ConfigError
from gnnrag.gnn import NODE_STAGES, GNNConfig
from gnnrag.gnn.checkpoint import Checkpoint, save_checkpoint
from gnnrag.gnn.model import QueryGNN
from gnnrag.index.embedder import HashEmbedder, encoder_record
from gnnrag.index.index import Index
from gnnrag.retrievers.base import ANSWER
from gnnrag.roles.registry import Roles
from gnnrag.session import Session
from gnnrag.types import Passage, Query
from tests.helpers.indexes import build
from tests.helpers.names import RETRIEVERS
from tests.helpers.next_hop import index_by, make_base, make_next_hop
from tests.helpers.parts import COMPOSITIONAL, CORPUS, small_index

PROFILES = [{"profile": "fixed"}, {"profile": "released"}]
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "dense": [{}, {"search": "flat"}],
    "hybrid": [{"parts": ["bm25", "dense"]}],
    "raptor": [{"mode": "collapsed"}, {"mode": "traverse"}],
    "graphrag_local": PROFILES,
    "lightrag": [*PROFILES, {"mode": "hybrid"}],
    "minirag": PROFILES,
    "pathrag": [{"flow": "released"}, {"flow": "paper"}],
    "linearrag": PROFILES,
}
SETTINGS |= {"gfm": [{}], "nexthop": [{}, {"hops": 3}]}
CASES = [(name, settings) for name in RETRIEVERS for settings in SETTINGS.get(name, [{}])]
TEXTS = (COMPOSITIONAL, "Who directed Copper Road?", "hm?", "the TROMSO", "", " ", "zzz qqq")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Index, dict[str, Any]]]:
    """Indexes and settings of the retrievers that need a checkpoint; their networks have random weights."""
    folder = tmp_path_factory.mktemp("trained")
    make_next_hop(folder / "nexthop", make_base(folder / "base"))
    torch.manual_seed(1)
    model = QueryGNN(GNNConfig(dim=8, layers=2), HashEmbedder.dim)
    save_checkpoint(folder / "gfm", Checkpoint(model, None, encoder_record(HashEmbedder()), {}))
    build(folder / "hash", CORPUS, names=NODE_STAGES)
    return {
        "gfm": (Index(folder / "hash"), {"checkpoint": str(folder / "gfm")}),
        "nexthop": (
            index_by(folder / "base", folder / "index"),
            {"checkpoint": str(folder / "nexthop"), "base": str(folder / "base")},
        ),
    }


def opened(index: Index, name: str, settings: dict[str, Any]) -> Any:
    """Return a retriever with its offline roles."""
    roles = Roles(index, RolesConfig(), EvaluateConfig().llm, None)
    return parts.build("retriever", {"name": name, **settings}, index=index, roles=roles)


def ask(retriever: Any, *queries: Query) -> list[Any]:
    if retriever.asks_roles:
        return list(asyncio.run(retriever.retrieve_for(queries, Session("s"))))
    return list(retriever.retrieve(queries))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_contract(index: Index, trained: Any, name: str, settings: dict[str, Any]) -> None:
    index, more = trained.get(name, (index, {}))
    retriever = opened(index, name, {**settings, **more})
    channels = sorted(retriever.channels)
    texts = TEXTS if name != "nexthop" else TEXTS[:4]  # the tiny tokeniser makes no token of an empty text
    queries = [Query(t, c, top_k=n) for c in channels for n, t in enumerate(texts, start=3)]
    assert ask(retriever) == []
    rankings = ask(retriever, *queries)
    assert [r.ids for r in ask(retriever, *reversed(queries))] == [r.ids for r in reversed(rankings)]
    for query, ranking in zip(queries, rankings, strict=True):
        assert len(ranking) <= query.top_k and len(set(ranking.ids)) == len(ranking), query
        assert np.isfinite(ranking.scores).all() and (np.diff(ranking.scores) <= 0).all(), query
        (alone,) = ask(retriever, query)
        assert (alone.ids, alone.branch) == (ranking.ids, ranking.branch), query
        assert np.array_equal(alone.scores, ranking.scores), query
        if query.channel == "text":
            places = np.array([index.position[id_] for id_ in ranking.ids])
            is_ordered = (np.diff(places)[np.diff(ranking.scores) == 0] > 0).all()
            assert is_ordered or (name, settings.get("profile")) == ("minirag", "released"), query
        else:
            assert all(source in index.position for hit in ranking.hits for source in hit.sources), query
        if retriever.accepts_vectors and query.text.strip():
            vector = tuple(index.embedder.encode([query.text], is_query=True)[0].tolist())
            (by_vector,) = ask(retriever, replace(query, vector=vector))
            assert name == "nexthop" or by_vector.ids == ranking.ids, "the vector stands for the text's embedding"


FILTERS = {
    "id = 'p7'": {"p7"},
    "title LIKE '%Harbour%' OR text LIKE '%Kalmar%'": {"p0", "p1", "p2", "p6"},
    "length(text) < 0": set(),
    "true": {f"p{i}" for i in range(8)},
}


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_only_what_passes_a_filter_and_as_much_as_there_is(
    index: Index, trained: Any, name: str, settings: dict[str, Any]
) -> None:
    index, more = trained.get(name, (index, {}))
    retriever = opened(index, name, {**settings, **more})
    for text in TEXTS[:4]:
        for condition, passing in FILTERS.items():
            queries = [Query(text, c, k, filter=condition) for c in sorted(retriever.channels) for k in (2, 200)]
            plain = ask(retriever, *(replace(query, filter=None) for query in queries))
            for query, ranking, unfiltered in zip(queries, ask(retriever, *queries), plain, strict=True):
                if query.channel == "graph":
                    behind = [hit.sources for hit in ranking.hits if hit.id != ANSWER or hit.sources]
                    assert all(sources and passing.issuperset(sources) for sources in behind), query
                    assert condition != "true" or ranking.ids == unfiltered.ids, query
                    continue
                assert passing.issuperset(ranking.ids), query
                if ranking.branch != "nothing":  # the released MiniRAG gives up
                    assert len(ranking) == min(query.top_k, len(passing)), query
                if condition == "true":
                    assert ranking.ids[: len(unfiltered)] == unfiltered.ids, query


def test_summaries_rest_on_nothing_that_a_filter_leaves_out(index: Index) -> None:
    for name in ("graphrag_local", "graphrag_global"):
        retriever = opened(index, name, {})
        query = Query("Who directed Night Harbour?", "graph")
        whole, filtered = ask(retriever, query, replace(query, filter="id <> 'p7'"))
        kept = {hit.id: hit for hit in filtered.hits if hit.kind == "community" and hit.id != ANSWER}
        for hit in whole.hits:
            if hit.kind == "community" and "p7" in hit.sources:
                assert hit.id not in kept, (name, hit)
        assert any(hit.kind == "community" for hit in whole.hits), name


def test_what_no_passing_passage_states_is_not_searched(index: Index) -> None:
    retriever, graph = opened(index, "lightrag", {}), index.knowledge
    vector = index.embedder.encode(["Vera Lindqvist"])[0]
    mask = np.isin(index.ids, ["p0", "p4"])
    lists = {
        "entities": graph.entity_passages,
        "relations": graph.relation_passages,
        "hyperedges": graph.hyper_passages,
    }
    for kind, stated in lists.items():
        whole, kept = retriever.scores(kind, vector, None), retriever.scores(kind, vector, mask)
        passes = np.array([mask[passages].any() for passages in stated])
        assert 0 < passes.sum() < len(passes) and np.array_equal(kept[passes], whole[passes]), kind
        assert (kept[~passes] == -2.0).all(), kind


def test_reports_of_communities_with_others_are_left_out(index: Index) -> None:
    retriever = opened(index, "graphrag_local", {"max_tokens": 100_000})
    entities, members = range(index.knowledge.num_entities), retriever.view.communities.passages
    for left_out in index.ids:
        mask = np.array([id_ != left_out for id_ in index.ids])
        kept = retriever.reports(entities, mask)
        assert set(kept) == {i for i in retriever.reports(entities) if mask[members[i]].all()}
        assert retriever.reports(entities, np.ones(len(mask), dtype=bool)) == retriever.reports(entities)


def test_the_prior_of_chg_is_that_of_what_passes(tmp_path: Path) -> None:
    many = [Passage(f"a{i}", "", f"Apples grow on trees, says letter {i}.") for i in range(60)]
    few = [Passage("x", "", "Rivers flow to the sea."), Passage("y", "", "Apples of the market come from trees.")]
    query = Query("Where do apples grow on trees?", filter="id IN ('x', 'y')")
    (ranking,) = ask(opened(small_index(tmp_path, [*many, *few]), "chg", {}), query)
    assert ranking.ids == ("y", "x") and ranking.scores[0] > ranking.scores[1]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("dense", {"search": "ivf"}, "flat"),
    ("graphrag_local", {"profile": "best"}, "released"),
    ("graphrag_local", {"text_share": 0.9}, "community_share"),
    *(("graphrag_global", {name: 0}, name) for name in ("batch_tokens", "reduce_tokens")),
    *(("linearrag", {name: 0}, name) for name in ("top_k_sentence", "max_iterations")),
    ("linearrag", {"passage_share": 1.0}, "passage_share"),
    ("linearrag", {"passage_power": -1.0}, "passage_power"),
    ("raptor", {"gamma": 1.5}, "gamma"),
    *(("raptor", {name: 0}, name) for name in ("nodes", "tokens", "per_layer")),
    *(("nexthop", {name: 0}, name) for name in ("hops", "beam", "temperature")),
    ("nexthop", {"hops": 9}, "hops"),
]


@pytest.mark.parametrize(("name", "settings", "word"), REFUSED)
def test_settings_without_meaning_are_refused(index: Index, name: str, settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError) as error:
        opened(index, name, settings)
    assert word in str(error.value) and next(iter(settings)) in str(error.value)
