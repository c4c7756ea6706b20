"""The query-conditioned GNN (NBFNet, GFM-RAG) for text and entity graphs, and GFM-RAG's rankers of passages.

GFM-RAG (arXiv 2502.01113) propagates from the question's entities with relation vectors made from text. G-reasoner
(arXiv 2509.24276) adds vectors of the nodes' texts before the first layer (early fusion) and in the head (late fusion).
Ours adds features of (question, node) at the same two places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnrag.arrays import Lists
from gnnrag.errors import ConfigError
from gnnrag.gnn import GNNConfig, RankerConfig
from gnnrag.gnn.edges import GraphBatch, SortedEdges
from gnnrag.gnn.layers import RelationalLayer, linear_of


@dataclass(frozen=True)
class Incidence:
    """GFM-RAG's matrix M: which entities stand in which passages."""

    entities: Tensor  # (nnz,) int64 entities of passage 0, then of passage 1, ..., ascending in each
    starts: Tensor  # (D,) int64 first entry of each passage
    frequency: Tensor  # (N,) float32, passages that each entity stands in

    @classmethod
    def of(cls, entity_passages: Lists, num_passages: int) -> Incidence:
        """Turn the passages of each entity into the entities of each passage."""
        passages = entity_passages.values.astype(np.int64)
        entities = np.repeat(np.arange(len(entity_passages)), entity_passages.sizes)
        order = np.argsort(passages, kind="stable")
        starts = np.searchsorted(passages[order], np.arange(num_passages))
        frequency = torch.from_numpy(entity_passages.sizes.astype(np.float32))
        return cls(torch.from_numpy(entities[order]), torch.from_numpy(starts.astype(np.int64)), frequency)

    def sum_by_passage(self, values: Tensor) -> Tensor:
        """Sum (N, B) values of entities over each passage. Shape (D, B)."""
        return functional.embedding_bag(self.entities, values, self.starts, mode="sum")


def rank_passages(config: RankerConfig, logits: Tensor, incidence: Incidence) -> Tensor:
    """Return the (D, B) scores of passages from (N, B) logits of entities.

    - simple: sum of the logits of a passage's entities; idf: each logit times 1 / frequency first;
    - topk: how many of the best `top_k` entities stand in the passage; idf_topk: these weigh 1 / frequency.

    Top-k scores are sums of few numbers, so passages often tie: `tie_break` adds `tie_break * sigmoid(logit) /
    frequency` of each chosen entity. Of entities with equal logits the first are chosen.
    """
    frequency = incidence.frequency.to(logits.dtype)[:, None]
    rarity = torch.where(frequency > 0, 1 / frequency.clamp(min=1), 0.0)
    if config.name in ("simple", "idf"):
        return incidence.sum_by_passage(logits if config.name == "simple" else logits * rarity)
    best = torch.sort(logits, dim=0, descending=True, stable=True).indices[: config.top_k]
    chosen = torch.zeros_like(logits).scatter(0, best, 1.0)
    values = chosen if config.name == "topk" else chosen * rarity
    if config.tie_break:
        values = values + config.tie_break * chosen * rarity * logits.sigmoid()
    return incidence.sum_by_passage(values)


OUTSIDE = -10.0  # highest logit that an entity outside the neighbourhood can have


def whole_logits(inside: Tensor, nodes: np.ndarray, num_entities: int) -> Tensor:
    """Return logits of all entities, (N, 1), from those inside a neighbourhood, (n, 1): all others rank after these."""
    below = min(float(inside.min()) - 1, OUTSIDE)
    rows = torch.from_numpy(nodes).to(inside.device)
    return inside.new_full((num_entities, 1), below).index_copy(0, rows, inside)


