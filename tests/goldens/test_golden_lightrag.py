"""LightRAG 1.5.7 (`retriever.profile=released`): entities, relations and passages of a context, cut and uncut."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.parts import set_up
from gnnrag.retrievers import lightrag
from gnnrag.retrievers.lightrag import LightRAGRetriever, current_passages
from gnnrag.types import Passage, Query
from tests.goldens.reading import golden

FILE = "lightrag_context_l157.json.gz"
INPUTS = {case["seed"]: case["input"] for case in golden(FILE)["cases"] if "input" in case}
CASES = [case for case in golden(FILE)["cases"] if case["seed"] in INPUTS]


def index_of(given: Any) -> Any:
    size, count, none = len(given["names"]), len(given["ends"]), Lists.of([])
    graph = KnowledgeGraph(
        len(given["passages"]), given["names"], [""] * size, given["descriptions"], [()] * size,
        Lists.of(given["entity_passages"]), np.array(given["ends"], dtype=np.int32), [""] * count, given["texts"],
        np.array(given["weights"]), Lists.of(given["relation_passages"]), (), np.zeros(0), none, np.zeros(0), none,
    )  # fmt: skip
    names = {"entities": "entity_cosines", "relations": "relation_cosines"}
    cosines = {kind: np.array(given[name]) for kind, name in names.items()}
    ids = [f"p{i}" for i in range(len(given["passages"]))]
    return SimpleNamespace(
        knowledge=graph,
        knowledge_vectors=SimpleNamespace(scores=lambda kind, vector: cosines[kind]),
        passages=[Passage(id_, "", text) for id_, text in zip(ids, given["passages"], strict=True)],
        ids=ids,
        passage_vectors=np.array(given["passage_cosines"])[:, None],
    )


@pytest.mark.parametrize("number", range(len(CASES)))
def test_contexts(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[number]
    given = INPUTS[case["seed"]]
    if case["pick"] == "WEIGHT":  # another setting of the release; `fixed` picks so
        monkeypatch.setattr(
            lightrag, "current_passages", lambda shown, hits, near, _, per_item, shared: current_passages(
                shown, hits, near, None, per_item, shared)
        )  # fmt: skip
    names = ("mode", "top_k", "chunk_top_k", "entity_tokens", "relation_tokens", "total_tokens")
    settings = {name: case[name] for name in names}
    retriever = set_up(LightRAGRetriever(profile="released", tail="none", **settings), index=index_of(given))
    one = np.ones(1)
    low, high = (None if case["mode"] == other else one for other in ("global", "local"))
    passages, graph = (
        retriever.rank_one(Query("", channel, 10**6), None, one, low, high) for channel in ("text", "graph")
    )
    found = {kind: [hit.id for hit in graph.hits if hit.kind == kind] for kind in ("entity", "relation")}
    expected = case["released"]
    assert found["entity"] == [given["names"][e] for e in expected["entities"]]
    relations = retriever.graph.relation_id
    assert found["relation"] == [relations(r) for r in expected["relations"]]
    assert [int(id_[1:]) for id_ in passages.ids] == expected["chunks"]
