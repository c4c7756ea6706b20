from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag.gnn import GNNConfig, LossConfig
from gnnrag.gnn.edges import Subgraph
from gnnrag.gnn.examples import ExampleSet, best_threshold, node_f1, ranking_metrics
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.stages import Pool, RetrievalTask
from gnnrag.training.networks import deal
from gnnrag.types import Question
from tests.helpers.trainings import batches

CPU = torch.device("cpu")
TABLE = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float16)


def make_subgraph(text: str) -> Subgraph:
    """Six nodes, of which the last four are passages 10 to 13; the text's length decides which passage is special."""
    rng = np.random.default_rng(len(text))
    features = np.zeros((6, 2), np.float32)
    features[2 + len(text) % 4, 0] = 1.0
    source, target = np.array([0, 1, 2, 3, 4, 5]), np.array([2, 3, 0, 1, 0, 1])
    return Subgraph(
        nodes=np.array([1, 4, 20, 21, 22, 23]),
        passages=np.array([-1, -1, 10, 11, 12, 13]),
        source=source,
        relation=np.array([0, 1, 1, 0, 0, 1]),
        target=target,
        relations=np.array([0, 3]),
        relation_vectors=np.eye(2, 8, dtype=np.float32),
        question=rng.normal(size=8).astype(np.float32),
        seeds=np.array([1, 0, 0, 0, 0, 0], np.float32),
        features=features,
        node_vectors=TABLE[[1, 4, 20, 21, 22, 23]],
    )


class Maker:
    config = GNNConfig()

    def __init__(self) -> None:
        self.asked: list[str] = []

    def prepare(self, queries: Sequence[str]) -> list[Subgraph]:
        self.asked += queries
        return [make_subgraph(query) for query in queries]

    def node_vectors(self, nodes: np.ndarray) -> np.ndarray:
        return TABLE[nodes]


def make_set(maker: Any) -> ExampleSet:
    questions = [Question(f"q{i}", "w" * i) for i in range(1, 13)]
    gold = [[10 + i % 4, 99] for i in range(1, 13)]
    return ExampleSet(questions, gold, maker)


def test_a_subgraph_is_cut_once_with_all_that_the_network_reads() -> None:
    maker = Maker()
    examples = make_set(maker)
    first, again = examples[2], examples[2]
    assert maker.asked == ["www"]
    for name, value in vars(again.subgraph).items():
        assert np.array_equal(value, getattr(make_subgraph("w" * 3), name)), name
    assert first.targets.tolist() == [False] * 5 + [True] and first.lost == 1
    assert again.candidates.tolist() == [False] * 2 + [True] * 4


def test_ranking_metrics_count_what_pruning_lost() -> None:
    metrics = ranking_metrics(np.array([False, True, False, True]), lost=2)
    assert metrics["recall@1"] == 0 and metrics["recall@2"] == 0.25 and metrics["recall@5"] == 0.5
    assert metrics["hits@1"] == 0 and metrics["mrr"] == 0.5
    assert ranking_metrics(np.zeros(3, bool), lost=1) == dict.fromkeys(metrics, 0.0)


def make_task() -> RetrievalTask:
    examples = {"s": make_set(Maker())}
    train, held = Pool(examples, {"s": list(range(8))}), Pool(examples, {"s": [8, 9, 10, 11]})
    return RetrievalTask(train, held, LossConfig())


def test_losses_of_questions_do_not_depend_on_their_neighbours() -> None:
    task = make_task()
    torch.manual_seed(0)
    model = QueryGNN(GNNConfig(dim=8, layers=2, features=["dense", "lexical"]), 8)
    items = deal(task.train.items, 1, 4, 0)
    together = task.loss(model, items, CPU)
    apart = torch.cat([task.loss(model, [item], CPU) for item in items])
    assert together.shape == (4,) and torch.allclose(together, apart, atol=1e-6)


def test_training_finds_what_a_feature_says() -> None:
    task = make_task()
    torch.manual_seed(0)
    model = QueryGNN(GNNConfig(dim=8, layers=1, features=["dense", "lexical"]), 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for items in batches(deal(task.train.items, 60, 4, 0), 4):
        optimizer.zero_grad()
        task.loss(model, items, CPU).mean().backward()
        optimizer.step()
    rows = task.evaluate(model, slice(None), CPU)
    assert set(rows) == {"s/q9", "s/q10", "s/q11", "s/q12"}
    assert all(row["hits@1"] == 1.0 and row["recall@5"] == 0.5 for row in rows.values())


def test_the_threshold_is_the_one_with_the_best_f1() -> None:
    rows = [
        {"chances": [0.9, 0.6, 0.3], "is_right": [1, 1, 0], "gold": 2},
        {"chances": [0.8, 0.4, 0.2], "is_right": [1, 0, 0], "gold": 1},
    ]
    threshold = best_threshold(rows)
    assert 0.4 < threshold <= 0.6
    assert [node_f1(row, threshold)[2] for row in rows] == [1.0, 1.0]
    assert node_f1(rows[0], 0.99) == (0.5, 1.0, pytest.approx(2 / 3)), "the best one is always returned"
    assert node_f1({"chances": [0.9], "is_right": [0], "gold": 3}, 0.5) == (0.0, 0.0, 0.0)
