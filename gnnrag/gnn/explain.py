"""Why a node scored: the paths from the seeds that its score leans on most (NBFNet, arXiv 2106.06935, section 4.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnrag.gnn.batch import GraphBatch
from gnnrag.gnn.model import QueryGNN


@dataclass(frozen=True)
class RelationalPath:
    """A path from a seed.

    Attributes:
        nodes: node ids, one more than relations.
        relations: relation ids; those of inverses are `r + R2 / 2`.
        score: mean gradient of the node's logit with respect to the weight of the message over each edge.
    """

    nodes: tuple[int, ...]
    relations: tuple[int, ...]
    score: float

    @property
    def hops(self) -> list[tuple[int, int, int]]:
        """The path as (node, relation, node)."""
        return list(zip(self.nodes[:-1], self.relations, self.nodes[1:], strict=True))


def explain(
    model: QueryGNN, batch: GraphBatch, node: int, column: int = 0, beam: int = 10, top_k: int = 10
) -> list[RelationalPath]:
    """Return the best paths that end at a node, best first.

    To first order, an edge's share in a logit is the gradient with respect to the weight of its message, which is 1.
    The beam search adds up these gradients along paths that begin at a seed, in any layer, take one edge in each layer
    after it, visit no node twice, and end where they reach the node. Only paths of a positive score are evidence.

    Args:
        model: the network.
        batch: questions in either layout; in blocks, the question is that of the node.
        node: what to explain.
        column: the question, in the shared layout.
        beam: paths kept for each node in each layer.
        top_k: how many to return.

    Raises:
        ValueError: there is no such node or question.
    """
    if not 0 <= node < batch.num_nodes or not 0 <= column < batch.width:
        raise ValueError(
            f"node {node}, question {column}: the batch has {batch.num_nodes} nodes, {batch.width} columns"
        )
    batch = one_column(batch, column)
    seeds = (batch.seeds[:, 0] != 0).nonzero().flatten().tolist()
    gradients = edge_gradients(model, batch, node)
    starts: dict[int, list[_Partial]] = {seed: [(0.0, (seed,), ())] for seed in seeds if seed != node}
    best: dict[int, list[_Partial]] = {}
    edges = [t.cpu().numpy() for t in (batch.source, batch.relation, batch.target)]
    found: list[RelationalPath] = []
    for gradient in gradients:
        for seed, start in starts.items():  # the boundary enters at every layer, so a path may begin at any
            best.setdefault(seed, []).extend(start)
        best = _extend(best, edges, gradient, beam, node)
        found += [RelationalPath(nodes, rels, total / len(rels)) for total, nodes, rels in best.pop(node, [])]
    return _distinct(sorted(found, key=lambda p: (-p.score, len(p.nodes), p.nodes, p.relations)))[:top_k]


def one_column(batch: GraphBatch, column: int) -> GraphBatch:
    """Return a batch of one question of a shared batch; a batch of blocks comes back as it is."""
    if batch.owner is not None:
        return batch
    only = slice(column, column + 1)
    features = None if batch.features is None else batch.features[:, only]
    return replace(batch, questions=batch.questions[only], seeds=batch.seeds[:, only], features=features)


def edge_gradients(model: QueryGNN, batch: GraphBatch, node: int) -> list[np.ndarray]:
    """Return the gradient of a node's logit with respect to the weight of each edge's message, layer by layer.

    Args:
        model: the network; its own gradients stay as they are.
        batch: one question, or blocks.
        node: whose logit.

    Returns:
        `layers` arrays of shape (E,), float64.
    """
    if not len(model.layers):
        return []
    dtype = batch.seeds.dtype if batch.seeds.is_floating_point() else torch.float32
    ones = [
        torch.ones(len(batch.source), dtype=dtype, device=batch.source.device, requires_grad=True) for _ in model.layers
    ]
    with torch.enable_grad():
        logit = model(batch, layer_weights=ones)[node, 0]
        gradients = torch.autograd.grad(logit, ones)
    return [g.double().cpu().numpy() for g in gradients]


_Partial = tuple[float, tuple[int, ...], tuple[int, ...]]  # sum of gradients, nodes, relations


def _extend(
    best: dict[int, list[_Partial]], edges: list[np.ndarray], gradient: np.ndarray, beam: int, node: int
) -> dict[int, list[_Partial]]:
    """Take every path one edge further; keep the `beam` best that end at each node."""
    source, relation, target = edges
    begun = np.zeros(int(max(source.max(initial=0), target.max(initial=0), *best, 0)) + 1, dtype=bool)
    begun[list(best)] = True
    # No path leaves the node explained, and an edge of gradient 0 is one that the logit does not see.
    usable = np.flatnonzero(begun[source] & (source != node) & (gradient != 0))
    out: dict[int, list[_Partial]] = {}
    for edge in usable.tolist():
        head, tail = int(source[edge]), int(target[edge])
        step = float(gradient[edge])
        extended = [
            (total + step, (*nodes, tail), (*rels, int(relation[edge])))
            for total, nodes, rels in best[head]
            if tail not in nodes
        ]
        if extended:
            out.setdefault(tail, []).extend(extended)
    return {tail: sorted(paths, key=lambda p: (-p[0], p[1], p[2]))[:beam] for tail, paths in out.items()}


def _distinct(paths: Iterable[RelationalPath]) -> list[RelationalPath]:
    seen: dict[tuple[tuple[int, ...], tuple[int, ...]], RelationalPath] = {}
    for path in paths:
        seen.setdefault((path.nodes, path.relations), path)
    return list(seen.values())
