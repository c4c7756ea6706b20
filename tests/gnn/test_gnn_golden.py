"""Golden numbers of specs/gfm_rag.md 8: our layers, rankers and losses against numbers that three codes agree on."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gnnrag.gnn.config import LossConfig, RankerConfig
from gnnrag.gnn.layers import EdgeInputs, aggregate
from gnnrag.gnn.losses import Candidates, listwise_loss, retrieval_loss, weighted_bce
from gnnrag.gnn.model import with_index
from gnnrag.gnn.operators import relational_sum
from gnnrag.gnn.rankers import Incidence, Ranker, inverse_frequency
from gnnrag.graphs.knowledge import Lists
from tests.helpers import gfm
from tests.helpers.each import each

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


def close(found: Tensor, expected: object, atol: float = 1e-6) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=atol, rtol=0)


def states(columns: list[object]) -> Tensor:
    """Turn (B, N, d) as the spec prints it into (N, B, d)."""
    return torch.tensor(columns, dtype=torch.float64).transpose(0, 1)


@each("backend", ["naive", "bag"])
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


@each("backend", ["naive", "bag"])
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


def documents() -> Incidence:
    lists = [[d for d, members in enumerate(gfm.DOCUMENTS) if v in members] for v in range(5)]
    return Incidence.of(Lists.of(lists), 3)


@each(
    "name, expected",
    [
        ("simple", [[-1.292849, -1.102440, -1.125182], [-1.100956, -1.110672, -0.729105]]),
        ("idf", [[-1.003894, -0.551220, -0.862917], [-0.722235, -0.555336, -0.552490]]),
        ("topk", [[0, 1, 1], [1, 1, 1]]),
        ("idf_topk", [[0, 0.5, 0.5], [1, 0.5, 0.5]]),
    ],
)
def test_rankers(name: str, expected: list[object]) -> None:
    ranker = Ranker(RankerConfig(name=name, top_k=2, tie_break=0.0))
    close(ranker(gfm.golden_model()(gfm.golden_batch()), documents()).T, expected)


def test_seed_weights_follow_document_frequency() -> None:
    frequency = documents().frequency
    assert frequency.tolist() == [1, 2, 2, 1, 0]
    close(inverse_frequency(frequency).double(), gfm.WEIGHTS.tolist())
    assert inverse_frequency(frequency, unseen=1.0)[4] == 1


def test_supervised_losses() -> None:
    candidates = Candidates.of(gfm.golden_model()(gfm.golden_batch()), gfm.TARGETS)
    close(weighted_bce(candidates, 0.2), 0.715292)
    close(weighted_bce(candidates, 0.0), 0.703022)
    close(listwise_loss(candidates), 1.575371)
    close(retrieval_loss(candidates, LossConfig()), 1.317348)


@each("backend", ["naive", "bag"])
def test_gradients_of_the_loss(backend: str) -> None:
    model, batch = gfm.golden_model(backend), gfm.golden_batch()
    relations, questions = gfm.RELATIONS.clone().requires_grad_(), gfm.QUESTIONS.clone().requires_grad_()
    logits = model(replace(batch, relation_vectors=relations, questions=questions))
    retrieval_loss(Candidates.of(logits, gfm.TARGETS), LossConfig()).backward()
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


@each("backend", ["naive", "bag"])
def test_operator_alone(backend: str) -> None:
    index = with_index(gfm.golden_batch()).index
    # The inputs at full precision: six printed digits would cost the sixth digit of the sums.
    model, batch = gfm.golden_model(), gfm.golden_batch()
    with torch.no_grad():
        rel0, rel1 = model.encode_relations(batch.relation_vectors)
        boundary = model._boundary(batch, model.question_mlp(batch.questions), None)
        h1 = model.layers[0](boundary, rel0, boundary, EdgeInputs(index))
    x, rel = h1.requires_grad_(), rel1.requires_grad_()
    out = relational_sum(x, rel, index, backend=backend)
    close(out.sum(), 0.290802)
    out.sum().backward()
    expected = [
        [2.422063, 3.230496, 2.026840],
        [0.986032, 3.891551, 3.618466],
        [-0.225, 4.167246, 5.379694],
        [0, 3.558965, 5.770063],
    ]
    close(rel.grad, expected)
    expected = [
        [-0.803, -0.073, 0.393],
        [-0.556, -0.032, 0.36],
        [-0.3835, -0.1235, 0.1365],
        [-0.766, -0.242, 0.216],
        [-0.307, 0.019, 0.213],
    ]
    for column in range(2):
        close(x.grad[:, column], expected)


@each("backend", ["naive", "bag"])
def test_pna_pieces(backend: str) -> None:
    model, batch = gfm.golden_model(), with_index(gfm.golden_batch())
    rel0, rel1 = model.encode_relations(batch.relation_vectors)
    boundary = model._boundary(batch, model.question_mlp(batch.questions), None)
    edges = EdgeInputs(batch.index)
    h1 = model.layers[0](boundary, rel0, boundary, edges)
    scale = [1.177599, 0.933225, 0.933225, 1.367150, 0.588800]
    close(edges.scale(torch.float64).flatten(), scale)
    pieces = aggregate(h1, rel1, boundary, edges, ("pna", "distmult"), backend).view(5, 2, 3, 4, 3)
    plain = pieces[..., 0]
    close(plain[3, 0, :, 0], [-0.134425, -0.006170, 0.014792])
    close(plain[3, 0, :, 1], [0, 0.010450, 0.223034])
    close(plain[3, 0, :, 2], [-0.371787, -0.025500, -0.213000])
    close(plain[3, 0, :, 3], [0.166179, 0.016121, 0.158627])
    close(plain[2, 1, :, 0], [0.023025, -0.000036, 0.071177])
    close(plain[2, 1, :, 1], [0.069075, 0.022893, 0.119290])
    close(plain[2, 1, :, 2], [0, -0.023000, 0])
    close(plain[2, 1, :, 3], [0.032562, 0.018736, 0.051358])
    torch.testing.assert_close(pieces[..., 1], plain * torch.tensor(scale)[:, None, None, None], atol=1e-5, rtol=0)
    torch.testing.assert_close(pieces[..., 2], plain / torch.tensor(scale)[:, None, None, None], atol=1e-5, rtol=0)
