from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag.arrays import Lists
from gnnrag.gnn import GNNConfig
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.stages import CompletionConfig, CompletionTask, TripleQuery, rank_of, whole_graph
from gnnrag.graphs.messages import MessageGraph
from gnnrag.training.base import means
from gnnrag.training.networks import deal
from tests.helpers.gfm import TRIPLES, golden_batch, golden_model
from tests.helpers.trainings import batches

GRAPH = MessageGraph(tuple("abcde"), 0, 0, ("r", "s"), TRIPLES.numpy().astype(np.int32), Lists.of([[]] * 5))
CPU = torch.device("cpu")


def make_task(**settings: Any) -> CompletionTask:
    config = CompletionConfig(**{"negatives": 2, "triples": 6, **settings})
    base = golden_batch()  # its edges have the order of the graph's: both directions of every triple
    return CompletionTask({"g": GRAPH}, {"g": base}, config)


QUERIES = [TripleQuery(0, 0, 0, 1, np.array([2, 4])), TripleQuery(0, 1, 2, 0, np.array([3, 4]))]


class Double(torch.nn.Module):
    """The golden network on a batch whose seeds and weights the task has made in single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = golden_model()
        self.rel_mlp = self.inner.rel_mlp

    def forward(self, batch: Any, **more: Any) -> torch.Tensor:
        return self.inner(replace(batch, seeds=batch.seeds.double()), **more)


LOGITS = {  # specs/gfm_rag.md 8.6
    "question": (
        [-0.555837, -0.497482, -0.495148, -0.614790, -0.497114],
        [-0.360801, -1.138357, -0.234101, -0.352431, -0.364785],
        0.716909,
    ),
    "relation": (
        [-0.334599, -0.255785, -0.252046, -0.265981, -0.255894],
        [-0.330301, -0.782449, -0.310532, -0.324846, -0.334285],
        0.704292,
    ),
}


@pytest.mark.parametrize("query", ["question", "relation"])
def test_golden_numbers(query: str) -> None:
    task, model = make_task(query=query), Double()
    first, second, loss = LOGITS[query]
    logits = task.logits(model, "g", QUERIES, CPU).detach().numpy().T
    assert np.allclose(logits, [first, second], atol=1e-6)
    assert float(task.losses(model, "g", QUERIES, CPU).detach().mean()) == pytest.approx(loss, abs=1e-6)


def test_no_batch_leaves_an_answer_in_place_and_every_other_query_has_lost_its_head() -> None:
    task = make_task()
    source, relation, target = GRAPH.edges
    for items in batches(deal({"g": range(6)}, 5, 4, seed=0), 4):
        queries = task.queries(items)
        left = np.delete(np.stack([source, relation, target], 1), task.tables["g"].hidden(queries), axis=0).tolist()
        for q in queries:
            inverse = (q.relation + 2) % 4
            assert [q.head, q.relation, q.tail] not in left and [q.tail, inverse, q.head] not in left
        assert [q.relation < 2 for q in queries] == [True, False, True, False]
        assert [q.negatives.tolist() for q in queries] == [q.negatives.tolist() for q in task.queries(items)]


def test_evaluation_ranks_the_answer_among_the_nodes_that_are_no_answers() -> None:
    task, model = make_task(triples=4), Double()
    rows = task.evaluate(model, slice(None), CPU)
    asked = {tuple(map(int, name.split("/")[1:])) for name in rows}
    assert len(asked) == 8 and len({triple for triple, _ in asked}) == 4
    queries = []
    source, relation, target = (part.tolist() for part in GRAPH.edges)
    for triple, start in asked:
        edge = triple if source[triple] == start else triple + 6
        queries.append(TripleQuery(triple, start, relation[edge], target[edge], np.zeros(0, np.int64)))
    for query, scores in zip(queries, task.logits(model, "g", queries, CPU).T.tolist(), strict=True):
        start, asks, tail = query.head, query.relation, query.tail
        known = {t for s, r, t in zip(source, relation, target, strict=True) if (s, r) == (start, asks)}
        place = 1 + sum(scores[n] >= scores[tail] for n in range(5) if n not in known)
        hits = {f"hits@{k}": float(place <= k) for k in (1, 3, 10)}
        assert rows[f"g/{query.triple}/{start}"] == {"mrr": 1 / place, "mr": float(place), **hits}


def test_filtered_ranks_count_ties_against() -> None:
    scores = np.array([0.9, 0.5, 0.5, 0.8, 0.1])
    assert rank_of(scores, 1, np.array([1])) == 4
    assert rank_of(scores, 1, np.array([0, 1])) == 3
    assert rank_of(scores, 0, np.array([0])) == 1


def test_training_on_triples_learns_them() -> None:
    """Relation 1 is relation 0 twice: a hidden triple follows from the others."""
    torch.manual_seed(0)
    ring = [(i, 0, (i + 1) % 12) for i in range(12)] + [(i, 1, (i + 2) % 12) for i in range(12)]
    graph = MessageGraph(tuple("abcdefghijkl"), 0, 0, ("r", "s"), np.array(sorted(ring), np.int32), Lists.of([[]] * 12))
    model = QueryGNN(GNNConfig(dim=16, layers=3, node_text=False, features=["dense"]), 4)
    base = whole_graph(graph, np.eye(4), model)
    task = CompletionTask({"g": graph}, {"g": base}, CompletionConfig(negatives=8, triples=24))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    before = means(task.evaluate(model, slice(None), CPU).values())["mrr"]
    for items in batches(deal({"g": range(24)}, 120, 8, seed=0), 8):
        optimizer.zero_grad()
        task.loss(model, items, CPU).mean().backward()
        optimizer.step()
    assert means(task.evaluate(model, slice(None), CPU).values())["mrr"] > max(0.6, before + 0.2)
