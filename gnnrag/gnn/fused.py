"""The sum of products as one GPU kernel (Triton), forward and backward; imported only where there is such a device.

A program owns a row and a tile of its B x d features, walks over the row's edges and accumulates in float32. Rows of
many edges are cut into pieces, whose sums a second step adds up in order, so no atomic addition makes results differ
from run to run. The gradient of the states is the same kernel on the edges turned; that of the relations walks over the
edges of each relation.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, cast

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from triton.errors import TritonError

from gnnrag.gnn.subgraph import EdgeOrder, RelationalIndex

_ROW_PIECE = 512  # edges of a piece: a hub of thousands would keep one program busy after all others are done
_RELATION_PIECE = 128  # relations are few and long; more pieces, more programs
_TILE = 256
_LOG = logging.getLogger(__name__)


class Pieces(NamedTuple):
    """Runs of edges of one row each."""

    start: Tensor  # (K,) int64 first edge of each piece
    end: Tensor  # (K,) int64
    place: Tensor  # (K,) int64 where its sum is written: its row, or behind the rows if the row has several pieces
    split: Tensor  # rows of several pieces
    first: Tensor  # first piece of each of these, counted behind the rows
    num_rows: int
    num_places: int  # rows and the pieces behind them

    @classmethod
    def cut(cls, bounds: Tensor, size: int) -> Pieces:
        """Cut rows, given by (rows + 1,) bounds, into pieces of at most `size` edges; an empty row is one piece."""
        num_rows = len(bounds) - 1
        counts = ((bounds[1:] - bounds[:-1] + size - 1) // size).clamp(min=1)
        row = torch.repeat_interleave(torch.arange(num_rows, device=bounds.device), counts)
        within = torch.arange(len(row), device=bounds.device) - (counts.cumsum(0) - counts)[row]
        start = bounds[:-1][row] + within * size
        several = counts[row] > 1
        place = torch.where(several, num_rows + several.cumsum(0) - 1, row)
        split = (counts > 1).nonzero().flatten()
        first = counts[split].cumsum(0) - counts[split]
        end = torch.minimum(start + size, bounds[1:][row])
        return cls(start, end, place, split, first, num_rows, num_rows + int(several.sum()))

    def gather(self, sums: Tensor) -> Tensor:
        """Add up the pieces of split rows. From (num_places, width) to (num_rows, width)."""
        out = sums[: self.num_rows]
        if len(self.split):
            pieces = sums[self.num_rows :]
            places = torch.arange(len(pieces), device=sums.device)
            out[self.split] = functional.embedding_bag(places, pieces, self.first, mode="sum")
        return out


@triton.jit
def _sum_kernel(  # type: ignore[no-untyped-def]
    x,
    rel,
    weight,
    edge,
    column,
    relation,
    start,
    end,
    place,
    out,
    width,
    dim,
    weighted: tl.constexpr,
    tile: tl.constexpr,
):
    piece = tl.program_id(0)
    feature = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = feature < width
    within = feature % dim
    total = tl.zeros((tile,), dtype=tl.float32)
    for i in range(tl.load(start + piece), tl.load(end + piece)):
        state = tl.load(x + tl.load(column + i) * width + feature, mask=inside, other=0.0)
        scale = tl.load(rel + tl.load(relation + i) * dim + within, mask=inside, other=0.0)
        if weighted:
            scale = scale * tl.load(weight + tl.load(edge + i))
        total += state * scale
    tl.store(out + tl.load(place + piece) * width + feature, total, mask=inside)


@triton.jit
def _relation_kernel(  # type: ignore[no-untyped-def]
    x,
    grad,
    weight,
    edge,
    source,
    target,
    start,
    end,
    place,
    out,
    batch,
    dim,
    weighted: tl.constexpr,
    tile: tl.constexpr,
):
    piece = tl.program_id(0)
    feature = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = feature < dim
    width = batch * dim
    total = tl.zeros((tile,), dtype=tl.float32)
    for i in range(tl.load(start + piece), tl.load(end + piece)):
        own, received = x + tl.load(source + i) * width, grad + tl.load(target + i) * width
        product = tl.zeros((tile,), dtype=tl.float32)
        for b in range(0, batch):
            product += tl.load(own + b * dim + feature, mask=inside, other=0.0) * tl.load(
                received + b * dim + feature, mask=inside, other=0.0
            )
        if weighted:
            product = product * tl.load(weight + tl.load(edge + i))
        total += product
    tl.store(out + tl.load(place + piece) * dim + feature, total, mask=inside)


@triton.jit
def _weight_kernel(x, grad, rel, source, target, relation, out, width, dim, tile: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0)
    own, received = x + tl.load(source + i) * width, grad + tl.load(target + i) * width
    scale = rel + tl.load(relation + i) * dim
    total = tl.zeros((tile,), dtype=tl.float32)
    for begin in range(0, width, tile):
        feature = begin + tl.arange(0, tile)
        inside = feature < width
        product = tl.load(own + feature, mask=inside, other=0.0) * tl.load(received + feature, mask=inside, other=0.0)
        total += product * tl.load(scale + feature % dim, mask=inside, other=0.0)
    tl.store(out + i, tl.sum(total, axis=0))


def fused_sum(x: Tensor, rel: Tensor, index: RelationalIndex, weights: Tensor | None) -> Tensor:
    """Return the sum of products; see `relational_sum`. All tensors float32, contiguous or not, on one device."""
    # Gates of several layers are columns of one matrix: the kernel would read its neighbours.
    own = None if weights is None else weights.contiguous()
    return cast(Tensor, _FusedSum.apply(x, rel, own, index))


def _tile(width: int) -> int:
    return min(_TILE, triton.next_power_of_2(width))


def _sum_rows(x: Tensor, rel: Tensor, order: EdgeOrder, weights: Tensor | None) -> Tensor:
    flat, rel = x.reshape(len(x), -1).contiguous(), rel.contiguous()
    if order.plan is None:
        order.plan = Pieces.cut(order.row_bounds, _ROW_PIECE)
    pieces, width = order.plan, flat.shape[1]
    out = torch.empty((pieces.num_places, width), dtype=torch.float32, device=x.device)
    tile = _tile(width)
    _sum_kernel[(len(pieces.start), triton.cdiv(width, tile))](
        flat, rel, rel if weights is None else weights, order.edges, order.columns, order.relations,
        pieces.start, pieces.end, pieces.place, out, width, rel.shape[1], weighted=weights is not None, tile=tile,
    )  # fmt: skip
    return pieces.gather(out).view(-1, *x.shape[1:])


def _sum_relations(x: Tensor, grad: Tensor, count: int, index: RelationalIndex, weights: Tensor | None) -> Tensor:
    """Return the gradient of the relation vectors. Shape (count, d)."""
    order, batch, dim = index.by_relation, x.shape[1], x.shape[2]
    if order.plan is None:
        order.plan = Pieces.cut(order.row_bounds, _RELATION_PIECE)
    pieces, tile = order.plan, _tile(dim)
    out = torch.empty((pieces.num_places, dim), dtype=torch.float32, device=x.device)
    _relation_kernel[(len(pieces.start), triton.cdiv(dim, tile))](
        x, grad, x if weights is None else weights, order.edges, index.source[order.edges], index.target[order.edges],
        pieces.start, pieces.end, pieces.place, out, batch, dim, weighted=weights is not None, tile=tile,
    )  # fmt: skip
    found = pieces.gather(out)
    return functional.pad(found, (0, 0, 0, count - len(found)))


class _FusedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rel: Tensor, weights: Tensor | None, index: RelationalIndex) -> Tensor:
        ctx.index = index
        ctx.save_for_backward(x, rel, weights)
        return _sum_rows(x, rel, index.by_target, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, rel, weights = ctx.saved_tensors
        index: RelationalIndex = ctx.index
        x, grad, rel = x.contiguous(), grad.contiguous(), rel.contiguous()
        need_x, need_rel, need_weights = ctx.needs_input_grad[:3]
        grad_x = _sum_rows(grad, rel, index.by_source, weights) if need_x else None
        grad_rel = _sum_relations(x, grad, len(rel), index, weights) if need_rel else None
        grad_weights = None
        if need_weights:
            grad_weights = torch.zeros(len(index.source), dtype=torch.float32, device=x.device)
            order, width = index.by_source, x.shape[1] * x.shape[2]
            if len(order.edges):
                found = torch.empty(len(order.edges), dtype=torch.float32, device=x.device)
                _weight_kernel[(len(order.edges),)](
                    x, grad, rel, order.rows, order.columns, order.relations, found, width, rel.shape[1],
                    tile=_tile(width),
                )  # fmt: skip
                grad_weights[order.edges] = found
        return grad_x, grad_rel, grad_weights, None


def is_correct(device: torch.device) -> bool:
    """Tell whether the kernel compiles on a device and agrees with plain operations there; if not, the log says so."""
    rng = torch.Generator().manual_seed(0)
    source, relation, target = (torch.randint(0, high, (700,), generator=rng).to(device) for high in (9, 4, 1))
    index = RelationalIndex(source, relation, target, num_nodes=9)  # a hub of 700 edges at node 0
    x, rel = torch.randn(9, 2, 24, generator=rng).to(device), torch.randn(4, 24, generator=rng).to(device)
    expected = torch.zeros_like(x).index_add(0, target, x[source] * rel[relation][:, None])
    try:
        with torch.inference_mode(False), torch.enable_grad():  # the first call may come from inference
            x, rel = x.clone().requires_grad_(), rel.clone().requires_grad_()
            out = fused_sum(x, rel, index, None)
            out.sum().backward()
        agrees = torch.allclose(out, expected, atol=1e-3) and x.grad is not None and rel.grad is not None
    except (TritonError, RuntimeError) as error:
        _LOG.warning("the Triton kernel does not run on %s (%s); using embedding bags", device, error)
        return False
    if not agrees:
        _LOG.warning("the Triton kernel is wrong on %s; using embedding bags", device)
    return agrees
