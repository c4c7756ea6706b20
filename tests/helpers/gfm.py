"""The golden graph of specs/gfm_rag.md 8.1, and random graphs, for tests of the graph network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import yaml  # type: ignore[import-untyped]
from torch import Tensor

from gnnrag.gnn import GNNConfig
from gnnrag.gnn.edges import GraphBatch
from gnnrag.gnn.model import QueryGNN

TRIPLES = torch.tensor([(0, 0, 1), (1, 1, 2), (0, 1, 3), (3, 0, 2), (4, 1, 3), (0, 0, 3)])
RELATIONS = torch.tensor([[1, 0], [0, 1], [-1, 0.5], [0.5, -1]], dtype=torch.float64)
QUESTIONS = torch.tensor([[1, 0.5], [-0.5, 1]], dtype=torch.float64)
DOCUMENTS = ((0, 1), (1, 2), (2, 3))
WEIGHTS = torch.tensor([1, 0.5, 0.5, 1, 0], dtype=torch.float64)
MASK = torch.tensor([[1, 0], [0, 1], [0, 0], [0, 0], [0, 1]], dtype=torch.float64)
TARGETS = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]], dtype=torch.float64)


def official() -> GNNConfig:
    """Return GFM-RAG's network, as the config has it."""
    path = Path(__file__).resolve().parents[2] / "configs" / "train" / "gnn_official.yaml"
    return GNNConfig(**yaml.safe_load(path.read_text("utf-8"))["gnn"])


def both_ways(triples: Tensor, num_relations: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, relations and targets of triples and their inverses."""
    head, relation, tail = triples.T
    return torch.cat([head, tail]), torch.cat([relation, relation + num_relations]), torch.cat([tail, head])


def golden_batch(weights: Tensor = WEIGHTS, mask: Tensor = MASK) -> GraphBatch:
    source, relation, target = both_ways(TRIPLES, 2)
    return GraphBatch(source, relation, target, 5, RELATIONS, QUESTIONS, mask * weights[:, None])


def golden_model(**changes: object) -> QueryGNN:
    """The network of 8.1, its weights set by rule."""
    settings: dict[str, object] = {"mode": "entity", "dim": 3, "layers": 2, "fusion": "none", "node_text": False}
    model = QueryGNN(GNNConfig(**{**settings, **changes}), text_size=2).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for k, (name, tensor) in enumerate(golden_order(model), start=1):
            n = torch.arange(tensor.numel(), dtype=torch.float64)
            values = 0.1 * ((3 * n + 7 * k) % 11 - 5) + ("layer_norm.weight" in name)
            tensor.copy_(values.view_as(tensor))
    return model


def golden_order(model: QueryGNN) -> list[tuple[str, Tensor]]:
    """The parameters by their numbers in 8.1."""
    named = dict(model.named_parameters())
    parts = ["rel_mlp", "question_mlp"]
    for i in range(len(model.layers)):
        inner = ("relation_projection.0", "relation_projection.2", "linear", "layer_norm")
        parts += [f"layers.{i}.{part}" for part in inner]
    names = [f"{part}.{kind}" for part in [*parts, "head_in", "head_out"] for kind in ("weight", "bias")]
    return [(name, named[name]) for name in names]


def random_edges(num_nodes: int = 40, num_edges: int = 160, num_relations: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """A multigraph with parallel edges, loops, a hub, a relation without edges and an isolated last node."""
    rng = torch.Generator().manual_seed(7)
    source = torch.randint(0, num_nodes - 1, (num_edges,), generator=rng)
    target = torch.randint(0, num_nodes - 1, (num_edges,), generator=rng)
    relation = torch.randint(0, num_relations - 1, (num_edges,), generator=rng)
    target[: num_edges // 3] = 5
    source[10:14], target[10:14], relation[10:14] = 3, 4, 1
    source[20:23], target[20:23] = 8, 8
    return source, relation, target


def random_batch(text_size: int = 6, columns: int = 3, **more: Tensor) -> GraphBatch:
    """Questions on the random graph in the shared layout, in float64."""
    rng = torch.Generator().manual_seed(11)
    source, relation, target = random_edges()

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    seeds = (draw(40, columns) > 1.2).double()
    return GraphBatch(source, relation, target, 40, draw(6, text_size), draw(columns, text_size), seeds, **more)  # type: ignore[arg-type]


def blocks(batch: GraphBatch) -> GraphBatch:
    """The questions of a shared batch, each with its own copy of the graph."""
    n, columns = batch.num_nodes, batch.seeds.shape[1]
    shift = torch.arange(columns).repeat_interleave(len(batch.source)) * n
    return replace(
        batch,
        source=batch.source.repeat(columns) + shift,
        relation=batch.relation.repeat(columns),
        target=batch.target.repeat(columns) + shift,
        num_nodes=n * columns,
        seeds=batch.seeds.T.reshape(-1, 1),
        features=None if batch.features is None else batch.features.transpose(0, 1).reshape(n * columns, 1, -1),
        node_vectors=None if batch.node_vectors is None else batch.node_vectors.repeat(columns, 1),
        owner=torch.arange(columns).repeat_interleave(n),
    )
