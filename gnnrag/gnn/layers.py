"""GNN layers on `torch_geometric.nn.MessagePassing`: messages of knowledge-graph embeddings, and their aggregation.

Shapes: N nodes, B questions, d dimensions, E edges, R2 relations with their inverses. States of nodes are (N, B, d),
relation vectors (R2, d).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import degree, scatter

from gnnrag.gnn import GNNConfig
from gnnrag.gnn.edges import SortedEdges

_PNA_WIDTH = 12  # PNA: mean, max, min and deviation, each under three scalers


class RelationalConv(MessagePassing):
    """Sends each edge's message and aggregates those that a node receives; its boundary state counts as one more.

    Messages from u over r: DistMult (Yang et al., ICLR 2015) `h_u * r`, TransE (Bordes et al., NeurIPS 2013) `h_u + r`,
    RotatE (Sun et al., ICLR 2019) `h_u` turned by `r` in the complex plane. Aggregation: sum, mean, max, min, or pna
    (principal neighbourhood aggregation, Corso et al., NeurIPS 2020). `FusedSum` makes sums of DistMult's messages.
    """

    def __init__(self, message: str, aggregate: str) -> None:
        super().__init__(aggr=None, node_dim=0)
        self.message_kind, self.aggregation = message, aggregate

    def forward(
        self,
        x: Tensor,
        rel: Tensor,
        boundary: Tensor,
        edges: SortedEdges,
        owner: Tensor | None = None,
    ) -> Tensor:
        """Return what every node receives. Shape (N, B, d), or (N, B, 12 d) for pna; float32 for half precision.

        At a hub with thousands of edges half precision overflows or loses small messages. `owner` as in `GraphBatch`;
        `boundary` may broadcast.
        """
        x, rel, boundary = (t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in (x, rel, boundary))
        degrees = degree(edges.target, edges.num_nodes, x.dtype)[:, None, None] + 1
        with torch.autocast(x.device.type, enabled=False):
            if self.message_kind == "distmult" and self.aggregation in ("sum", "mean"):
                total: Tensor = FusedSum.apply(x, rel, edges) + boundary
                return total if self.aggregation == "sum" else total / degrees
            out: Tensor = self.propagate(
                torch.stack([edges.source, edges.target]),
                x=x,
                rel=rel.index_select(0, edges.relation),
                boundary=boundary.expand_as(x),
                degrees=degrees,
                owner=owner,
            )
        return out

    def message(self, x_j: Tensor, rel: Tensor) -> Tensor:
        """Return the message of each edge, (E, B, d), from the state of its source and its relation, (E, d)."""
        rel = rel[:, None]
        if self.message_kind == "distmult":
            return x_j * rel
        if self.message_kind == "transe":
            return x_j + rel
        (real, imaginary), (x_real, x_imaginary) = rel.chunk(2, dim=-1), x_j.chunk(2, dim=-1)
        turned = x_real * real - x_imaginary * imaginary, x_real * imaginary + x_imaginary * real
        return torch.cat(turned, dim=-1)

    def aggregate(
        self, inputs: Tensor, index: Tensor, boundary: Tensor, degrees: Tensor, owner: Tensor | None, dim_size: int
    ) -> Tensor:
        """Aggregate messages with the boundary.

        The last axis of pna runs over dimensions, then mean, max, min and deviation, then (fastest) the scalers 1, s
        and 1 / s, where s is the log degree divided by its mean, which is taken per question in the blocks layout.
        """
        received = torch.cat([inputs, boundary])
        node = torch.cat([index, torch.arange(dim_size, device=index.device)])
        if self.aggregation != "pna":
            return scatter(received, node, 0, dim_size, self.aggregation)
        mean, square = (scatter(part, node, 0, dim_size, "mean") for part in (received, received * received))
        largest, least = (scatter(received, node, 0, dim_size, name) for name in ("max", "min"))
        pieces = torch.stack([mean, largest, least, (square - mean * mean).clamp(min=1e-6).sqrt()], dim=-1)
        logs = degrees.log()
        s = logs / (logs.mean() if owner is None else scatter(logs, owner, 0, reduce="mean")[owner])
        scalers = torch.stack([torch.ones_like(s), s, 1 / s.clamp(min=0.01)], dim=-1)  # (N, 1, 1, 3)
        return (pieces[..., None] * scalers[:, :, :, None]).flatten(2)


class FusedSum(torch.autograd.Function):
    """The sum of DistMult's messages into every node: (N, B, d) from states, relations and edges.

    It is `rel[r] * (sum of x[u] over the edges u -r-> v)`, summed over the relations r into v. Both sums are embedding
    bags, so no message is materialised: on a corpus's graph of 270,000 edges a training step takes less than half the
    time. The backward pass keeps only the inputs, and has the same form on the reversed edges.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rel: Tensor, edges: SortedEdges) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(x, rel)
        relation = edges.relation[edges.pair_starts]
        return _row_sums(_pair_sums(x, edges).mul_(rel.index_select(0, relation)[:, None]), edges)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, rel = ctx.saved_tensors
        edges: SortedEdges = ctx.edges.reverse
        source, relation = edges.target[edges.pair_starts], edges.relation[edges.pair_starts]
        own, scale = x.index_select(0, source), rel.index_select(0, relation)[:, None]
        sums = _pair_sums(grad, edges)
        grad_rel = torch.zeros_like(rel).index_add_(0, relation, own.mul_(sums).sum(1))
        return _row_sums(sums.mul_(scale), edges), grad_rel, None


