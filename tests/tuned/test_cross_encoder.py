"""The cross-encoder of pairs: scores, checkpoints, refusals, and which of the best are chosen."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.io import WEIGHTS, load_tensors, save_tensors
from gnnrag.roles.tuned.checkpoint import RECORD, load_encoder, read_tuned, round_weights, trained
from gnnrag.roles.tuned.selection import Selection, chosen
from gnnrag.roles.tuned.verifier import (
    CrossEncoder,
    CrossEncoderConfig,
    PairMaker,
    PairScorer,
    best_to_read,
    load_cross_encoder,
    merged,
    padded,
    save_cross_encoder,
)
from gnnrag.training.verifier_data import make_example
from tests.helpers.toy_verifier import make_encoder, make_rows
from tests.helpers.tuned import base_of


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("base") / "encoder")


def network(encoder: Path, **changes: Any) -> CrossEncoder:
    torch.manual_seed(1)
    known = {"base": str(encoder), "hidden": 8, "feature_hidden": 4, "train_layers": 1, "max_tokens": 48}
    model = CrossEncoder(CrossEncoderConfig(**{**known, **changes}))
    if model.config.text:
        torch.nn.init.normal_(model.out.weight)  # as after training: it starts at zero
    return model.eval()


def pairs_of(model: CrossEncoder, count: int = 5) -> list[Any]:
    maker = PairMaker(model.config)
    examples = [make_example("toy", row, maker) for row in make_rows(count)]
    return [pair for e in examples for pair in maker.pairs(e.shown, e.features, range(len(e.labels)))]


def scores(model: CrossEncoder, pairs: list[Any]) -> list[float]:
    return PairScorer(model, PairMaker(model.config))(pairs)


def save(folder: Path, model: CrossEncoder) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_cross_encoder(folder, model, "verifier", asdict(model.config), {})
    return folder


def load(folder: Path, base: str | None = None) -> CrossEncoder:
    return load_cross_encoder(folder, read_tuned(folder, "verifier", ("cross_encoder",)), base or base_of(folder))


def test_a_pair_scores_the_same_in_any_batch(base: Path) -> None:
    model = network(base)
    pairs = pairs_of(model)
    whole = scores(model, pairs)
    assert len(set(whole)) > 30
    assert [scores(model, [pair])[0] for pair in pairs] == whole  # to the last bit
    order = np.random.default_rng(0).permutation(len(pairs)).tolist()
    assert scores(model, [pairs[i] for i in order]) == [whole[i] for i in order]


@pytest.mark.parametrize("changes", [{}, {"text": False}, {"features": []}, {"pooling": "cls"}, {"store": "fp32"}])
def test_a_checkpoint_scores_as_what_was_saved(base: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    model = network(base, **changes)
    round_weights(model, model.config.store)
    folder = save(tmp_path / "best", model)
    again = load(folder)
    pairs = pairs_of(model)
    assert scores(again, pairs) == scores(model, pairs)
    if changes == {"text": False}:
        assert all(not pair.tokens for pair in pairs)
    if changes == {"features": []}:
        assert pairs[0].features.shape == (0,)


def test_only_what_was_trained_is_stored(base: Path, tmp_path: Path) -> None:
    stored = load_tensors(save(tmp_path / "a", network(base)) / WEIGHTS)
    layers = {name.split(".")[3] for name in stored if name.startswith("encoder.encoder.layer")}
    assert layers == {"1"} and all(value.dtype == torch.float16 for value in stored.values())
    everything = load_tensors(save(tmp_path / "b", network(base, train_layers=None)) / WEIGHTS)
    assert "encoder.embeddings.word_embeddings.weight" in everything
    head = load_tensors(save(tmp_path / "c", network(base, train_layers=0)) / WEIGHTS)
    assert head and not any(name.startswith("encoder.") for name in head)


def test_settings_reach_the_network(base: Path) -> None:
    groups = network(base, encoder_rate=0.02).parameter_groups()
    assert [group.get("scale") for group in groups] == [None, 0.02], "the encoder has a rate of its own"
    assert sum(p.numel() for group in groups for p in group["params"]) == sum(
        weight.numel() for name, weight in trained(network(base)).items() if name != "shift"
    )
    assert len(network(base, train_layers=0).parameter_groups()) == 1
    encoder, width = load_encoder(str(base), None, dropout=0.25)
    assert width == 16 and encoder.config.hidden_dropout_prob == encoder.config.attention_probs_dropout_prob == 0.25
    maker = PairMaker(CrossEncoderConfig(base=str(base), max_tokens=16))
    (row,) = make_rows(1)
    example = make_example("toy", row, maker)
    pairs = maker.pairs(example.shown, example.features, [0, 1])
    assert {len(pair.tokens) for pair in pairs} == {16} and set(pairs[0].types) == {0, 1}
    assert [padded(n) for n in (0, 1, 32, 33)] == [32, 32, 32, 64]


def test_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    folder = save(tmp_path / "best", network(base))
    other = make_encoder(tmp_path / "other", seed=3)
    with pytest.raises(ArtefactError, match=r"trained on the base .* give the base of the training"):
        load(folder, str(other))
    moved = make_encoder(tmp_path / "moved")  # the same weights elsewhere
    assert load(folder, str(moved))
    with pytest.raises(ArtefactError, match="there is no such folder; it was trained on"):
        load(folder, str(tmp_path / "nowhere"))


def test_another_architecture_is_refused(base: Path, tmp_path: Path) -> None:
    folder = save(tmp_path / "best", network(base))
    tensors = load_tensors(folder / WEIGHTS)
    record = read_tuned(folder, "verifier", ("cross_encoder",))
    for changed, message in (
        ({k: v for k, v in tensors.items() if k != "join.weight"}, "'join.weight'"),
        ({**tensors, "more": torch.zeros(1)}, "'more'"),
        ({**tensors, "join.bias": torch.zeros(3)}, r"shape \(3,\), needed is \(8,\)"),
    ):
        save_tensors(folder / WEIGHTS, changed)
        with pytest.raises(ArtefactError, match=message):
            load_cross_encoder(folder, record, str(base))
    with pytest.raises(ArtefactError, match="hiden"):
        load_cross_encoder(folder, replace(record, settings={**record.settings, "hiden": 3}), str(base))
    with pytest.raises(ArtefactError, match="'weekday' is unknown"):
        load_cross_encoder(folder, replace(record, settings={**record.settings, "features": ["weekday"]}), str(base))
    (folder / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(ArtefactError, match="is no safetensors file"):
        load_cross_encoder(folder, record, str(base))
    assert json.loads((folder / RECORD).read_text())["base"]["name"] == str(base)


def test_checkpointing_changes_no_gradient(base: Path) -> None:
    found = []
    for switch in (False, True):
        model = network(base, gradient_checkpointing=switch).train()
        maker = PairMaker(model.config)
        model(maker.batch(pairs_of(model, 1), 8, "cpu", True)).sum().backward()
        found.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys() and any(n.startswith("encoder.encoder.layer.1") for n in found[0])
    assert not any(n.startswith("encoder.encoder.layer.0") for n in found[0])
    assert all(torch.allclose(found[0][n], found[1][n], atol=1e-7) for n in found[0])


def test_the_best_by_features_are_read_and_the_rest_stands_below(base: Path) -> None:
    model = network(base)
    scorer = PairScorer(model, PairMaker(model.config))
    features = np.stack([p.features for p in pairs_of(model, 1)])
    places, rough = best_to_read(scorer, features, 3)
    assert places == sorted(np.argsort(-rough, kind="stable")[:3].tolist())
    assert best_to_read(scorer, features, None)[0] == list(range(len(features)))
    torch.nn.init.zeros_(model.out.weight)  # before training, features alone decide
    assert scores(model, pairs_of(model, 1)) == pytest.approx(rough.tolist(), abs=1e-6)
    out = merged(np.array([5.0, 1.0, 4.0]), [1, 2], [-2.0, 3.0])
    assert out.tolist() == [-2.0, -2.0, 3.0]


def test_passes_as_large_as_a_gpus_score_the_same(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(base)
    pairs = pairs_of(model, 3)
    features = np.stack([p.features for p in pairs])
    small = PairScorer(model, PairMaker(model.config))
    monkeypatch.setattr("gnnrag.roles.tuned.verifier.pass_rows", lambda device, on_cpu, on_gpu: on_gpu)
    large = PairScorer(model, PairMaker(model.config))
    assert large.rows > small.rows
    assert large(pairs) == pytest.approx(small(pairs), abs=1e-5)
    assert large.by_features(features) == pytest.approx(small.by_features(features), abs=1e-5)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"pooling": "max"}, "network.pooling='max': allowed are mean, cls"),
        ({"features": ["rang"]}, "network.features: 'rang' is unknown"),
        ({"text": False, "features": []}, "nothing is left to judge by"),
        ({"train_layers": 3}, "has 2 layers; null trains all"),
        ({"max_tokens": 3}, "network.max_tokens=3: must be at least 16"),
        ({"dropout": 1.0}, "network.dropout=1.0"),
        ({"base": "./nowhere"}, "network.base='./nowhere': there is no such folder"),
    ],
)
def test_bad_settings_are_refused(base: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        network(base, **changes)


def test_the_best_that_reach_the_threshold_are_chosen() -> None:
    chances = np.array([0.2, 0.9, 0.6, 0.6, 0.7])
    assert chosen(chances, 0.5, 5) == [1, 2, 3, 4]
    assert chosen(chances, 0.5, 3) == [1, 2, 4]  # of equal chances the earlier one
    assert chosen(chances, 0.95, 5) == []
    assert chosen(np.array([np.nan, 0.9]), 0.0, 5) == [1]
    assert chosen(np.array([]), 0.0, 5) == []


def test_chances_are_calibrated_logits() -> None:
    selection = Selection(0.5, 2, scale=2.0, shift=-1.0)
    assert selection.chances([0.5, 1.0]).tolist() == pytest.approx([0.5, 1 / (1 + np.exp(-1.0))])
    assert selection.places([0.4, 0.6, 9.0, 8.0]) == [2, 3]
    assert np.isfinite(selection.chances([1e9, -1e9])).all()
