from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag.arrays import Lists
from gnnrag.gnn import GNNConfig
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.stages import CompletionConfig, CompletionItem, CompletionTask, TripleQuery, rank_of, whole_graph
from gnnrag.graphs.messages import MessageGraph
from gnnrag.training.networks import Draws
from gnnrag.training.report import means
from tests.helpers.gfm import TRIPLES, golden_batch, golden_model

GRAPH = MessageGraph(tuple("abcde"), 0, 0, ("r", "s"), TRIPLES.numpy().astype(np.int32), Lists.of([[]] * 5))
CPU = torch.device("cpu")


def make_task(**settings: Any) -> CompletionTask:
    config = CompletionConfig(**{"negatives": 2, "triples": 6, **settings})
    # Sorted copies of the edges keep their order: that of the graph, both directions of every triple.
    base = golden_batch().sorted()
    draws = Draws({"g": 6}, batch_size=4, steps=5, seed=0, together=True)
    return CompletionTask({"g": GRAPH}, {"g": base}, config, draws)


def golden_items(task: CompletionTask, hide: bool = True) -> list[CompletionItem]:
    queries = [TripleQuery(0, 0, 0, 1, np.array([2, 4])), TripleQuery(0, 1, 2, 0, np.array([3, 4]))]
    hidden = task.tables["g"].hidden(queries) if hide else np.zeros(0, dtype=np.int64)
    return [CompletionItem("g", query, hidden) for query in queries]


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
    items = golden_items(task)
    assert len(items[0].hidden) == 2
    first, second, loss = LOGITS[query]
    logits = task._logits(model, items, CPU).detach().numpy().T
    assert np.allclose(logits, [first, second], atol=1e-6)
    assert float(task.loss(model, items, CPU).detach().mean()) == pytest.approx(loss, abs=1e-6)


def test_no_batch_leaves_an_answer_in_place() -> None:
    """A network of one layer sees only the edges of the head: a triple that stays would show."""
    task = make_task()
    source, relation, target = GRAPH.edges
    for step in range(5):
        items = task.batch(step)
        left = np.delete(np.stack([source, relation, target], 1), items[0].hidden, axis=0).tolist()
        for item in items:
            q = item.query
            inverse = (q.relation + 2) % 4
            assert [q.head, q.relation, q.tail] not in left and [q.tail, inverse, q.head] not in left
        assert [item.query.relation < 2 for item in items] == [True, True, False, False]


def test_batches_follow_from_the_step_alone() -> None:
    def plain(task: CompletionTask, step: int) -> list[Any]:
        return [(i.query.triple, i.query.negatives.tolist(), i.hidden.tolist()) for i in task.batch(step)]

    one, other = make_task(), make_task()
    assert [plain(one, s) for s in range(5)] == [plain(other, s) for s in (0, 1, 2, 3, 4)]
    assert plain(one, 3) == plain(other, 3) != plain(one, 2)


@pytest.mark.parametrize("size", [1, 3])
def test_the_first_half_of_a_batch_has_lost_its_tails(size: int) -> None:
    task = make_task()
    task.draws = Draws({"g": 6}, batch_size=size, steps=5, seed=0, together=True)
    relations = [item.query.relation < 2 for item in task.batch(1)]
    assert relations == [2 * n < size for n in range(size)]


def test_evaluation_ranks_the_answer_among_the_nodes_that_are_no_answers() -> None:
    task, model = make_task(triples=4), Double()
    rows = task.evaluate(model, slice(None), CPU)
    asked = {tuple(map(int, name.split("/")[1:])) for name in rows}
    assert len(asked) == 8 and len({triple for triple, _ in asked}) == 4
    hidden = np.array(sorted({row for triple, _ in asked for row in (triple, triple + 6)}))
    source, relation, target = (part.tolist() for part in GRAPH.edges)
    for triple, start in asked:
        edge = triple if source[triple] == start else triple + 6
        query = TripleQuery(triple, start, relation[edge], target[edge], np.zeros(0, np.int64))
        scores = task._logits(model, [CompletionItem("g", query, hidden)], CPU)[:, 0].tolist()
        known = {t for s, r, t in zip(source, relation, target, strict=True) if (s, r) == (start, relation[edge])}
        place = 1 + sum(scores[n] >= scores[target[edge]] for n in range(5) if n not in known)
        hits = {f"hits@{k}": float(place <= k) for k in (1, 3, 10)}
        assert rows[f"g/{triple}/{start}"] == {"mrr": 1 / place, "mr": float(place), **hits}


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
    draws = Draws({"g": 24}, batch_size=8, steps=120, seed=0, together=True)
    task = CompletionTask({"g": graph}, {"g": base}, CompletionConfig(negatives=8, triples=24), draws)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    before = means(task.evaluate(model, slice(None), CPU).values())["mrr"]
    for step in range(120):
        optimizer.zero_grad()
        task.loss(model, task.batch(step), CPU).mean().backward()
        optimizer.step()
    assert means(task.evaluate(model, slice(None), CPU).values())["mrr"] > max(0.6, before + 0.2)
