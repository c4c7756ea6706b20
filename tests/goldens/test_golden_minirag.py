"""MiniRAG as released: the order of passages from the names, relations and passages that were found."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.parts import set_up
from gnnrag.retrievers.minirag import MiniRAGRetriever
from gnnrag.roles.base import Mentions
from gnnrag.types import Query
from tests.goldens.reading import golden
from tests.helpers.cosines import knowledge_index


@cache
def graph() -> KnowledgeGraph:
    held = golden("minirag.json")["graph"]
    entities, count, none = held["entities"], len(held["edges"]), Lists.of([])
    names = [entity["name"] for entity in entities]
    return KnowledgeGraph(
        num_passages=len(golden("minirag.json")["passage_ids"]),
        names=names,
        types=["|".join(entity["types"]) for entity in entities],
        descriptions=names,
        aliases=[()] * len(names),
        entity_passages=Lists.of(entity["passages"] for entity in entities),
        ends=np.array(held["edges"], dtype=np.int32),
        labels=[""] * count,
        texts=["-"] * count,
        weights=np.ones(count),
        relation_passages=Lists.of(held["edge_passages"]),
        hyper_texts=(),
        hyper_scores=np.zeros(0),
        hyper_members=none,
        hyper_importance=np.zeros(0),
        hyper_passages=none,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(golden("minirag.json")["cases"])))
def test_the_order_of_passages(number: int) -> None:
    case, knowledge = golden("minirag.json")["cases"][number], graph()
    edge = {tuple(ends): i for i, ends in enumerate(knowledge.ends.tolist())}

    def in_order(hits: Any, name: Callable[[Any], str]) -> dict[str, float]:
        return {name(at): 1 - i / 1000 for i, at in enumerate(hits[1])}

    asked = case["question"]
    alike = {text: {knowledge.names[at]: near for at, near in rows} for text, (_, rows) in case["name_hits"].items()}
    alike[asked] = in_order(case["relation_hits"][asked], lambda ends: knowledge.relation_id(edge[tuple(sorted(ends))]))
    alike[asked] |= in_order(case["passage_hits"][asked], lambda passage: f"c{passage + 1}")
    constants = golden("minirag.json")["constants"]
    settings = {"profile": "released", "top_k": constants["top_k"], "cosine_floor": constants["floor"], "tail": "none"}
    retriever = set_up(MiniRAGRetriever(**settings), index=knowledge_index(knowledge, alike), roles={})
    (ranking,) = retriever.rank([(Query(asked), Mentions(tuple(case["names"]), tuple(case["answer_types"])))])
    assert [int(id_[1:]) - 1 for id_ in ranking.ids] == case["official_order"], case["question_id"]
