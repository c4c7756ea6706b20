"""The retriever by two walks: its formula, worked out anew from the message graph, and what lies outside of it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from gnnrag.gnn import NODE_STAGES, WALK_STAGES, GNNConfig
from gnnrag.gnn.features import NODE_FEATURES, Seeds
from gnnrag.gnn.question_graphs import QuestionGraphs
from gnnrag.graphs.messages import REFERS
from gnnrag.index.index import Index
from gnnrag.parts import set_up
from gnnrag.retrievers.walk import WalkRetriever
from gnnrag.types import Query
from tests.helpers.indexes import build

QUESTION = "Where was the father of Ada Lovelace born?"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    root = tmp_path_factory.mktemp("walk") / "index"
    build(root, names=NODE_STAGES)
    return Index(root)


def test_the_formula_of_the_terms_that_the_network_reads(index: Index) -> None:
    (part,) = QuestionGraphs(index, GNNConfig(features=list(NODE_FEATURES))).prepare([QUESTION])
    term = dict(zip(NODE_FEATURES, part.features[part.candidates].T, strict=True))
    logits = np.log(term["walk"] + 1e-3) + 2 * term["dense"] + 1.5 * term["follow"] + 0.5 * term["open"]
    wanted = dict(zip(part.passages[part.candidates].tolist(), 1 / (1 + np.exp(-logits)), strict=True))
    (ranking,) = set_up(WalkRetriever(), index=index).retrieve([Query(QUESTION)])
    assert len(wanted) == len(ranking) == len(index.ids)
    scores = [wanted[index.position[id_]] for id_ in ranking.ids]
    assert ranking.scores == pytest.approx(scores, abs=1e-5)
    assert {"p1", "p2"} <= set(ranking.ids[:3]), "Ada Lovelace, and her father, whom she names"


def test_a_walk_of_three_steps(index: Index) -> None:
    """Each step passes on .6 of the mass along references, .3 against them, .3 to passages that share a name."""
    graphs = QuestionGraphs(index)
    graph, count = graphs.graph, len(index.ids)
    along, against, shared = (np.zeros((count, count)) for _ in range(3))
    for row in np.flatnonzero(graph.triples[:, 1] == REFERS).tolist():
        source, target = (int(graph.triples[row, i]) - graph.first_passage for i in (0, 2))
        weight = float(graphs.grounding.confidence[row]) * float(graphs.grounding.rarity[row])
        along[source, target] += weight
        against[target, source] += weight
    names: dict[int, dict[int, float]] = defaultdict(dict)
    for entity in range(graph.num_entities):
        passages = graph.entity_passages[entity].tolist()
        for passage in passages if len(passages) > 1 else ():
            names[passage][entity] = 1 / np.log2(2 + len(passages))
    for passage, weights in names.items():
        for entity, weight in weights.items():
            others = graph.entity_passages[entity].tolist()
            shared[passage, others] += weight / (sum(weights.values()) + 0.25) / len(others)
    step = 0.3 * shared.T
    for ways, share in ((along, 0.6), (against, 0.3)):
        step += share * (ways / (ways.sum(axis=1, keepdims=True) + 0.25)).T
    start = np.zeros(count)
    start[[1, 3]] = 1.0, 0.5
    seeds = Seeds(graph.first_passage + np.array([1, 3]), np.array([1.0, 0.5], np.float32), "search")
    wanted = sum(np.linalg.matrix_power(step, n) @ start for n in range(4))
    assert graphs._walk(seeds) == pytest.approx(wanted, abs=1e-7)


def test_passages_beyond_follow_by_search(index: Index) -> None:
    few = set_up(WalkRetriever(passages=2), index=index)
    (ranking,) = few.retrieve([Query(QUESTION)])
    lexical = index.bm25_scores([QUESTION])[0]
    view = few.graphs.view(QUESTION, index.embedder.encode([QUESTION], is_query=True)[0], lexical)
    assert {index.position[id_] for id_ in ranking.ids[:2]} == set(view.passages.tolist())
    rest = [index.position[id_] for id_ in ranking.ids[2:]]
    assert len(rest) == len(index.ids) - 2 and rest == sorted(rest, key=lambda p: (-view.prior[p], p))


def test_it_reads_no_sentence_vectors(tmp_path: Path) -> None:
    build(tmp_path / "index", names=WALK_STAGES)
    assert set_up(WalkRetriever(), index=Index(tmp_path / "index")).retrieve([Query(QUESTION)])[0].ids
