"""GNN layers: messages, their aggregation, and the statistics and degree scalers of PNA.

For DistMult the message over an edge (u, r, v) is the elementwise product of the state of u and the vector of r.
Relation vectors carry no batch dimension, so the sum over the edges into v is, relation by relation, `rel[r] * (sum of
x[u] over the edges u -r-> v)`: add up the states of the sources for every distinct (target, relation) pair, scale each
pair once, and add up the pairs of a target. Both sums are embedding bags. TransE and RotatE messages are sums of such
products, so they take the same path. States are (N, B, d), relation vectors and inverses (R2, d).
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnnrag.gnn import GNNConfig
from gnnrag.gnn.edges import EdgeOrder, RelationalIndex, RowBlock

# Bytes of pair sums computed at a time: what a core's cache holds on a CPU, and enough to keep a GPU busy.
BLOCK_BYTES = {"cpu": 4 * 2**20, "cuda": 256 * 2**20}


def relational_sum(
    x: Tensor, rel: Tensor, index: RelationalIndex, weights: Tensor | None = None, message: str = "distmult"
) -> Tensor:
    """Add up the messages that every node receives. Shape (N, B, d).

    Half-precision states are summed in float32, which is then the result's type: at a hub with thousands of edges, half
    precision overflows or loses small messages. `weights` are (E,) factors of the messages, with or without gradient.
    A factor of 0 removes an edge; None means 1 for all.
    """
    if x.dtype in (torch.float16, torch.bfloat16) or rel.dtype in (torch.float16, torch.bfloat16):
        x, rel = x.float(), rel.float()
    if weights is not None:
        weights = weights.to(x.dtype)
    with torch.autocast(x.device.type, enabled=False):
        if message == "distmult":
            return _bag_sum(x, rel, weights, index)
        if message == "transe":  # the sum of x * 1 and 1 * rel
            one = torch.ones((index.num_nodes, 1, x.shape[2]), dtype=x.dtype, device=x.device)
            states = _bag_sum(x, torch.ones_like(rel), weights, index)
            return states + _bag_sum(one, rel, weights, index)
        real, imaginary = rel.chunk(2, dim=-1)
        x_real, x_imaginary = x.chunk(2, dim=-1)
        turned = torch.cat([-x_imaginary, x_real], dim=-1)  # i x
        states = _bag_sum(x, torch.cat([real, real], dim=-1), weights, index)
        return states + _bag_sum(turned, torch.cat([imaginary, imaginary], dim=-1), weights, index)


def messages(x: Tensor, rel: Tensor, kind: str) -> Tensor:
    """Return the message of each edge from the states of its source, (E, B, d), and its relation, (E, d)."""
    rel = rel[:, None]
    if kind == "distmult":
        return x * rel
    if kind == "transe":
        return x + rel
    (real, imaginary), (x_real, x_imaginary) = rel.chunk(2, dim=-1), x.chunk(2, dim=-1)
    return torch.cat([x_real * real - x_imaginary * imaginary, x_real * imaginary + x_imaginary * real], dim=-1)


def _bag_sum(x: Tensor, rel: Tensor, weights: Tensor | None, index: RelationalIndex) -> Tensor:
    return cast(Tensor, _BagSum.apply(x, rel, weights, index))


def _block_size(x: Tensor) -> int:
    """Return how many edges a block has, so that the sums of its pairs fit in `BLOCK_BYTES`."""
    budget = BLOCK_BYTES["cuda" if x.is_cuda else "cpu"]
    return max(256, budget // max(1, x[0].numel() * x.element_size())) if len(x) else 256


def _pair_sums(flat: Tensor, block: RowBlock, weights: Tensor | None) -> Tensor:
    """Sum the source rows of `flat`, (N, B d), for each of the P_b pairs of a block. Shape (P_b, B d)."""
    chosen = None if weights is None else weights.index_select(0, block.edges)
    return functional.embedding_bag(block.columns, flat, block.pair_start, mode="sum", per_sample_weights=chosen)


def _row_sums(pairs: Tensor, block: RowBlock) -> Tensor:
    """Sum the pairs of each row of a block. Shape (rows, B d)."""
    return functional.embedding_bag(block.pairs, pairs, block.row_start, mode="sum")


def _flatten(x: Tensor) -> Tensor:
    return x.reshape(len(x), x.shape[1] * x.shape[2]).contiguous()


def _sum_products(x: Tensor, rel: Tensor, order: EdgeOrder, weights: Tensor | None) -> Tensor:
    """Sum the products of every row of `order`, block by block."""
    flat, out = _flatten(x), torch.zeros_like(x, memory_format=torch.contiguous_format)
    for block in order.blocks(_block_size(x)):
        if len(block.edges):
            sums = _pair_sums(flat, block, weights).view(-1, *x.shape[1:])
            sums.mul_(rel.index_select(0, block.pair_relation)[:, None])
            out[slice(*block.rows)] = _row_sums(sums.flatten(1), block).view(-1, *x.shape[1:])
    return out


class _BagSum(torch.autograd.Function):
    """The factorised sum. The backward pass keeps only the inputs, and has the same form on the reversed edges.

    Let y[u, r] be the sum of the output's gradient at v over the edges u -r-> v. Then grad x[u] is the sum over r of
    rel[r] * y[u, r], and grad rel[r] is the sum over u and the batch of y[u, r] * x[u].
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rel: Tensor, weights: Tensor | None, index: RelationalIndex) -> Tensor:
        ctx.index = index
        ctx.save_for_backward(x, rel, weights)
        return _sum_products(x, rel, index.by_target, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, rel, weights = ctx.saved_tensors
        need_x, need_rel, need_weights = ctx.needs_input_grad[:3]
        flat, shape = _flatten(grad), x.shape[1:]
        grad_x = torch.zeros_like(x, memory_format=torch.contiguous_format) if need_x else None
        grad_rel = torch.zeros_like(rel) if need_rel else None
        grad_weights = torch.zeros_like(weights) if need_weights else None
        order: EdgeOrder = ctx.index.by_source
        for block in order.blocks(_block_size(x)):
            if not len(block.edges):
                continue
            own, scale = x.index_select(0, block.pair_row), rel.index_select(0, block.pair_relation)[:, None]
            if grad_weights is not None:
                sent = (own * scale).flatten(1).index_select(0, block.pair_of_edge)
                grad_weights[block.edges] = sent.mul_(flat.index_select(0, block.columns)).sum(1)
            if grad_x is None and grad_rel is None:
                continue
            sums = _pair_sums(flat, block, weights).view(-1, *shape)
            if grad_rel is not None:
                grad_rel.index_add_(0, block.pair_relation, own.mul_(sums).sum(1))
            if grad_x is not None:
                grad_x[slice(*block.rows)] = _row_sums(sums.mul_(scale).flatten(1), block).view(-1, *shape)
        return grad_x, grad_rel, grad_weights, None


def message_statistics(
    x: Tensor, rel: Tensor, index: RelationalIndex, weights: Tensor | None, names: tuple[str, ...], message: str
) -> Tensor:
    """Return statistics (sum, square, max, min) over the messages that every node receives. Shape (S, N, B, d).

    All messages are held at once, (E, B, d). An edge of weight 0 counts in no maximum or minimum. A node
    without edges has -inf as maximum and inf as minimum; `aggregate` then replaces them with its boundary state.
    """
    sent = messages(x[index.source], rel[index.relation], message)
    if weights is not None:
        sent = sent * weights[:, None, None]
    target = index.target[:, None, None].expand_as(sent)
    out = []
    for name in names:
        fill = {"max": float("-inf"), "min": float("inf")}.get(name, 0.0)
        empty = torch.full((index.num_nodes, *sent.shape[1:]), fill, dtype=sent.dtype, device=sent.device)
        if name in ("sum", "square"):
            out.append(empty.index_add(0, index.target, sent if name == "sum" else sent * sent))
        else:
            kept = sent if weights is None else sent.masked_fill((weights == 0)[:, None, None], fill)
            out.append(empty.scatter_reduce(0, target, kept, "amax" if name == "max" else "amin"))
    return torch.stack(out)


_PNA_WIDTH = 12  # mean, max, min and deviation, each under three scalers


class SplitLinear(nn.Linear):
    """A linear map of concatenated inputs of the given `sizes`, applied to each: `W [a || b] = W_a a + W_b b`.

    Nothing is concatenated, so an input with one row per question need not be repeated for every node.
    """

    def __init__(self, sizes: list[int], out_features: int) -> None:
        super().__init__(sum(sizes), out_features)
        self.sizes = sizes

    def part(self, i: int, x: Tensor) -> Tensor:
        """Return the contribution of input `i`, without the bias."""
        start = sum(self.sizes[:i])
        return functional.linear(x, self.weight[:, start : start + self.sizes[i]])


class RelationalLayer(nn.Module):
    """Aggregates messages and the boundary state, then applies linear map, norm, ReLU and residual.

    Equations of GFM-RAG, section 3.2: `a_v = AGG(boundary_v, {w_e * h_u (*) g_l(r)})`, `h_v' = ReLU(LN(U [h_v || a_v] +
    b)) + h_v`, where g_l is a two-layer perceptron of the relation's vector, with its own weights in each layer.
    """

    def __init__(self, config: GNNConfig) -> None:
        super().__init__()
        d = config.dim
        self.message, self.aggregate, self.shortcut = config.message, config.aggregate, config.shortcut
        self.relation_projection = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
        self.linear = SplitLinear([d, d * _PNA_WIDTH if config.aggregate == "pna" else d], d)
        self.layer_norm = nn.LayerNorm(d) if config.norm else nn.Identity()

    def forward(self, x: Tensor, rel: Tensor, boundary: Tensor, edges: EdgeInputs) -> Tensor:
        """Return the next states, (N, B, d); `rel` comes from `relation_projection`; `boundary` may broadcast."""
        received = aggregate(x, rel, boundary, edges, self.aggregate, self.message)
        width = x.shape[2]
        own = functional.linear(x, self.linear.weight[:, :width], self.linear.bias)
        out = own.add_(self.linear.part(1, received))
        out = functional.relu(self.layer_norm(out))
        return out + x if self.shortcut else out


class EdgeInputs:
    """Sorted edges, factors (E,) of their messages, and, in the blocks layout, each node's question (N,)."""

    def __init__(self, index: RelationalIndex, weights: Tensor | None = None, owner: Tensor | None = None) -> None:
        self.index, self.weights, self.owner = index, weights, owner

    def degrees(self, dtype: torch.dtype) -> Tensor:
        """Return 1 + the number of edges into each node, without removed ones. Shape (N, 1, 1)."""
        index = self.index
        if self.weights is None:
            degree = index.in_degree
        else:
            degree = torch.zeros(index.num_nodes, device=index.target.device)
            degree.index_add_(0, index.target, (self.weights.detach() != 0).float())
        return (degree.to(dtype) + 1)[:, None, None]

    def scale(self, dtype: torch.dtype) -> Tensor:
        """Return log degrees by their mean, taken per question in the blocks layout. Shape (N, 1, 1)."""
        logs = self.degrees(dtype).log()
        if self.owner is None:
            return logs / logs.mean()
        count = int(self.owner.max()) + 1
        zeros = torch.zeros(count, dtype=dtype, device=logs.device)
        totals = zeros.index_add(0, self.owner, logs.flatten())
        sizes = zeros.index_add(0, self.owner, torch.ones_like(logs).flatten())
        return logs / (totals / sizes)[self.owner][:, None, None]


def aggregate(x: Tensor, rel: Tensor, boundary: Tensor, edges: EdgeInputs, name: str, message: str) -> Tensor:
    """Aggregate the messages that every node receives; the boundary counts as one more message.

    Shape (N, B, d), or (N, B, 12 d) for pna. Its last axis runs over dimensions, then mean, max, min and deviation,
    then (fastest) the scalers 1, s and 1 / s, where s is the log degree divided by its mean.
    """
    if name in ("sum", "mean"):
        total = relational_sum(x, rel, edges.index, edges.weights, message) + boundary
        return total if name == "sum" else total / edges.degrees(total.dtype)
    x, rel = (t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in (x, rel))
    with torch.autocast(x.device.type, enabled=False):
        if name in ("max", "min"):
            best = message_statistics(x, rel, edges.index, edges.weights, (name,), message)[0]
            return torch.maximum(best, boundary) if name == "max" else torch.minimum(best, boundary)
        names = ("sum", "square", "max", "min")
        total, square, largest, least = message_statistics(x, rel, edges.index, edges.weights, names, message)
        degree, s = edges.degrees(x.dtype), edges.scale(x.dtype)
        mean = (total + boundary) / degree
        variance = (square + boundary * boundary) / degree - mean * mean
        largest, least = torch.maximum(largest, boundary), torch.minimum(least, boundary)
        pieces = torch.stack([mean, largest, least, variance.clamp(min=1e-6).sqrt()], dim=-1)
        scalers = torch.stack([torch.ones_like(s), s, 1 / s.clamp(min=0.01)], dim=-1)  # (N, 1, 1, 3)
        return (pieces[..., None] * scalers[:, :, :, None]).flatten(2)
