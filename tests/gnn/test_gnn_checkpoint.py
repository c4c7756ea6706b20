"""Checkpoints: what is saved comes back, and what does not belong is refused by name. Released weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnrag.errors import ArtefactError
from gnnrag.gnn import GNNConfig, RankerConfig
from gnnrag.gnn.checkpoint import (
    Checkpoint,
    import_released,
    load_checkpoint,
    load_released,
    save_checkpoint,
    start_from,
)
from gnnrag.gnn.model import QueryGNN
from tests.helpers import gfm

ENCODER = {"model": "hash", "weights": "abc", "query_prefix": ""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = QueryGNN(GNNConfig(dim=4, layers=2, features=["dense"]), 6)
    ranker = RankerConfig(name="idf", top_k=7)
    facts = {"graphs": {"toy": "f00"}, "threshold": 0.3}
    save_checkpoint(tmp_path / "kept", Checkpoint(model, ranker, ENCODER, facts))
    return tmp_path / "kept"


def test_what_is_saved_comes_back(folder: Path) -> None:
    first, second = load_checkpoint(folder), load_checkpoint(folder, {"encoder": {**ENCODER, "size": 6}})
    assert first.facts["threshold"] == 0.3 and first.encoder == ENCODER
    assert first.ranker == RankerConfig(name="idf", top_k=7) and not first.model.training
    batch = gfm.random_batch(columns=1)
    batch = replace(
        batch,
        seeds=batch.seeds.float(),
        questions=batch.questions.float(),
        relation_vectors=batch.relation_vectors.float(),
        features=torch.rand(40, 1, 1),
    )
    assert torch.equal(first.model(batch), second.model(batch))
    save_checkpoint(folder.parent / "again", first)
    for name in ("config.json", "model.safetensors"):
        assert (folder.parent / "again" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    "expected, problem",
    [
        ({"encoder": {"weights": "abd"}}, "encoder.weights is 'abc', needed is 'abd'"),
        ({"network": {"features": ["dense", "lexical"]}}, r"network.features is \['dense'\]"),
        ({"facts": {"graphs": {"toy": "f01"}}}, "facts.graphs.toy is 'f00'"),
    ],
)
def test_the_first_difference_is_named(folder: Path, expected: dict[str, Any], problem: str) -> None:
    with pytest.raises(ArtefactError, match=problem):
        load_checkpoint(folder, expected)


# ------------------------------------------------------------------------------------------------------ released
def released_state(model: QueryGNN) -> dict[str, torch.Tensor]:
    """The weights under the names that gfm-rag gives them."""
    late = model.has_late
    parts = {
        "head_in": "predict_mlp.0" if late else "entity_model.mlp.0",
        "head_out": "predict_mlp.2" if late else "entity_model.mlp.2",
        "early_in": "early_fuse_mlp.0",
        "early_out": "early_fuse_mlp.2",
        "node_mlp": "ent_mlp",
    }
    out = {}
    for name, tensor in model.state_dict().items():
        part, _, kind = name.rpartition(".")
        prefix = "entity_model." if part.startswith("layers") else ""
        out[f"{prefix}{parts.get(part, part)}.{kind}"] = tensor
    return out


RELEASES: list[dict[str, Any]] = [
    {}, {"fusion": "early"}, {"fusion": "late"}, {"concat_hidden": True}, {"aggregate": "pna"}, {"layers": 1},
    {"norm": False}, {"mode": "entity", "fusion": "none", "node_text": False, "seed_weight": True},
]  # fmt: skip


@pytest.mark.parametrize("settings", RELEASES)
def test_settings_follow_from_released_tensors(settings: dict[str, Any], tmp_path: Path) -> None:
    config = GNNConfig(**{"dim": 4, "layers": 3, "seed_weight": False, "upstream_direction": True, **settings})
    source = QueryGNN(config, 6)
    state = released_state(source)
    if source.has_late:  # gfm-rag keeps the head that late fusion replaced
        state["entity_model.mlp.0.weight"] = torch.zeros(8, 8)
    model = import_released(state, tmp_path, config.aggregate)
    assert model.config == config
    for a, b in zip(model.state_dict().values(), source.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    torch.save({"model": Path("x")}, path)  # a pickle that names a class is not run
    with pytest.raises(ArtefactError, match="cannot be read"):
        load_released(path)
    torch.save({"model": {"rel_mlp.weight": torch.zeros(3, 2)}}, path)
    with pytest.raises(ArtefactError, match=r"question_mlp\.weight"):
        load_released(path)
    state = released_state(gfm.golden_model())
    state["entity_model.layers.0.query.weight"] = torch.zeros(1)
    with pytest.raises(ArtefactError, match=r"'layers.0.query.weight'"):
        import_released(state, path)


# ---------------------------------------------------------------------------------------------------------- start
def released_folder(folder: Path, config: GNNConfig, record: dict[str, Any]) -> QueryGNN:
    folder.mkdir()
    torch.manual_seed(3)
    source = QueryGNN(config, 6)
    torch.save({"model": released_state(source)}, folder / "model.pth")
    (folder / "config.json").write_text(json.dumps(record))
    return source


OFFICIAL = replace(gfm.official(), dim=4, layers=2, link_vectors=False, upstream_direction=True)


def said(**parts: Any) -> dict[str, Any]:
    return {"model_config": {"entity_model": parts}}


NAMED = {"text_emb_model_config": {"text_emb_model_name": "sentence-transformers/all-mpnet-base-v2"}}


def test_a_training_starts_from_a_released_folder(tmp_path: Path) -> None:
    record = NAMED | said(aggregate_func="sum", short_cut="true")
    source = released_folder(tmp_path / "gfm", OFFICIAL, record)
    model = QueryGNN(replace(OFFICIAL, link_vectors=True), 6)  # where questions start does not decide the weights
    start_from(model, tmp_path / "gfm", ENCODER, "models/all-mpnet-base-v2")
    for name, value in source.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


@pytest.mark.parametrize(
    "record, changes, embedder, problem",
    [
        (said(aggregate_func="mean", short_cut="yes"), {}, "all-mpnet-base-v2", "gnn.aggregate is 'mean'"),
        (said(aggregate_func="sum", short_cut=False), {}, "all-mpnet-base-v2", "gnn.shortcut is False"),
        (NAMED, {"upstream_direction": False}, "all-mpnet-base-v2", "gnn.upstream_direction is True, needed is False"),
        (NAMED, {"dim": 8}, "all-mpnet-base-v2", "gnn.dim is 4, needed is 8"),
        (NAMED, {}, "embedded", "trained with the embedder 'all-mpnet-base-v2', the index has 'embedded'"),
    ],
)
def test_a_released_folder_that_does_not_fit_is_refused(
    tmp_path: Path, record: dict[str, Any], changes: dict[str, Any], embedder: str, problem: str
) -> None:
    released_folder(tmp_path / "gfm", OFFICIAL, record)
    with pytest.raises(ArtefactError, match=problem):
        start_from(QueryGNN(replace(OFFICIAL, **changes), 6), tmp_path / "gfm", ENCODER, embedder)


def test_a_training_starts_from_a_checkpoint_of_the_same_encoder(folder: Path) -> None:
    saved = load_checkpoint(folder).model
    model = QueryGNN(saved.config, 6)
    start_from(model, folder, ENCODER, "any")
    assert all(torch.equal(value, saved.state_dict()[name]) for name, value in model.state_dict().items())
    with pytest.raises(ArtefactError, match=r"encoder\.weights"):
        start_from(model, folder, {**ENCODER, "weights": "other"}, "any")
    with pytest.raises(ArtefactError, match="length 6, the index has 5"):
        start_from(QueryGNN(saved.config, 5), folder, ENCODER, "any")
