"""Statistics of the messages a node receives that are not linear (max, min, squares), computed in blocks of rows."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnrag.gnn.edges import EdgeOrder, RelationalIndex
from gnnrag.gnn.operators import messages

STATISTICS = ("sum", "square", "max", "min")
_EMPTY = {"sum": 0.0, "square": 0.0, "max": float("-inf"), "min": float("inf")}
_BLOCK_EDGES = 2048


class Wanted(NamedTuple):
    """What is computed: names out of `STATISTICS`, and the kind of message."""

    statistics: tuple[str, ...]
    message: str = "distmult"


def message_statistics(
    x: Tensor, rel: Tensor, index: RelationalIndex, weights: Tensor | None, wanted: Wanted, block_edges: int = 0
) -> Tensor:
    """Return statistics over the messages that every node receives.

    An edge of weight 0 is no edge: it takes part in no maximum. A node without edges has -inf as maximum and inf as
    minimum; the boundary, which every node has, replaces them.

    Args:
        x: (N, B, d) states, float32 or float64.
        rel: (R2, d).
        index: edges.
        weights: (E,) factors of the messages, or None.
        wanted: which statistics of which messages.
        block_edges: edges of a block; 0 for the default, negative to materialise all messages in plain autograd.

    Returns:
        (S, N, B, d), in the order of `wanted.statistics`.
    """
    if block_edges < 0:
        order = index.by_target
        chosen = None if weights is None else weights[order.edges]
        return _reduce(x[order.columns], rel[order.relations], chosen, order.rows, index.num_nodes, wanted)
    return cast(Tensor, _InBlocks.apply(x, rel, weights, index.by_target, wanted, block_edges or _BLOCK_EDGES))


def _reduce(x: Tensor, rel: Tensor, weights: Tensor | None, rows: Tensor, num_rows: int, wanted: Wanted) -> Tensor:
    """Reduce the messages of some edges; x is (E_b, B, d), rel (E_b, d), weights and rows (E_b,)."""
    sent = messages(x, rel, wanted.message)
    if weights is not None:
        sent = sent * weights[:, None, None]
    target = rows[:, None, None].expand_as(sent)
    out = []
    for name in wanted.statistics:
        empty = torch.full((num_rows, *sent.shape[1:]), _EMPTY[name], dtype=sent.dtype, device=sent.device)
        if name == "sum":
            out.append(empty.index_add(0, rows, sent))
        elif name == "square":
            out.append(empty.index_add(0, rows, sent * sent))
        else:
            removed = sent if weights is None else sent.masked_fill((weights == 0)[:, None, None], _EMPTY[name])
            out.append(empty.scatter_reduce(0, target, removed, "amax" if name == "max" else "amin"))
    return torch.stack(out)


class _InBlocks(torch.autograd.Function):
    """Reduces block by block, and computes a block's messages again in the backward pass instead of keeping them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, rel: Tensor, weights: Tensor | None, order: EdgeOrder, wanted: Wanted, size: int
    ) -> Tensor:
        ctx.order, ctx.wanted, ctx.size = order, wanted, size
        ctx.save_for_backward(x, rel, weights)
        out = torch.empty((len(wanted.statistics), *x.shape), dtype=x.dtype, device=x.device)
        for block in order.blocks(size):
            first, last = block.rows
            parts = _inputs(x, rel, weights, block)
            out[:, first:last] = _reduce(*parts, _rows(block), last - first, wanted)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, rel, weights = ctx.saved_tensors
        totals = [None if t is None else torch.zeros_like(t) for t in (x, rel, weights)]
        for block in ctx.order.blocks(ctx.size):
            if not len(block.edges):
                continue
            first, last = block.rows
            own, scale, factor = _inputs(x, rel, weights, block)
            present = [t.requires_grad_() for t in (own, scale, factor) if t is not None]
            with torch.enable_grad():
                out = _reduce(own, scale, factor, _rows(block), last - first, ctx.wanted)
            grads = iter(torch.autograd.grad(out, present, grad[:, first:last]))
            for total, ids in zip(totals, (block.columns, _relations(block), block.edges), strict=True):
                if total is not None:
                    total.index_add_(0, ids, next(grads))
        return (*totals, None, None, None)


def _relations(block: Any) -> Tensor:
    return block.pair_relation[block.pair_of_edge]


def _rows(block: Any) -> Tensor:
    """Row of each edge of a block, counted within the block."""
    return block.pair_row[block.pair_of_edge] - block.rows[0]


def _inputs(x: Tensor, rel: Tensor, weights: Tensor | None, block: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    chosen = None if weights is None else weights[block.edges]
    return x[block.columns], rel[_relations(block)], chosen