def _pair_sums(x: Tensor, edges: SortedEdges) -> Tensor:
    """Sum the states of the sources over the edges of each distinct (target, relation). Shape (P, B, d)."""
    return _bags(x, edges.source, edges.pair_starts)


def _row_sums(pairs: Tensor, edges: SortedEdges) -> Tensor:
    """Sum what belongs to each distinct (target, relation) over the target. Shape (N, B, d)."""
    nodes = torch.arange(edges.num_nodes, device=pairs.device)
    starts = torch.searchsorted(edges.target[edges.pair_starts], nodes)
    return _bags(pairs, torch.arange(len(pairs), device=pairs.device), starts)


def _bags(x: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    """Sum rows of `x`, (n, B, d), from each start to the next. Shape (len(starts), B, d)."""
    if not len(rows):
        return x.new_zeros((len(starts), *x.shape[1:]))
    flat = x.reshape(len(x), -1).contiguous()
    return functional.embedding_bag(rows, flat, starts, mode="sum").view(-1, *x.shape[1:])


def linear_of(linear: nn.Linear, parts: Sequence[Tensor]) -> Tensor:
    """Return `W [a || b || ...] + c` as `W_a a + W_b b + ... + c`: what is the same for many nodes is not repeated."""
    first, *rest = zip(parts, linear.weight.split([part.shape[-1] for part in parts], dim=1), strict=True)
    return sum((functional.linear(*each) for each in rest), functional.linear(*first, linear.bias))


class RelationalLayer(nn.Module):
    """Aggregates messages and the boundary state, then applies linear map, norm, ReLU and residual.

    Equations of GFM-RAG, section 3.2: `a_v = AGG(boundary_v, {h_u (*) g_l(r)})`, `h_v' = ReLU(LN(U [h_v || a_v] +
    b)) + h_v`, where g_l is a two-layer perceptron of the relation's vector, with its own weights in each layer.
    """

    def __init__(self, config: GNNConfig) -> None:
        super().__init__()
        d = config.dim
        self.conv, self.shortcut = RelationalConv(config.message, config.aggregate), config.shortcut
        self.relation_projection = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
        self.linear = nn.Linear(d * (1 + _PNA_WIDTH) if config.aggregate == "pna" else 2 * d, d)
        self.layer_norm = nn.LayerNorm(d) if config.norm else nn.Identity()

    def forward(self, x: Tensor, rel: Tensor, boundary: Tensor, edges: SortedEdges, owner: Tensor | None) -> Tensor:
        """Return the next states, (N, B, d); `rel` comes from `relation_projection`; see `RelationalConv`."""
        received = self.conv(x, rel, boundary, edges, owner)
        out = functional.relu(self.layer_norm(linear_of(self.linear, (x, received))))
        return out + x if self.shortcut else out
