"""LinearRAG as released: the graph, what a question wakes, the seeds of passages, the walk and the ranking."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from gnnrag.arrays import Lists
from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.parts import set_up
from gnnrag.retrievers.linearrag import LinearRAGRetriever
from gnnrag.types import Passage, Query
from tests.goldens.reading import golden

FILE = "linearrag.json"
NAMED = [case for case in golden(FILE)["cases"] if case["names"]]
BOOSTED = [case for case in NAMED if "attribute_boost" in case]


class Space:
    """Every question and every name is an axis, so that products are the cosines that the file holds."""

    def __init__(self, case: Any) -> None:
        self.axes = {text: i for i, text in enumerate([case["question"], *case["names"]])}

    def encode(self, texts: list[str], is_query: bool = False) -> np.ndarray:
        return np.eye(len(self.axes), dtype=np.float32)[[self.axes[text] for text in texts]]

    def rows(self, cosines: list[float]) -> np.ndarray:
        rows = np.zeros((len(cosines), len(self.axes)), dtype=np.float32)
        rows[:, 0] = cosines
        return rows


@cache
def hierarchy() -> HierarchyGraph:
    held = golden(FILE)
    sentences = [text for text, _ in held["sentences"]]
    inside = Lists.of([[i for i, text in enumerate(sentences) if text in passage] for passage in held["passages"]])
    phrases = Lists.of([entities for _, entities in held["sentences"]])
    return HierarchyGraph.joined(sentences, held["entities"], inside, phrases)


def released(case: Any, result: Any, **settings: Any) -> LinearRAGRetriever:
    """Return the retriever on an index that holds the released passages, sentences, names and cosines."""
    held = golden(FILE)
    space, graph = Space(case), hierarchy()
    entities = space.rows([-1.0] * len(held["entities"]))
    for column, hits in enumerate(case.get("name_hits", ()), start=1):
        for entity, cosine in hits:
            entities[entity, column] = cosine
    index = SimpleNamespace(
        ids=[str(i) for i in range(len(held["passages"]))],
        passages=[Passage(str(i), "", text.partition(":")[2]) for i, text in enumerate(held["passages"])],
        hierarchy=graph,
        passage_vectors=space.rows(case["passage_cosines"]),
        phrase_vectors=entities,
        embedder=space,
        read={"sentence_vectors": space.rows(case["sentence_cosines"])}.get,
    )
    chosen = {"search": "matrix" if result.get("vectorized") else "bfs"} | settings
    constants = held["constants"]["settings"][result["settings"]] if result else {}
    config = LinearRAGRetriever(profile="released", **{**constants, **chosen})
    retriever = set_up(config, index=index)  # type: ignore[arg-type]
    retriever.names = lambda text: case["names"]  # type: ignore[method-assign]
    return retriever


def vector(retriever: LinearRAGRetriever, case: Any) -> np.ndarray:
    return retriever.index.embedder.encode([case["question"]])[0]


def same_ranking(retriever: LinearRAGRetriever, case: Any, top20: list[Any]) -> None:
    (ranking,) = retriever.retrieve([Query(case["question"], top_k=20)])
    assert [int(id_) for id_ in ranking.ids] == [passage for passage, _ in top20]
    assert ranking.scores == pytest.approx([score for _, score in top20], abs=8e-9)


def test_the_graph() -> None:
    held = golden(FILE)
    retriever = released(NAMED[0], {})
    counts = retriever.graph.counts.tocoo()
    found = zip(counts.row.tolist(), counts.col.tolist(), counts.data.tolist(), strict=True)
    assert set(found) == {(p, e, c) for p, row in enumerate(held["passage_entities"]) for e, c in row}
    edges = sparse.triu(retriever.graph.adjacency(retriever.joined)).tocoo()
    pairs = zip(edges.row.tolist(), edges.col.tolist(), strict=True)
    weights = {(i, j): weight for i, j, weight in held["edges"]}
    assert dict(zip(pairs, edges.data.tolist(), strict=True)) == pytest.approx(weights, abs=1e-12)


@pytest.mark.parametrize("case", NAMED)
def test_what_a_question_wakes_and_what_it_finds(case: Any) -> None:
    for result in case["results"]:
        retriever = released(case, result)
        seeds = retriever.link(case["question"])
        assert [entity for entity, _ in seeds] == [entity for entity, _ in case["seeds"]]
        for number, after in enumerate(result["rounds"]):
            active = released(case, result, max_iterations=number + 1).activate(seeds, vector(retriever, case))
            scores, tiers, weights = np.zeros((3, len(active.scores)))
            for entity, score, tier in after["activated"]:
                scores[entity], tiers[entity] = score, tier
            for entity, weight in after["entity_weights"]:
                weights[entity] = weight
            assert active.tiers.tolist() == tiers.tolist()
            assert active.scores == pytest.approx(scores, abs=8e-7)
            assert active.weights == pytest.approx(weights, abs=2e-6)
        active = retriever.activate(seeds, vector(retriever, case))
        reset = retriever.reset(case["question"], active, np.array(case["passage_cosines"]))
        assert reset[len(active.scores) :] == pytest.approx(result["passage_weights"], abs=2e-8)
        same_ranking(retriever, case, result["top20"])
        same_ranking(released(case, result, adjacent="none"), case, result["top20_without_adjacent"])


@pytest.mark.parametrize("case", BOOSTED)
def test_the_boost_of_attributes(case: Any) -> None:
    result = case["attribute_boost"]
    retriever = released(case, result, attribute_boost=True)
    active = retriever.activate(retriever.link(case["question"]), vector(retriever, case))
    reset = retriever.reset(case["question"], active, np.array(case["passage_cosines"]))
    assert reset[len(active.scores) :] == pytest.approx(result["passage_weights"], abs=2e-8)
    same_ranking(retriever, case, result["top20"])


def test_a_question_without_names_is_ranked_by_cosine() -> None:
    cases = [case for case in golden(FILE)["cases"] if not case["names"]]
    for case in cases:
        same_ranking(released(case, {}), case, case["fallback_top20"])
    assert cases
