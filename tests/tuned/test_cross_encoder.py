"""The cross-encoder of pairs: scores, checkpoints, refusals, and which of the best are chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.io import WEIGHTS, load_tensors, save_tensors
from gnnrag.roles.tuned.checkpoint import read_tuned, round_weights
from gnnrag.roles.tuned.verifier import (
    CrossEncoder,
    CrossEncoderConfig,
    PairMaker,
    PairScorer,
    Selection,
    best_to_read,
    chosen,
    load_cross_encoder,
    merged,
    save_cross_encoder,
)
from gnnrag.training.verifier import make_example
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
    save_cross_encoder(folder, model, {})
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


@pytest.mark.parametrize("changes", [{}, {"text": False}, {"pooling": "cls"}])
def test_a_checkpoint_scores_as_what_was_saved(base: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    model = network(base, **changes)
    round_weights(model)
    folder = save(tmp_path / "best", model)
    again = load(folder)
    pairs = pairs_of(model)
    assert scores(again, pairs) == scores(model, pairs)
    if changes == {"text": False}:
        assert all(not pair.tokens for pair in pairs)


def test_only_what_was_trained_is_stored(base: Path, tmp_path: Path) -> None:
    stored = load_tensors(save(tmp_path / "a", network(base)) / WEIGHTS)
    layers = {name.split(".")[3] for name in stored if name.startswith("encoder.encoder.layer")}
    assert layers == {"1"} and all(value.dtype == torch.float16 for value in stored.values())
    everything = load_tensors(save(tmp_path / "b", network(base, train_layers=None)) / WEIGHTS)
    assert "encoder.embeddings.word_embeddings.weight" in everything
    head = load_tensors(save(tmp_path / "c", network(base, train_layers=0)) / WEIGHTS)
    assert head and not any(name.startswith("encoder.") for name in head)


def test_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    folder = save(tmp_path / "best", network(base))
    other = make_encoder(tmp_path / "other", seed=3)
    with pytest.raises(ArtefactError, match=r"trained on the base .* give the base of the training"):
        load(folder, str(other))
    moved = make_encoder(tmp_path / "moved")  # the same weights elsewhere
    assert load(folder, str(moved))
    with pytest.raises(ArtefactError, match=r"is not there: .*it was trained on"):
        load(folder, str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda t: {k: v for k, v in t.items() if k != "join.weight"}, "'join.weight'"),
        (lambda t: {**t, "more": torch.zeros(1)}, "'more'"),
        (lambda t: {**t, "join.bias": torch.zeros(3)}, r"\(3,\)"),
    ],
)
def test_weights_of_another_architecture_are_refused(base: Path, tmp_path: Path, change: Any, named: str) -> None:
    folder = save(tmp_path / "best", network(base))
    save_tensors(folder / WEIGHTS, change(load_tensors(folder / WEIGHTS)))
    with pytest.raises(ArtefactError, match=named):
        load(folder)


def test_unknown_settings_and_damage_are_refused(base: Path, tmp_path: Path) -> None:
    folder = save(tmp_path / "best", network(base))
    record = read_tuned(folder, "verifier", ("cross_encoder",))
    with pytest.raises(ArtefactError, match="hiden"):
        load_cross_encoder(folder, replace(record, settings={**record.settings, "hiden": 3}), str(base))
    (folder / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(ArtefactError, match="safetensors"):
        load_cross_encoder(folder, record, str(base))


def test_the_encoder_trains_at_a_rate_of_its_own(base: Path) -> None:
    groups = network(base, encoder_rate=0.02).parameter_groups()
    assert [group.get("scale") for group in groups] == [None, 0.02]
    assert len(network(base, train_layers=0).parameter_groups()) == 1
    with pytest.raises(ConfigError, match=r"network\.train_layers=3"):
        network(base, train_layers=3)


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
