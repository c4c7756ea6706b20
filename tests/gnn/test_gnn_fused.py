"""The GPU kernel against the naive form.

With a GPU: `pytest -m gpu tests/gnn`. Its arithmetic can be checked without one, by Triton's interpreter:
`TRITON_INTERPRET=1 pytest -m gpu tests/gnn`.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from gnnrag.gnn.layers import relational_sum
from gnnrag.gnn.subgraph import RelationalIndex
from tests.helpers import gfm
from tests.helpers.each import each

pytestmark = pytest.mark.gpu


@pytest.fixture
def device() -> str:
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return "cuda"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "cpu"
    pytest.skip("no CUDA device, and TRITON_INTERPRET is not 1")


def graph(hub: int) -> tuple[Tensor, Tensor, Tensor]:
    """The random graph and a hub of some more edges into node 7."""
    source, relation, target = gfm.random_edges()
    more = torch.arange(hub) % 39
    return torch.cat([source, more]), torch.cat([relation, more % 5]), torch.cat([target, torch.full((hub,), 7)])


@each("batch, dim", [(1, 8), (3, 24), (5, 100)])
@each("weighted", [False, True])
@each("hub", [0, 1200])
def test_kernel_equals_naive(batch: int, dim: int, weighted: bool, hub: int, device: str) -> None:
    from gnnrag.gnn.fused import fused_sum, is_correct

    assert is_correct(torch.device(device))
    edges = graph(hub)
    index = RelationalIndex(*(t.to(device) for t in edges), 40)
    rng = torch.Generator().manual_seed(3)
    inputs = [torch.randn(40, batch, dim, generator=rng), torch.randn(6, dim, generator=rng)]
    if weighted:
        inputs.append(torch.rand(len(edges[0]), generator=rng))
    leaves = [t.to(device).requires_grad_() for t in inputs]
    cotangent = torch.randn(40, batch, dim, generator=rng).to(device)
    results = []
    for kernel in (True, False):
        x, rel, *weights = leaves
        weight = weights[0] if weights else None
        out = fused_sum(x, rel, index, weight) if kernel else relational_sum(x, rel, index, weight, backend="naive")
        results.append([out, *torch.autograd.grad(out, leaves, cotangent)])
    for a, b in zip(*results, strict=True):
        assert (a - b).abs().max() < 1e-5 * b.abs().max()


def test_gates_that_are_columns_of_a_matrix(device: str) -> None:
    from gnnrag.gnn.fused import fused_sum, is_correct

    with torch.inference_mode():  # where a run asks first
        assert is_correct(torch.device(device))
    index = RelationalIndex(*(t.to(device) for t in graph(0)), 40)
    rng = torch.Generator().manual_seed(5)
    x, rel = torch.randn(40, 1, 8, generator=rng).to(device), torch.randn(6, 8, generator=rng).to(device)
    gates = torch.rand(len(index.source), 3, generator=rng).to(device).T
    for gate in gates:
        assert not gate.is_contiguous()
        torch.testing.assert_close(fused_sum(x, rel, index, gate), relational_sum(x, rel, index, gate, backend="naive"))


def test_restricted_index(device: str) -> None:
    from gnnrag.gnn.fused import fused_sum

    index = RelationalIndex(*(t.to(device) for t in graph(700)), 40)
    some = torch.arange(40, device=device) % 3 == 0
    x = torch.randn(40, 2, 16, generator=torch.Generator().manual_seed(1)).to(device) * some[:, None, None]
    rel = torch.randn(6, 16, generator=torch.Generator().manual_seed(2)).to(device).requires_grad_()
    gradients = []
    for near in (index, index.leaving(some)):
        out = fused_sum(x, rel, near, None)
        gradients.append([out, torch.autograd.grad(out.square().sum(), rel)[0]])
    for a, b in zip(*gradients, strict=True):
        assert (a - b).abs().max() < 1e-5 * b.abs().max()
