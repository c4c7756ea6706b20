"""The network: equivariance, independence of the batch, reach, layouts, fusion, precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gnnrag.gnn import GNNConfig
from gnnrag.gnn.edges import GraphBatch
from gnnrag.gnn.model import QueryGNN
from tests.helpers import gfm

SETTINGS = [
    {"fusion": "none", "node_text": False},
    {"aggregate": "mean", "message": "transe"},
    {"aggregate": "pna", "message": "rotate"},
    {"aggregate": "max", "features": ["dense", "lexical"], "concat_hidden": True},
    {"features": ["dense", "lexical"]},
    {"fusion": "late", "norm": False, "shortcut": False},
    {"layers": 0, "features": ["dense", "lexical"]},
]


def network(**settings: object) -> QueryGNN:
    torch.manual_seed(4)
    model = QueryGNN(GNNConfig(**{"dim": 8, "layers": 2, **settings}), text_size=6).double()  # type: ignore[arg-type]
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def rich_batch(columns: int = 3) -> GraphBatch:
    rng = torch.Generator().manual_seed(21)

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=rng, dtype=torch.float64)

    return gfm.random_batch(columns=columns, features=draw(40, columns, 2), node_vectors=draw(40, 6))


def single(batch: GraphBatch) -> GraphBatch:
    """The batch in float32."""
    reals = {k: v for k, v in vars(batch).items() if isinstance(v, Tensor) and v.is_floating_point()}
    return replace(batch, **{k: v.float() for k, v in reals.items()})


def columns_of(batch: GraphBatch, chosen: list[int]) -> GraphBatch:
    features = None if batch.features is None else batch.features[:, chosen]
    return replace(batch, questions=batch.questions[chosen], seeds=batch.seeds[:, chosen], features=features)


@pytest.mark.parametrize("settings", SETTINGS)
def test_renamed_nodes_and_shuffled_edges_change_nothing(settings: dict[str, object]) -> None:
    model, batch = network(**settings), rich_batch()
    names = torch.randperm(40, generator=torch.Generator().manual_seed(1))  # names[v] is the new id of v
    order = torch.randperm(160, generator=torch.Generator().manual_seed(2))
    back = names.argsort()
    renamed = replace(
        batch,
        source=names[batch.source][order],
        relation=batch.relation[order],
        target=names[batch.target][order],
        seeds=batch.seeds[back],
        features=batch.features[back],
        node_vectors=batch.node_vectors[back],
    )
    torch.testing.assert_close(model(renamed)[names], model(batch), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("settings", SETTINGS)
def test_layouts_and_batches_give_the_same(settings: dict[str, object]) -> None:
    model, batch = network(**settings), rich_batch()
    whole = model(batch)
    torch.testing.assert_close(model(gfm.blocks(batch)).view(3, 40).T, whole, atol=1e-10, rtol=1e-10)
    for chosen in ([0], [2, 1]):
        torch.testing.assert_close(model(columns_of(batch, chosen)), whole[:, chosen], atol=1e-10, rtol=1e-10)
    model, batch = model.float(), single(batch)
    whole = model(batch)
    scale = whole.abs().max().item()
    for i in range(3):
        torch.testing.assert_close(model(columns_of(batch, [i]))[:, 0], whole[:, i], atol=1e-5 * scale, rtol=1e-5)


def by_hand(model: QueryGNN, batch: GraphBatch) -> Tensor:
    """The logits of the shared layout, node by node and edge by edge, from the equations alone."""
    config, columns = model.config, []
    asked = model.question_mlp(batch.questions)
    start = model.rel_mlp(batch.relation_vectors) if len(model.layers) else None
    for b, q in enumerate(asked):
        known = [model.node_mlp(batch.node_vectors)] if hasattr(model, "node_mlp") else []
        known += [batch.features[:, b]] if config.features else []
        boundary = batch.seeds[:, b, None] * q
        if config.fusion in ("early", "both"):
            weight, bias = model.early_in.weight, model.early_in.bias
            boundary = model.early_out((torch.cat([boundary, *known], 1) @ weight.T + bias).relu())
        x, states = boundary, []
        for layer in model.layers:
            relations = layer.relation_projection(start)
            received = [[row] for row in boundary]
            for u, r, v in zip(batch.source, batch.relation, batch.target, strict=True):
                received[v].append(x[u] * relations[r] if config.message == "distmult" else x[u] + relations[r])
            reduce = {"sum": lambda t: t.sum(0), "mean": lambda t: t.mean(0), "min": lambda t: t.amin(0)}
            got = torch.stack([reduce[config.aggregate](torch.stack(rows)) for rows in received])
            out = torch.cat([x, got], 1) @ layer.linear.weight.T + layer.linear.bias
            out = (layer.layer_norm(out) if config.norm else out).relu()
            x = out + x if config.shortcut else out
            states.append(x)
        read = states if config.concat_hidden else [x]
        late = known if config.fusion in ("late", "both") else []
        joined = torch.cat([*read, q.expand(40, -1), *late], 1)
        columns.append(model.head_out((joined @ model.head_in.weight.T + model.head_in.bias).relu())[:, 0])
    return torch.stack(columns, 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"layers": 0, "fusion": "late", "features": ["dense", "lexical"]},
        {"layers": 0, "fusion": "early", "features": ["dense", "lexical"]},
        {"features": ["dense", "lexical"]},
        {"fusion": "early", "message": "transe", "aggregate": "mean"},
        {"fusion": "late", "node_text": False, "features": ["dense", "lexical"], "aggregate": "min"},
        {"fusion": "none", "concat_hidden": True, "norm": False, "shortcut": False},
    ],
)
def test_logits_are_those_of_the_equations(settings: dict[str, object]) -> None:
    model, batch = network(**settings), rich_batch()
    torch.testing.assert_close(model(batch), by_hand(model, batch), atol=1e-10, rtol=1e-10)


def test_swapped_relations_on_turned_edges_change_nothing() -> None:
    model, batch = network(), rich_batch()
    # Both directions of every triple: turning all edges is then the same as swapping the halves.
    closed = gfm.both_ways(torch.stack([batch.source, batch.relation % 3, batch.target], 1), 3)
    both = replace(batch, source=closed[0], relation=closed[1], target=closed[2])
    turned = replace(both, source=both.target, target=both.source, relation_vectors=both.relation_vectors.roll(3, 0))
    torch.testing.assert_close(model(turned), model(both), atol=1e-10, rtol=1e-10)
    flipped = replace(both, source=both.target, target=both.source)
    assert not torch.allclose(model(flipped), model(both))
    model.config.upstream_direction = True
    expected = model(both)
    model.config.upstream_direction = False
    torch.testing.assert_close(model(flipped), expected, atol=1e-10, rtol=1e-10)
    # With r for r + R, an answer would be one step away from itself by the edge that was to be hidden.
    model, batch = gfm.golden_model(), gfm.golden_batch()
    assert not torch.allclose(model(replace(batch, relation=batch.relation % 2)), model(batch))


def test_a_graph_without_texts_is_read_by_a_network_that_knows_texts() -> None:
    model, batch = network(), rich_batch()
    bare = model(replace(batch, node_vectors=None))
    assert bare.shape == (40, 3) and not torch.allclose(bare, model(batch))


def test_bfloat16_stays_near_float32() -> None:
    model, batch = network().float(), single(rich_batch())
    exact = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(batch)
    assert rough.dtype == torch.bfloat16
    assert (rough.float() - exact).abs().max() < 0.05 * exact.abs().max()
    rough.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("dim, size", [(32, 78_977), (64, 215_297), (128, 659_969), (256, 2_237_441), (512, 8_144_897)])
def test_official_networks_have_the_published_size(dim: int, size: int) -> None:
    config = gfm.official()
    assert config.dim == 512
    config.dim = dim
    assert sum(p.numel() for p in QueryGNN(config, 768).parameters()) == size
