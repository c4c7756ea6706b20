"""Relational sums and statistics: every back end against plain loops and the naive form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gnnrag.errors import ConfigError
from gnnrag.gnn import layers as operators
from gnnrag.gnn.layers import MESSAGES, STATISTICS, EdgeInputs, Wanted, aggregate, message_statistics, relational_sum
from gnnrag.gnn.subgraph import RelationalIndex
from tests.helpers import gfm

N, R, B, D = 40, 6, 3, 4


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


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("backend", ["naive", "bag"])
def test_sums_equal_message_passing(message: str, backend: str) -> None:
    source, relation, target = gfm.random_edges()
    index = RelationalIndex(source, relation, target, N)
    reference = reference_sum(message)
    expected = with_gradients(lambda x, rel, w: reference(x, torch.stack([source, target]), rel[relation], w))
    assert_alike(with_gradients(lambda x, rel, w: relational_sum(x, rel, index, w, message, backend)), expected)
    assert not expected[0][N - 1].any() and not expected[2][R - 1].any()  # the isolated node, the idle relation


def test_the_last_node_takes_part() -> None:
    # ULTRA once took the number of rows from the wrong dimension, so that the last node was never updated.
    source, relation, target = gfm.random_edges()
    source, target = torch.cat([source, torch.tensor([2])]), torch.cat([target, torch.tensor([N - 1])])
    index = RelationalIndex(source, torch.cat([relation, torch.tensor([0])]), target, N)
    x, rel, _ = inputs()
    torch.testing.assert_close(relational_sum(x, rel, index, backend="bag")[N - 1], x[2] * rel[0])


@pytest.mark.parametrize("size", [1, 7, 64, 10**6])
def test_any_size_of_block_gives_the_same(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    index = RelationalIndex(*gfm.random_edges(), N)
    expected = with_gradients(lambda x, rel, w: relational_sum(x, rel, index, w, backend="naive"))
    monkeypatch.setattr(operators, "_block_size", lambda x: size)
    assert_alike(with_gradients(lambda x, rel, w: relational_sum(x, rel, index, w, backend="bag")), expected)
    wanted = Wanted(STATISTICS)
    expected = with_gradients(lambda x, rel, w: finite(message_statistics(x, rel, index, w, wanted, -1)))
    assert_alike(with_gradients(lambda x, rel, w: finite(message_statistics(x, rel, index, w, wanted, size))), expected)


def finite(values: Tensor) -> Tensor:
    return values.nan_to_num(posinf=0.0, neginf=0.0)


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "pna"])
@pytest.mark.parametrize("message", MESSAGES)
def test_aggregates_of_both_back_ends_agree(kind: str, message: str) -> None:
    index = RelationalIndex(*gfm.random_edges(), N)
    boundary = torch.randn(N, B, D, generator=torch.Generator().manual_seed(9), dtype=torch.float64)

    def run(backend: str) -> list[Tensor]:
        return with_gradients(
            lambda x, rel, w: aggregate(x, rel, boundary, EdgeInputs(index, w), (kind, message), backend)
        )

    assert_alike(run("bag"), run("naive"))


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
    expected = aggregate(x, rel, boundary, removed, (kind, "distmult"))
    torch.testing.assert_close(aggregate(x, rel, boundary, masked, (kind, "distmult")), expected)
    torch.testing.assert_close(aggregate(x, rel, boundary, shuffled, (kind, "distmult")), expected)


def test_sums_of_half_precision_are_made_in_float32() -> None:
    count = 3000
    index = RelationalIndex(
        torch.arange(1, count),
        torch.zeros(count - 1, dtype=torch.long),
        torch.zeros(count - 1, dtype=torch.long),
        count,
    )
    x, rel = torch.ones(count, 1, 4, dtype=torch.bfloat16), torch.ones(2, 4, dtype=torch.bfloat16)
    for backend in ("naive", "bag"):  # bfloat16 itself stops counting at 256
        assert relational_sum(x, rel, index, backend=backend)[0, 0, 0] == count - 1


def test_a_graph_without_edges_sends_nothing() -> None:
    none = torch.zeros(0, dtype=torch.long)
    x, rel, _ = inputs()
    out = relational_sum(x, rel, RelationalIndex(none, none, none, N), backend="bag")
    out.sum().backward()
    assert not out.any() and not x.grad.any()
    lone = aggregate(x, rel, x, EdgeInputs(RelationalIndex(none, none, none, N)), ("max", "distmult"))
    assert torch.equal(lone, x)


def test_bad_calls_are_refused() -> None:
    index = RelationalIndex(*gfm.random_edges(), N)
    x, rel, _ = inputs()
    with pytest.raises(ConfigError, match=r"gnn.message='distmul'.*distmult"):
        relational_sum(x, rel, index, message="distmul")
    with pytest.raises(ConfigError, match="backend='cuda'"):
        relational_sum(x, rel, index, backend="cuda")
    with pytest.raises(ConfigError, match="must be even"):
        relational_sum(x[..., :3], rel[:, :3], index, message="rotate")
    with pytest.raises(ValueError, match=r"0 \.\. 1"):
        RelationalIndex(*gfm.random_edges(), 2)
    with pytest.raises(ValueError, match="2 sources, 1 relations"):
        RelationalIndex(torch.zeros(2).long(), torch.zeros(1).long(), torch.zeros(2).long(), 2)
