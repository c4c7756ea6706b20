"""Golden numbers of specs/gfm_rag.md 8: logits, losses and gradients against numbers that three codes agree on.

Aggregates other than the sum, and rankers, are held by `tests/goldens/test_golden_gfm.py`.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gnnrag.gnn import LossConfig
from gnnrag.gnn.stages import Candidates, listwise_loss, retrieval_loss, weighted_bce
from tests.helpers import gfm

LOGITS = [
    [-0.714940, -0.577910, -0.524530, -0.600652, -0.525982],
    [-0.343514, -0.757442, -0.353230, -0.375875, -0.380412],
]


def close(found: Tensor, expected: object, atol: float = 1e-6) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=atol, rtol=0)


def test_logits() -> None:
    model = gfm.golden_model()
    close(model(gfm.golden_batch()).T, LOGITS)
    ones = torch.ones(5, dtype=torch.float64)
    close(model(gfm.golden_batch(ones)).T, [LOGITS[0], [-0.221246, -1.314216, -0.327969, -0.327124, -1.314456]])
    empty = [
        [-0.520089, -0.525043, -0.524224, -0.519614, -0.525982],
        [-0.376091, -0.379723, -0.379123, -0.375742, -0.380412],
    ]
    close(model(gfm.golden_batch(mask=torch.zeros(5, 2, dtype=torch.float64))).T, empty)


def test_supervised_losses() -> None:
    candidates = Candidates.of(gfm.golden_model()(gfm.golden_batch()), gfm.TARGETS)
    close(weighted_bce(candidates, 0.2).mean(), 0.715292)
    close(weighted_bce(candidates, 0.0).mean(), 0.703022)
    close(listwise_loss(candidates).mean(), 1.575371)
    close(retrieval_loss(candidates, LossConfig()).mean(), 1.317348)


def test_gradients_of_the_loss() -> None:
    model, batch = gfm.golden_model(), gfm.golden_batch()
    relations, questions = gfm.RELATIONS.clone().requires_grad_(), gfm.QUESTIONS.clone().requires_grad_()
    logits = model(replace(batch, relation_vectors=relations, questions=questions))
    retrieval_loss(Candidates.of(logits, gfm.TARGETS), LossConfig()).mean().backward()
    expected = [
        [4.728994e-4, -8.433123e-4],
        [9.074046e-4, 2.131318e-3],
        [3.575810e-5, -4.561229e-5],
        [1.090685e-5, 1.874830e-4],
    ]
    close(relations.grad, expected, 1e-9)
    close(questions.grad, [[0.006321, -0.010314], [0.027158, -0.007304]])
    expected = [
        [-6.150899e-4, 4.368383e-4, 6.930230e-4],
        [6.323103e-4, 5.269253e-5, -1.106543e-3],
        [1.575053e-3, 1.751306e-4, 6.995868e-4],
    ]
    close(model.layers[1].relation_projection[0].weight.grad, expected, 1e-9)
    close(model.head_out.weight.grad[0], [-0.006897, 0, 0.021781, -0.045751, 0.024322, 0.031977])
