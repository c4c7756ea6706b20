"""HippoRAG 1 as released: what a triple adds to slots and edges, the walk, and the order of equal passages."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from gnnrag.graphs.entities import EntityGraph, build_entity_graph
from gnnrag.parts import set_up
from gnnrag.retrievers.hipporag import HippoRAGRetriever
from gnnrag.types import Query
from tests.goldens.reading import WHOLE, golden

FILE = "hipporag1.json"
OPENIE = WHOLE.parent / "data" / "musique" / "openie.gpt-3.5-turbo-1106.jsonl"


def matrix(rows: list[list[Any]], shape: tuple[int, int]) -> sparse.csr_array:
    i, j, values = (np.array(column) for column in zip(*rows, strict=True))
    return sparse.csr_array(sparse.coo_array((values.astype(float), (i, j)), shape=shape))


@pytest.fixture(scope="module")
def released() -> Any:
    """An index that holds the graph of the release."""
    held = golden(FILE)
    count, passages = len(held["entities"]), len(held["passage_ids"])
    both = matrix([[i, j, there + back] for i, j, there, back in held["edges"]], (count, count))
    graph = SimpleNamespace(
        num_entities=count,
        slots=matrix(held["slots"], (passages, count)),
        passages_with=np.array(held["passages_of_entity"]),
        entity_adjacency=lambda **_: both + both.T,
    )
    return SimpleNamespace(ids=held["passage_ids"], entity_graph=SimpleNamespace(graph=graph))


def test_the_walk_and_the_ranking(released: Any) -> None:
    retriever = set_up(HippoRAGRetriever(ties="last"), index=released)
    for case in golden(FILE)["cases"]:
        count = len(released.ids)
        linked = {entity: similarity for _, entity, similarity in case["linked"]}
        (ranking,) = retriever.rank([Query(case["question"], top_k=count)], [linked])
        scores = dict(zip(ranking.ids, ranking.scores.tolist(), strict=True))
        assert [scores[id_] for id_ in released.ids] == pytest.approx(case["all_scores"], abs=1e-8)
        assert [released.ids.index(id_) for id_ in ranking.ids[:20]] == [p for p, _ in case["top20"]], case[
            "question_id"
        ]


def test_a_fact_of_a_thing_with_itself_fills_one_slot() -> None:
    for case in golden(FILE)["head_equals_tail"]:
        graph = build_entity_graph([[tuple(case["triple"])]])
        assert graph.slots.toarray().tolist() == [[1.0]]
        assert graph.entity_adjacency().nnz == 0


def test_a_triple_that_a_passage_repeats_adds_to_the_edge_each_time_and_is_one_fact() -> None:
    for case in golden(FILE)["repeated_triples"]:
        triples = [tuple(triple) for triple in case["triples"]]
        graph = build_entity_graph([[*triples, *triples]])
        assert graph.entity_adjacency(counted="times").max() == 4.0 and graph.entity_adjacency().max() == 2.0
        assert graph.slots.max() == len(triples)


@pytest.mark.skipif(not OPENIE.is_file(), reason="the triples are beside the checkout only")
def test_the_graph_of_the_corpus() -> None:
    held = golden(FILE)
    rows = {row["id"]: row for row in map(json.loads, OPENIE.read_text("utf-8").splitlines())}
    graph: EntityGraph = build_entity_graph(
        [[tuple(triple) for triple in rows[id_]["triples"] if len(triple) == 3] for id_ in held["passage_ids"]]
    )
    assert list(graph.entities) == held["entities"]
    shape = (len(held["passage_ids"]), len(held["entities"]))
    assert (graph.slots != matrix(held["slots"], shape)).nnz == 0
    assert graph.passages_with.tolist() == held["passages_of_entity"]
    ours = sparse.triu(graph.entity_adjacency(syn_overwrites=False, counted="times")).tocoo()
    weights = {(i, j): there + back for i, j, there, back in held["edges"]}
    differing = {
        (i, j): (weight, weights.get((i, j)))
        for i, j, weight in zip(ours.row.tolist(), ours.col.tolist(), ours.data.tolist(), strict=True)
        if weights.get((i, j)) != weight
    }
    # What is left are pairs that are look-alikes as well: the cosine replaces the count, and cosines are not read here.
    assert all(theirs is not None and theirs < 2.0 + 1e-6 for _, theirs in differing.values()), differing
