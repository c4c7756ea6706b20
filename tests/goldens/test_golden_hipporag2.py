"""HippoRAG 2 as released: seeds from facts, the walk over entities and passages."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from gnnrag.arrays import Lists
from gnnrag.graphs.entities import build_entity_graph
from gnnrag.graphs.synonyms import find_synonyms
from gnnrag.parts import set_up
from gnnrag.retrievers.hipporag2 import Candidates, HippoRAG2Retriever
from gnnrag.types import Query
from tests.goldens.reading import golden

FILE = "hipporag2.json"


@pytest.fixture(scope="module")
def adjacency() -> sparse.csr_array:
    held = golden(FILE)
    size = held["num_entities"] + len(held["passage_ids"])
    i, j, weights = (np.array(column) for column in zip(*held["edges"], strict=True))
    half = sparse.csr_array(sparse.coo_array((weights.astype(float), (i, j)), shape=(size, size)))
    return sparse.csr_array(half + half.T)


def index_of(case: Any, adjacency: sparse.csr_array) -> Any:
    """Return an index that holds the released graph, and of its facts those that were found."""
    held = golden(FILE)
    position = {name: number for number, name in enumerate(held["entities"])}
    triples = [tuple(fact["triple"]) for fact in case["facts"]]
    graph = SimpleNamespace(
        num_entities=held["num_entities"],
        num_passages=len(held["passage_ids"]),
        facts=triples,
        fact_entities=np.array([[position[head], position[tail]] for head, _, tail in triples]),
        passages_with=np.array(held["passages_of_entity"]),
        adjacency=lambda **_: adjacency,
    )
    facts = Lists.of([[number] for number in range(len(triples))])
    return SimpleNamespace(
        ids=held["passage_ids"],
        entity_graph=SimpleNamespace(graph=graph, is_sentences=False, statement_facts=facts),
        dense_scores=lambda texts: np.array([case["passage_seeds"]] * len(texts)),
    )


@pytest.mark.parametrize("number", range(len(golden(FILE)["cases"])))
def test_seeds_and_ranking(number: int, adjacency: sparse.csr_array) -> None:
    case = golden(FILE)["cases"][number]
    index = index_of(case, adjacency)
    retriever = set_up(HippoRAG2Retriever(filter="none"), index=index)
    scores = tuple(fact["score"] for fact in case["facts"])
    places = tuple(range(len(scores)))
    seeds = retriever.seeds(Candidates(places, scores, ()), places)
    # Of candidates that are equal at the cut the case holds the one by name, as we take.
    assert dict(seeds) == pytest.approx(dict(map(tuple, case["entity_seeds"])), abs=1e-6)
    (ranking,) = retriever.rank([Query(case["question"], top_k=20)], [seeds])
    assert [index.ids.index(id_) for id_ in ranking.ids] == [passage for passage, _ in case["top20"]]
    assert ranking.scores == pytest.approx([score for _, score in case["top20"]], abs=1e-8)


FRESH = "hipporag2_fresh.json.gz"


@pytest.mark.parametrize("number", range(len(golden(FRESH)["cases"])))
def test_graph_seeds_and_ranking_of_random_triples(number: int) -> None:
    """From the triples on; candidates at the cut that are equal are taken by name here."""
    case = golden(FRESH)["cases"][number]
    graph = build_entity_graph([[tuple(triple) for triple in row] for row in case["triples"]])
    assert list(graph.entities) == case["entities"] and [list(fact) for fact in graph.facts] == case["facts"]
    entities, facts, passages, query = (
        np.array(case[name], dtype=np.float64)
        for name in ("entity_vectors", "fact_vectors", "passage_vectors", "query")
    )
    pairs, cosines = find_synonyms(graph.entities, entities.astype(np.float32), 0.8, 101)
    knowledge = SimpleNamespace(
        graph=replace(graph, synonyms=pairs, similarities=cosines),
        is_sentences=False,
        statement_vectors=facts,
        statement_facts=Lists.of([[i] for i in range(len(facts))]),
    )
    index = SimpleNamespace(
        ids=[str(i) for i in range(len(passages))],
        entity_graph=knowledge,
        embedder=SimpleNamespace(encode=lambda texts, is_query: np.array([query] * len(texts))),
        dense_scores=lambda texts: [passages @ query for _ in texts],
    )
    retriever = set_up(HippoRAG2Retriever(profile="released", filter="none"), index=index)
    (ranking,) = retriever.retrieve([Query("q", top_k=len(passages))])
    if not case["tie_at_cut"]:
        assert [int(id_) for id_ in ranking.ids] == case["released_order"]
        assert ranking.scores == pytest.approx(case["released_scores"], abs=1e-6)
