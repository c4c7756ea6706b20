"""Explanations: paths that exist, that carry the score, in both layouts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gnnrag.gnn import GNNConfig
from gnnrag.gnn.edges import GraphBatch
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.scoring import edge_gradients, explain
from tests.helpers import gfm


def question(batch: GraphBatch, column: int) -> GraphBatch:
    """One question of a batch."""
    only = slice(column, column + 1)
    return replace(batch, questions=batch.questions[only], seeds=batch.seeds[:, only])


def test_gradients_agree_with_differences() -> None:
    model, batch = gfm.golden_model(), gfm.golden_batch()
    gradients = edge_gradients(model, question(batch, 0), 2)
    step = 1e-6
    for layer in range(2):
        for edge in range(12):
            ends = []
            for sign in (1, -1):
                weights = [torch.ones(12, dtype=torch.float64) for _ in range(2)]
                weights[layer][edge] += sign * step
                ends.append(model(batch, layer_weights=weights)[2, 0].item())
            assert gradients[layer][edge] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)


def test_paths_are_those_of_an_exhaustive_search() -> None:
    model, batch = gfm.golden_model(), gfm.golden_batch()
    single = question(batch, 0)
    found = explain(model, single, node=2, beam=100, top_k=100)
    gradients = edge_gradients(model, single, 2)
    edges = list(zip(batch.source.tolist(), batch.relation.tolist(), batch.target.tolist(), strict=True))
    expected: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}

    def keep(nodes: tuple[int, ...], relations: tuple[int, ...], score: float) -> None:
        expected[nodes, relations] = max(score, expected.get((nodes, relations), -1e9))

    for i, (a, r, b) in enumerate(edges):
        for layer in range(2):
            if a == 0 and b == 2:
                keep((a, b), (r,), gradients[layer][i])
        for j, (c, s, d) in enumerate(edges):
            if a == 0 and b == c and d == 2 and b not in (0, 2):
                keep((a, b, d), (r, s), (gradients[0][i] + gradients[1][j]) / 2)
    assert {(p.nodes, p.relations): pytest.approx(p.score) for p in found} == expected
    assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)
    assert explain(model, single, node=2, beam=1, top_k=1) == found[:1], "a narrow beam keeps the first"


def test_both_layouts_explain_alike() -> None:
    model, batch = gfm.golden_model(), gfm.golden_batch()
    torch.testing.assert_close(model(gfm.blocks(batch)).view(2, 5), model(batch).T)
    shared, own = explain(model, question(batch, 1), node=2), explain(model, gfm.blocks(batch), node=7)
    assert [tuple(v - 5 for v in path.nodes) for path in own] == [path.nodes for path in shared]
    assert [path.score for path in own] == pytest.approx([path.score for path in shared])


def test_a_network_without_layers_has_no_paths() -> None:
    config = GNNConfig(dim=4, layers=0, features=["dense"])
    batch = replace(gfm.random_batch(), features=torch.rand(40, 3, 1, dtype=torch.float64))
    assert explain(QueryGNN(config, 6).double(), batch, node=3) == []
