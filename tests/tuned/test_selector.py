"""The network that selects queries: invariants, choice of a pair, checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gnnrag.errors import ArtefactError
from gnnrag.roles.tuned.checkpoint import read_tuned
from gnnrag.roles.tuned.thoughts import (
    PICKED,
    Options,
    Selector,
    SelectorConfig,
    load_selector,
    save_selector,
    stack,
)

NAMES = ("a", "b", "c")


def options(n: int, seed: int = 0) -> Options:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Options(rng.random((n, 3)).astype(np.float32), vectors, rng.integers(0, 9, size=(n, 5)))


@pytest.fixture
def model() -> Selector:
    torch.manual_seed(0)
    return Selector(SelectorConfig(hidden=8, features=list(NAMES))).eval()


def test_what_is_shared_with_the_picked_one() -> None:
    found = Options(
        np.zeros((3, 1), np.float32),
        np.array([[1, 0], [0.6, 0.8], [0, 1]], np.float32),
        np.array([[4, 5], [4, 6], [5, 4]]),
    )
    assert not found.beside(None)[:, 1:].any()
    beside = found.beside(0)[:, 1:]
    assert np.allclose(beside[1], [1, 0.6, 1, 1, 1])  # the same first hit
    assert np.allclose(
        beside[2], [1, 0.0, 0, 1, 1]
    )  # its first hit is among the other's, and the other's among its own
    assert beside.shape == (3, len(PICKED))


def test_scores_do_not_depend_on_filler_or_order(model: Selector) -> None:
    short, long = options(3), options(7, 1)
    features, mask = stack([short.beside(None), long.beside(None)])
    with torch.no_grad():
        together = model(features, mask)
    alone = model.logits(short)
    assert np.allclose(together[0, :3], alone[:3], atol=1e-6) and float(together[0, -1]) == pytest.approx(
        float(alone[-1]), abs=1e-6
    )
    assert torch.isinf(together[0, 3:-1]).all()
    back = Options(short.features[::-1].copy(), short.vectors[::-1].copy(), short.hits[::-1].copy())
    assert np.allclose(model.logits(back)[:3][::-1], alone[:3], atol=1e-6)


def test_fast_and_slow_differ_and_none_ends_the_choice(model: Selector) -> None:
    torch.nn.init.constant_(model.none.bias, -20.0)
    for seed in range(5):
        fast, slow = model.pick(options(6, seed))
        assert fast is not None and slow is not None and fast != slow
    assert model.pick(options(1)) == (0, None)
    assert model.pick(options(0)) == (None, None)
    torch.nn.init.constant_(model.none.bias, 20.0)
    assert model.pick(options(6)) == (None, None)


def test_features_are_scaled_by_what_trained(model: Selector) -> None:
    rows = np.concatenate([options(50, s).beside(0) for s in range(4)])
    model.scale(rows)
    assert np.allclose(model.mean, rows.mean(axis=0), atol=1e-6)
    assert float(model.spread.min()) >= 0.05 - 1e-9


def test_a_checkpoint_comes_back(model: Selector, tmp_path: Path) -> None:
    save_selector(tmp_path, model, {"name": "toy"}, {"step": 3})
    record = read_tuned(tmp_path, "thoughts", ("selector",))
    found = load_selector(tmp_path, record, NAMES)
    assert (found.logits(options(5)) == model.logits(options(5))).all() and record.facts["step"] == 3


def test_other_features_are_refused(model: Selector, tmp_path: Path) -> None:
    save_selector(tmp_path, model, {}, {})
    record = read_tuned(tmp_path, "thoughts", ("selector",))
    with pytest.raises(ArtefactError, match="other features than this version makes \\(d differs\\); train again"):
        load_selector(tmp_path, record, (*NAMES, "d"))
    with pytest.raises(ArtefactError, match="their order differs"):
        load_selector(tmp_path, record, tuple(reversed(NAMES)))
