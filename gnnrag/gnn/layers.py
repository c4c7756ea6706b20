"""One round of query-conditioned message passing (GFM-RAG, arXiv 2502.01113; ULTRA's entity layer)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnrag.errors import ConfigError, nearest
from gnnrag.gnn.config import GNNConfig
from gnnrag.gnn.edges import RelationalIndex
from gnnrag.gnn.operators import Wanted, message_statistics, relational_sum

AGGREGATES = ("sum", "mean", "max", "min", "pna")
_PNA_WIDTH = 12  # mean, max, min and deviation, each under three scalers


class SplitLinear(nn.Linear):
    """A linear map of several inputs side by side, which are never put side by side.

    `W [a || b] = W_a a + W_b b`, so an input that is one row per question costs one row per question, and no
    concatenation of N x B rows is made.

    Args:
        sizes: width of each input.
        out_features: width of the result.
    """

    def __init__(self, sizes: list[int], out_features: int) -> None:
        super().__init__(sum(sizes), out_features)
        self.sizes = sizes

    def part(self, i: int, x: Tensor) -> Tensor:
        """Return what input `i` adds, bias left out."""
        start = sum(self.sizes[:i])
        return functional.linear(x, self.weight[:, start : start + self.sizes[i]])


class RelationalLayer(nn.Module):
    """Sum (or other statistic) of messages, boundary included, then linear, norm, ReLU and residual.

    Equations of GFM-RAG, section 3.2: `a_v = AGG(boundary_v, {w_e * h_u (*) g_l(r)})`,
    `h_v' = ReLU(LN(U [h_v || a_v] + b)) + h_v`, where g_l is a two-layer perceptron of the relation's vector, with its
    own weights in each layer.

    Args:
        config: width, message, aggregate, norm, shortcut.

    Raises:
        ConfigError: an unknown aggregate.
    """

    def __init__(self, config: GNNConfig) -> None:
        super().__init__()
        if config.aggregate not in AGGREGATES:
            raise ConfigError(f"gnn.aggregate={config.aggregate!r}: {nearest(config.aggregate, AGGREGATES)}")
        d = config.dim
        self.message, self.aggregate, self.shortcut = config.message, config.aggregate, config.shortcut
        self.relation_projection = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
        self.linear = SplitLinear([d, d * _PNA_WIDTH if config.aggregate == "pna" else d], d)
        self.layer_norm = nn.LayerNorm(d) if config.norm else nn.Identity()

    def forward(self, x: Tensor, rel: Tensor, boundary: Tensor, edges: EdgeInputs, backend: str = "auto") -> Tensor:
        """Return the next states.

        Args:
            x: (N, B, d) states.
            rel: (R2, d) relation vectors of this layer, from `relation_projection`.
            boundary: (N, B, d) or what broadcasts to it.
            edges: the graph.
            backend: see `relational_sum`.

        Returns:
            (N, B, d).
        """
        received = aggregate(x, rel, boundary, edges, (self.aggregate, self.message), backend)
        width = x.shape[2]
        own = functional.linear(x, self.linear.weight[:, :width], self.linear.bias)
        out = own.add_(self.linear.part(1, received))
        out = functional.relu(self.layer_norm(out))
        return out + x if self.shortcut else out


class EdgeInputs:
    """What a layer knows of the edges.

    Args:
        index: sorted edges.
        weights: (E,) factors of the messages, or None.
        owner: (N,) question of each node in the blocks layout, or None.
    """

    def __init__(self, index: RelationalIndex, weights: Tensor | None = None, owner: Tensor | None = None) -> None:
        self.index, self.weights, self.owner = index, weights, owner

    def degrees(self, dtype: torch.dtype) -> Tensor:
        """Return 1 + the number of edges that end at each node, removed ones not counted. Shape (N, 1, 1)."""
        index = self.index
        if self.weights is None:
            degree = index.in_degree
        else:
            degree = torch.zeros(index.num_nodes, device=index.target.device)
            degree.index_add_(0, index.target, (self.weights.detach() != 0).float())
        return (degree.to(dtype) + 1)[:, None, None]

    def scale(self, dtype: torch.dtype) -> Tensor:
        """Return log degrees over their mean, which is a question's own in the blocks layout. Shape (N, 1, 1)."""
        logs = self.degrees(dtype).log()
        if self.owner is None:
            return logs / logs.mean()
        count = int(self.owner.max()) + 1
        zeros = torch.zeros(count, dtype=dtype, device=logs.device)
        totals = zeros.index_add(0, self.owner, logs.flatten())
        sizes = zeros.index_add(0, self.owner, torch.ones_like(logs).flatten())
        return logs / (totals / sizes)[self.owner][:, None, None]


def aggregate(
    x: Tensor, rel: Tensor, boundary: Tensor, edges: EdgeInputs, kind: tuple[str, str], backend: str = "auto"
) -> Tensor:
    """Aggregate what every node receives, the boundary being one message more.

    Args:
        x: (N, B, d).
        rel: (R2, d).
        boundary: (N, B, d).
        edges: the graph.
        kind: aggregate and message.
        backend: see `relational_sum`; `naive` also materialises the messages of max, min and pna.

    Returns:
        (N, B, d); (N, B, 12 d) for pna, dimension outermost, then mean, max, min and deviation, then the scalers 1, s
        and 1 / s, with s the log degree over its mean.
    """
    name, message = kind
    if name in ("sum", "mean"):
        total = relational_sum(x, rel, edges.index, edges.weights, message, backend) + boundary
        return total if name == "sum" else total / edges.degrees(total.dtype)
    block = -1 if backend == "naive" else 0
    x, rel = (t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in (x, rel))
    with torch.autocast(x.device.type, enabled=False):
        if name in ("max", "min"):
            best = message_statistics(x, rel, edges.index, edges.weights, Wanted((name,), message), block)[0]
            return torch.maximum(best, boundary) if name == "max" else torch.minimum(best, boundary)
        wanted = Wanted(("sum", "square", "max", "min"), message)
        total, square, largest, least = message_statistics(x, rel, edges.index, edges.weights, wanted, block)
        degree, s = edges.degrees(x.dtype), edges.scale(x.dtype)
        mean = (total + boundary) / degree
        variance = (square + boundary * boundary) / degree - mean * mean
        largest, least = torch.maximum(largest, boundary), torch.minimum(least, boundary)
        pieces = torch.stack([mean, largest, least, variance.clamp(min=1e-6).sqrt()], dim=-1)
        scalers = torch.stack([torch.ones_like(s), s, 1 / s.clamp(min=0.01)], dim=-1)  # (N, 1, 1, 3)
        return (pieces[..., None] * scalers[:, :, :, None]).flatten(2)