# -------------------------------------------------------------------------------------------------------- the network
class QueryGNN(nn.Module):
    """Scores every node of a graph for every question; `text_size` is F.

    Boundary (section 3.2 of GFM-RAG): `h_v = seed_v * W_q question`, or with early fusion `MLP([seed_v * W_q question
    || W_e text_v || features_v])`; layers as in `RelationalLayer`; head `MLP([h_v || W_q question])`, with late fusion
    `MLP([h_v || W_q question || W_e text_v || features_v])`. With `layers=0` only texts and features score: the
    ablation without message passing. Raises ConfigError where settings contradict each other.
    """

    def __init__(self, config: GNNConfig, text_size: int) -> None:
        super().__init__()
        check_config(config)
        self.config, self.text_size = config, text_size
        d, late = config.dim, config.fusion in ("late", "both")
        extra = d * config.node_text + len(config.features)
        if config.layers:
            self.rel_mlp = nn.Linear(text_size, d)
        self.question_mlp = nn.Linear(text_size, d)
        self.layers = nn.ModuleList(RelationalLayer(config) for _ in range(config.layers))
        fuses = config.fusion != "none" and bool(extra)
        if fuses and config.node_text:
            self.node_mlp = nn.Linear(text_size, d)
        self.has_early, self.has_late = fuses and config.fusion in ("early", "both"), fuses and late
        if self.has_early:
            self.early_in, self.early_out = nn.Linear(d + extra, d), nn.Linear(d, d)
        hidden = d * (max(1, config.layers) if config.concat_hidden else 1)
        width = d if self.has_late else hidden + d
        self.head_in = nn.Linear(hidden + d + extra * self.has_late, width)
        self.head_out = nn.Linear(width, 1)

    def forward(self, batch: GraphBatch, query: Tensor | None = None) -> Tensor:
        """Return the logits of all nodes, (N, B); `query`, (Q, d) states, replaces those of `batch.questions`."""
        rels = self._encode_relations(batch.relation_vectors)
        q = self.question_mlp(batch.questions) if query is None else query
        extras = self._extras(batch)
        boundary = batch.seeds[..., None].to(q.dtype) * batch.to_nodes(q)
        if self.has_early:
            boundary = self.early_out(functional.relu(linear_of(self.early_in, (boundary, *extras))))
        hidden = self._propagate(batch, boundary, rels)
        out = linear_of(self.head_in, (*hidden, batch.to_nodes(q), *(extras if self.has_late else ())))
        return self.head_out(functional.relu(out)).squeeze(-1)

    def _extras(self, batch: GraphBatch) -> list[Tensor]:
        """Return what the nodes have besides their states: of their texts, (N or 1, 1, d), and features, (N, B, K)."""
        extras = []
        if hasattr(self, "node_mlp"):
            texts = None if batch.node_vectors is None else self.node_mlp(batch.node_vectors)[:, None]
            extras.append(batch.seeds.new_zeros(1, 1, self.config.dim) if texts is None else texts)
        if self.config.features and batch.features is not None:
            extras.append(batch.features)
        return extras

    def _encode_relations(self, vectors: Tensor) -> list[Tensor]:
        """Return each layer's (R2, d) relation vectors from (R2, F)."""
        if not self.layers:
            return []
        if self.config.upstream_direction:  # reversing all edges is the same as swapping relations and inverses
            vectors = vectors.roll(len(vectors) // 2, 0)
        start = self.rel_mlp(vectors)
        return [cast(RelationalLayer, layer).relation_projection(start) for layer in self.layers]

    def _propagate(self, batch: GraphBatch, boundary: Tensor, rels: Sequence[Tensor]) -> list[Tensor]:
        """Return the states after each layer, or those that the head reads alone."""
        edges = SortedEdges(batch.source, batch.relation, batch.target, batch.num_nodes)
        x, hidden = boundary, []
        for i, layer in enumerate(self.layers):
            x = layer(x, rels[i], boundary, edges, batch.owner)
            if self.config.concat_hidden:
                hidden.append(x)
        return hidden or [x]


def check_config(config: GNNConfig) -> None:
    """Refuse settings that contradict each other. Raises ConfigError naming the first."""
    if config.features and config.fusion == "none":
        raise ConfigError("gnn.fusion=none leaves gnn.features unread: clear gnn.features, or use early, late or both")
    if config.mode == "entity" and config.fusion != "none" and (config.node_text or config.features):
        raise ConfigError(
            "gnn.mode=entity has no texts or features of nodes: set gnn.fusion=none and clear gnn.features"
        )
