"""Relational sums and aggregates against torch-geometric."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gnnrag.gnn import layers as operators
from gnnrag.gnn.edges import RelationalIndex
from gnnrag.gnn.layers import EdgeInputs, aggregate, relational_sum
from tests.helpers import gfm

N, R, B, D = 40, 6, 3, 4
MESSAGES = ("distmult", "transe", "rotate")


def reference_sum(kind: str) -> nn.Module:
    from torch_geometric.nn import MessagePassing

    class Reference(MessagePassing):
        """The sum as torch-geometric's users would write it; materialises every message."""

        def __init__(self, kind: str) -> None:
            super().__init__(aggr="sum", node_dim=0)
            self.kind = kind

        def forward(self, x: Tensor, edge_index: Tensor, rel: Tensor, weights: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x, rel=rel, weights=weights)

        def message(self, x_j: Tensor, rel: Tensor, weights: Tensor) -> Tensor:
            rel = rel[:, None]
            if self.kind == "rotate":
                turned = torch.complex(*x_j.chunk(2, -1)) * torch.complex(*rel.chunk(2, -1))
                return torch.cat([turned.real, turned.imag], -1) * weights[:, None, None]
            return (x_j * rel if self.kind == "distmult" else x_j + rel) * weights[:, None, None]

    return Reference(kind)


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(N, B, D, generator=rng, dtype=torch.float64)
    rel = torch.randn(R, D, generator=rng, dtype=torch.float64)
    weights = torch.rand(160, generator=rng, dtype=torch.float64)
    weights[::7] = 0
    return x.requires_grad_(), rel.requires_grad_(), weights.requires_grad_()


def with_gradients(compute: Callable[..., Tensor]) -> list[Tensor]:
    x, rel, weights = inputs()
    out = compute(x, rel, weights)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=out.dtype)
    return [out, *torch.autograd.grad(out, (x, rel, weights), cotangent)]


def assert_alike(first: list[Tensor], second: list[Tensor]) -> None:
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 7, 64, 10**6])
@pytest.mark.parametrize("message", MESSAGES)
def test_sums_equal_message_passing(message: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_block_size", lambda x: size)
    source, relation, target = gfm.random_edges()
    index = RelationalIndex(source, relation, target, N)
    reference = reference_sum(message)
    expected = with_gradients(lambda x, rel, w: reference(x, torch.stack([source, target]), rel[relation], w))
    assert_alike(with_gradients(lambda x, rel, w: relational_sum(x, rel, index, w, message)), expected)
    assert not expected[0][N - 1].any() and not expected[2][R - 1].any()  # the isolated node, the idle relation


def test_the_last_node_takes_part() -> None:
    # ULTRA once took the number of rows from the wrong dimension, so that the last node was never updated.
    source, relation, target = gfm.random_edges()
    source, target = torch.cat([source, torch.tensor([2])]), torch.cat([target, torch.tensor([N - 1])])
    index = RelationalIndex(source, torch.cat([relation, torch.tensor([0])]), target, N)
    x, rel, _ = inputs()
    torch.testing.assert_close(relational_sum(x, rel, index)[N - 1], x[2] * rel[0])


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "pna"])
def test_weight_zero_is_no_edge_and_order_is_nothing(kind: str) -> None:
    source, relation, target = gfm.random_edges()
    x, rel, _ = (t.detach() for t in inputs())
    boundary = torch.ones(N, B, D, dtype=torch.float64)
    keep = torch.rand(160, generator=torch.Generator().manual_seed(1)) > 0.3
    masked = EdgeInputs(RelationalIndex(source, relation, target, N), keep.double())
    removed = EdgeInputs(RelationalIndex(source[keep], relation[keep], target[keep], N))
    order = torch.randperm(160, generator=torch.Generator().manual_seed(2))
    shuffled = EdgeInputs(RelationalIndex(source[order], relation[order], target[order], N), keep.double()[order])
    expected = aggregate(x, rel, boundary, removed, kind, "distmult")
    torch.testing.assert_close(aggregate(x, rel, boundary, masked, kind, "distmult"), expected)
    torch.testing.assert_close(aggregate(x, rel, boundary, shuffled, kind, "distmult"), expected)


def test_sums_of_half_precision_are_made_in_float32() -> None:
    count = 3000
    index = RelationalIndex(
        torch.arange(1, count),
        torch.zeros(count - 1, dtype=torch.long),
        torch.zeros(count - 1, dtype=torch.long),
        count,
    )
    x, rel = torch.ones(count, 1, 4, dtype=torch.bfloat16), torch.ones(2, 4, dtype=torch.bfloat16)
    assert relational_sum(x, rel, index)[0, 0, 0] == count - 1  # bfloat16 itself stops counting at 256


def test_a_graph_without_edges_sends_nothing() -> None:
    none = torch.zeros(0, dtype=torch.long)
    x, rel, _ = inputs()
    out = relational_sum(x, rel, RelationalIndex(none, none, none, N))
    out.sum().backward()
    assert not out.any() and not x.grad.any()
    lone = aggregate(x, rel, x, EdgeInputs(RelationalIndex(none, none, none, N)), "max", "distmult")
    assert torch.equal(lone, x)


@pytest.mark.parametrize("kind", ["mean", "max", "min", "pna"])
def test_aggregates_by_hand(kind: str) -> None:
    """Node 2 receives 2 x 3 and 4 x 3, and has a boundary of 1."""
    index = RelationalIndex(torch.tensor([0, 1]), torch.tensor([0, 0]), torch.tensor([2, 2]), 3)
    x, rel = torch.tensor([2.0, 4.0, 0.0])[:, None, None], torch.tensor([[3.0]])
    boundary = torch.tensor([0.0, 0.0, 1.0])[:, None, None]
    found = aggregate(x, rel, boundary, EdgeInputs(index), kind, "distmult")[2, 0]
    received = torch.tensor([6.0, 12.0, 1.0])
    plain = {"mean": received.mean(), "max": received.max(), "min": received.min()}
    if kind != "pna":
        assert found.tolist() == pytest.approx([float(plain[kind])])
        return
    s = float(torch.tensor(3.0).log() / (torch.tensor(3.0).log() / 3))  # the two others have degree 1, log 0
    pieces = [*plain.values(), received.std(correction=0)]
    assert found.tolist() == pytest.approx([float(p) * scale for p in pieces for scale in (1.0, s, 1 / s)], rel=1e-5)


def test_edges_outside_the_graph_are_refused() -> None:
    with pytest.raises(ValueError, match=r"0 \.\. 1"):
        RelationalIndex(*gfm.random_edges(), 2)
