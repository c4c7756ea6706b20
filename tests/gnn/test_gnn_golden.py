"""Golden numbers of specs/gfm_rag.md 8: our layers, rankers and losses against numbers that three codes agree on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gnnrag.gnn.layers import EdgeInputs
from gnnrag.gnn.model import with_index
from tests.helpers import gfm

H1 = [
    [[1.211032, 0.55, -1], [0, 0.739451, 0.851985], [0, 0.5, 1.047107], [0, 0.836044, 0.755296], [0, 0.5, 1.047107]],
    [
        [0, 0.397226, 1.112218],
        [-0.225, 1.204874, 0.560048],
        [0, 0.386876, 1.11815],
        [0, 0.5, 1.047107],
        [0, 0.5, 1.047107],
    ],
]
H2 = [
    [
        [2.026512, 0.55, -1],
        [0, 1.50059, 0.851985],
        [0, 1.2618, 1.047107],
        [0, 1.594191, 0.755296],
        [0, 1.27148, 1.047107],
    ],
    [
        [0, 1.0485, 1.112218],
        [-0.225, 1.969713, 0.560048],
        [0, 1.147074, 1.11815],
        [0, 1.23023, 1.047107],
        [0, 1.271474, 1.047107],
    ],
]
LOGITS = [
    [-0.714940, -0.577910, -0.524530, -0.600652, -0.525982],
    [-0.343514, -0.757442, -0.353230, -0.375875, -0.380412],
]


def close(found: Tensor, expected: list[object], atol: float = 1e-6) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=atol, rtol=0)


def states(columns: list[object]) -> Tensor:
    """Turn (B, N, d) as the spec prints it into (N, B, d)."""
    return torch.tensor(columns, dtype=torch.float64).transpose(0, 1)


@pytest.mark.parametrize("backend", ["naive", "bag"])
def test_intermediate_states(backend: str) -> None:
    model, batch = gfm.golden_model(backend), with_index(gfm.golden_batch())
    rel = model.encode_relations(batch.relation_vectors)
    close(
        model.rel_mlp(batch.relation_vectors),
        [[0, -0.2, 0.7], [0.3, 0.1, -0.1], [-0.15, 0.4, -0.15], [-0.6, -0.05, 1.05]],
    )
    close(rel[0], [[-0.4, -0.222, -0.044], [-0.4, -0.156, 0.088], [-0.4, -0.18, 0.04], [-0.3955, -0.2775, -0.1595]])
    close(
        rel[1],
        [[-0.248, -0.046, 0.09], [-0.307, 0.019, 0.213], [-0.249, -0.051, 0.147], [-0.1345, -0.0725, -0.0105]],
    )
    q = model.question_mlp(batch.questions)
    close(q, [[0.45, 0.55, -1], [-0.45, 0.7, -0.35]])
    boundary = model._boundary(batch, q, None)
    x = boundary
    for layer, vectors, expected in zip(model.layers, rel, (H1, H2), strict=True):
        x = layer(x, vectors, boundary, EdgeInputs(batch.index), backend)
        torch.testing.assert_close(x, states(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize("backend", ["naive", "bag"])
def test_logits(backend: str) -> None:
    model = gfm.golden_model(backend)
    close(model(gfm.golden_batch()).T, LOGITS)
    ones = torch.ones(5, dtype=torch.float64)
    close(model(gfm.golden_batch(ones)).T, [LOGITS[0], [-0.221246, -1.314216, -0.327969, -0.327124, -1.314456]])
    empty = [
        [-0.520089, -0.525043, -0.524224, -0.519614, -0.525982],
        [-0.376091, -0.379723, -0.379123, -0.375742, -0.380412],
    ]
    close(model(gfm.golden_batch(mask=torch.zeros(5, 2, dtype=torch.float64))).T, empty)


def test_upstream_direction_equals_turned_edges() -> None:
    expected = [
        [-0.715047, -0.560686, -0.522646, -0.626911, -0.526086],
        [-0.353052, -0.759468, -0.358603, -0.375455, -0.380326],
    ]
    batch = gfm.golden_batch()
    turned = replace(batch, source=batch.target, target=batch.source)
    close(gfm.golden_model()(turned).T, expected)
    close(gfm.golden_model(upstream_direction=True)(batch).T, expected)
