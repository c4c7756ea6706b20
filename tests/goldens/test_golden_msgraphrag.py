"""Microsoft GraphRAG 3.1.2: communities, the order of relations in local search, the points of the reduce step.

Of local search's other lists and of batches the file has no texts; dynamic selection of communities is no setting.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.graphs.communities import find_communities
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.retrievers.graphrag import GraphRAGLocalRetriever
from gnnrag.retrievers.graphrag.reports import keep_points
from tests.goldens.reading import golden

FILE = "msgraphrag.json.gz"
GRAPHS = {case["seed"]: case for case in golden(FILE)["clusters"]}


def graph_of(case: Any) -> KnowledgeGraph:
    size, count, none = len(case["names"]), len(case["ends"]), Lists.of([])
    ends = np.array(case["ends"], dtype=np.int32)
    return KnowledgeGraph(
        1, case["names"], [""] * size, [""] * size, [()] * size, Lists.of([[0]] * size), ends, [""] * count,
        ["-"] * count, np.array(case["weights"]), Lists.of([[0]] * count), (), np.zeros(0), none, np.zeros(0), none,
    )  # fmt: skip


@pytest.mark.parametrize("seed", GRAPHS)
def test_communities(seed: int) -> None:
    case = GRAPHS[seed]
    found = find_communities(graph_of(case), "released")
    rows = {
        (int(found.levels[i]), tuple(case["names"][e] for e in found.members[i].tolist())) for i in range(len(found))
    }
    assert rows == {(level, tuple(sorted(names))) for level, names, _ in case["released"]}


def test_relations_of_the_selected_entities() -> None:
    """The same, in the order of their ranks; which of equal ranks comes first is ours."""
    checked = 0
    for case in golden(FILE)["local"]:
        expected = case["released"]["relationships"]
        if case["max_tokens"] < 10**6 or case["seed"] not in GRAPHS:
            continue
        graph = graph_of(GRAPHS[case["seed"]])
        retriever = GraphRAGLocalRetriever(profile="released")
        retriever.graph, retriever.rank = graph, graph.edges.degrees[graph.ends].sum(axis=1)
        found = retriever.relations(case["selected"])
        assert set(found) == set(expected)
        inside = [set(graph.ends[r].tolist()) <= set(case["selected"]) for r in expected]
        assert inside == sorted(inside, reverse=True), "those inside first"
        count = sum(inside)
        assert [retriever.rank[r] for r in found[:count]] == [retriever.rank[r] for r in expected[:count]]
        checked += 1
    assert checked


def test_points_of_the_reduce_step() -> None:
    for case in golden(FILE)["reduce"]:
        points = [(n, point) for n, row in enumerate(case["points"], start=1) for point in row]
        texts = [f"----Analyst {n}----\nImportance Score: {p['score']}\n{p['answer']}" for n, p in points]
        tokens = [math.ceil(len(text) / 4) for text in texts]
        _, kept = keep_points([p["score"] for _, p in points], tokens, case["budget"])
        assert [texts[i] for i in kept] == [re.sub(r"\s+$", "", text) for text in case["released"]]
