"""Mass that is passed along the relations which a question asks for, step by step (TransferNet, EMNLP 2021)."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from gnnrag.gnn.batch import GraphBatch
from gnnrag.gnn.edges import RelationalIndex
from gnnrag.gnn.operators import relational_sum

_CERTAIN = 12.0  # logit between a node that all mass reaches and one that none does, before training


class Transfer(nn.Module):
    """Decides at every step which relations a question follows, and follows them from its seeds.

    Gate of relation r at step l: `g_l(q, r) = sigmoid(<A_l q, B x_r> / sqrt(d) + c_l)`, where q and x_r are text
    vectors, so that new relations need no training. Mass: `m_0 = seeds`,
    `m_l(v) = min(1, sum over (u, r, v) of m_{l-1}(u) g_l(q, r))`; what returns to a seed is dropped, since no question
    asks for where it starts. Score: the mass at the step where the question ends, `sum_l softmax(S q)_l m_l(v)`.
    TransferNet's relations have ids; these have texts.

    Args:
        text_size: F, length of a text vector.
        dim: d.
        steps: number of steps, one for each layer.
    """

    def __init__(self, text_size: int, dim: int, steps: int) -> None:
        super().__init__()
        self.count, self.dim, self.scale = steps, dim, math.sqrt(text_size)
        self.asks = nn.Sequential(nn.Linear(text_size, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, steps * dim))
        self.offers = nn.Sequential(nn.Linear(text_size, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.bias = nn.Parameter(torch.full((steps, 1, 1), -1.0))  # most relations are not asked for
        self.ends = nn.Sequential(nn.Linear(text_size, dim), nn.ReLU(), nn.Linear(dim, steps))
        self.certain = nn.Parameter(torch.tensor(_CERTAIN))

    def gates(self, questions: Tensor, relations: Tensor) -> Tensor:
        """Return how much each relation is followed. Shape (steps, Q, R2), in (0, 1).

        Args:
            questions: (Q, F) unit rows.
            relations: (R2, F) unit rows.
        """
        asks = self.asks(questions * self.scale).unflatten(1, (self.count, self.dim)).transpose(0, 1)
        offers = self.offers(relations * self.scale)
        return torch.sigmoid(asks @ offers.T / math.sqrt(self.dim) + self.bias)

    def forward(self, batch: GraphBatch, index: RelationalIndex) -> tuple[Tensor, Tensor]:
        """Return the share of all mass that ends at each node, and the gate of every edge at every step.

        Args:
            batch: blocks, or one question on a shared graph.
            index: its edges, sorted.

        Returns:
            (N, 1) shares in [0, 1], and (steps, E) gates.
        """
        gates = self.gates(batch.questions, batch.relation_vectors)
        owner = torch.zeros_like(batch.source) if batch.owner is None else batch.owner[batch.source]
        followed = gates[:, owner, batch.relation]
        is_seed = (batch.seeds != 0)[..., None]
        mass = is_seed.to(followed.dtype)
        ends = torch.softmax(self.ends(batch.questions * self.scale), dim=1)
        ends = ends.expand(batch.num_nodes, -1) if batch.owner is None else ends[batch.owner]
        score = torch.zeros_like(mass[..., 0])
        ones = followed.new_ones(len(batch.relation_vectors), 1)
        for step, weights in enumerate(followed):
            if batch.edge_weights is not None:
                weights = weights * batch.edge_weights
            mass = relational_sum(mass, ones, index, weights).masked_fill(is_seed, 0.0)
            mass = mass / mass.detach().clamp(min=1.0)  # a share of at most 1 whose gradient does not vanish
            score = score + ends[:, step : step + 1] * mass[..., 0]
        return score, followed

    def logits(self, share: Tensor, scores: Tensor) -> Tensor:
        """Return logits in which message passing has a say where mass arrives: elsewhere nothing speaks for a node.

        Args:
            share: (N, 1) from `forward`.
            scores: (N, 1) from the head.
        """
        return self.certain * (share - 0.5) + share * scores


def columns(batch: GraphBatch) -> list[GraphBatch]:
    """Return the questions of a shared graph one by one: an edge weighs the same in all columns, their gates differ."""
    parts = []
    for b in range(batch.width):
        features = None if batch.features is None else batch.features[:, b : b + 1]
        own = {"questions": batch.questions[b : b + 1], "seeds": batch.seeds[:, b : b + 1], "features": features}
        parts.append(replace(batch, **own))
    return parts
