"""Sums and aggregates of messages against sums that are written out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gnnrag.gnn.edges import SortedEdges
from gnnrag.gnn.layers import RelationalConv
from tests.helpers import gfm

N, R, B, D = 40, 6, 3, 4
NOTHING = torch.zeros(1, dtype=torch.float64)


def messages(kind: str, x: Tensor, rel: Tensor) -> Tensor:
    """The messages as the papers of DistMult, TransE and RotatE define them."""
    if kind == "rotate":
        turned = torch.complex(*x.chunk(2, -1)) * torch.complex(*rel[:, None].chunk(2, -1))
        return torch.cat([turned.real, turned.imag], -1)
    return x * rel[:, None] if kind == "distmult" else x + rel[:, None]


def inputs() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(N, B, D, generator=rng, dtype=torch.float64)
    rel = torch.randn(R, D, generator=rng, dtype=torch.float64)
    return x.requires_grad_(), rel.requires_grad_()


def with_gradients(compute: Callable[..., Tensor]) -> list[Tensor]:
    x, rel = inputs()
    out = compute(x, rel)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=out.dtype)
    return [out, *torch.autograd.grad(out, (x, rel), cotangent)]


def assert_alike(first: list[Tensor], second: list[Tensor]) -> None:
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", ["distmult", "transe", "rotate"])
def test_sums_are_those_of_all_messages(kind: str) -> None:
    source, relation, target = gfm.random_edges()
    edges = SortedEdges(source, relation, target, N)

    def expected(x: Tensor, rel: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, target, messages(kind, x[source], rel[relation]))

    written_out = with_gradients(expected)
    assert_alike(with_gradients(lambda x, rel: RelationalConv(kind, "sum")(x, rel, NOTHING, edges)), written_out)
    assert not written_out[0][N - 1].any() and not written_out[2][R - 1].any()  # the isolated node, the idle relation


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "pna"])
def test_the_order_of_edges_is_nothing(kind: str) -> None:
    source, relation, target = gfm.random_edges()
    boundary = torch.ones(N, B, D, dtype=torch.float64)
    order = torch.randperm(160, generator=torch.Generator().manual_seed(2))
    conv = RelationalConv("distmult", kind)

    def received(edges: SortedEdges) -> list[Tensor]:
        return with_gradients(lambda x, rel: conv(x, rel, boundary, edges))

    shuffled = SortedEdges(source[order], relation[order], target[order], N)
    assert_alike(received(shuffled), received(SortedEdges(source, relation, target, N)))


def test_sums_of_half_precision_are_made_in_float32() -> None:
    count = 3000
    zeros = torch.zeros(count - 1, dtype=torch.long)
    edges = SortedEdges(torch.arange(1, count), zeros, zeros, count)
    x, rel = torch.ones(count, 1, 4, dtype=torch.bfloat16), torch.ones(2, 4, dtype=torch.bfloat16)
    received = RelationalConv("distmult", "sum")(x, rel, torch.zeros(1), edges)
    assert received[0, 0, 0] == count - 1  # bfloat16 itself stops counting at 256


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_a_graph_without_edges_sends_nothing(kind: str) -> None:
    none = torch.zeros(0, dtype=torch.long)
    x, rel = inputs()
    out = RelationalConv("distmult", kind)(x, rel, 2 * x, SortedEdges(none, none, none, N))
    out.sum().backward()
    assert torch.equal(out, 2 * x) and (x.grad == 2).all()


@pytest.mark.parametrize("kind", ["mean", "max", "min", "pna"])
def test_aggregates_by_hand(kind: str) -> None:
    """Node 2 receives 2 x 3 and 4 x 3, and has a boundary of 1."""
    edges = SortedEdges(torch.tensor([0, 1]), torch.tensor([0, 0]), torch.tensor([2, 2]), 3)
    x, rel = torch.tensor([2.0, 4.0, 0.0])[:, None, None], torch.tensor([[3.0]])
    boundary = torch.tensor([0.0, 0.0, 1.0])[:, None, None]
    found = RelationalConv("distmult", kind)(x, rel, boundary, edges)[2, 0]
    received = torch.tensor([6.0, 12.0, 1.0])
    plain = {"mean": received.mean(), "max": received.max(), "min": received.min()}
    if kind != "pna":
        assert found.tolist() == pytest.approx([float(plain[kind])])
        return
    s = float(torch.tensor(3.0).log() / (torch.tensor(3.0).log() / 3))  # the two others have degree 1, log 0
    pieces = [*plain.values(), received.std(correction=0)]
    assert found.tolist() == pytest.approx([float(p) * scale for p in pieces for scale in (1.0, s, 1 / s)], rel=1e-5)
