"""Look-alike names, exactly and, of many, in inverted lists."""

from __future__ import annotations

import numpy as np
import pytest

from gnnrag.graphs import synonyms
from gnnrag.graphs.synonyms import find_synonyms


def unit_rows(n=300, dim=8, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_against_a_loop():
    # Some names start no edge, and the empty one ends none.
    entities = sorted(["", "ab", "c d", "é!", "北京", *(f"name{i:04}" for i in range(295))])
    vectors = unit_rows()
    pairs, cosines = find_synonyms(entities, vectors, 0.6, 4)
    expected = []
    exact = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    for i, name in enumerate(entities):
        if sum(c.isalnum() for c in name) > 2:
            near = sorted((-exact[i, j], j) for j, n in enumerate(entities) if j != i and n and exact[i, j] >= 0.6)
            expected += [(i, j, -c) for c, j in near[:4]]
    assert pairs.tolist() == [[i, j] for i, j, _ in expected]
    assert cosines == pytest.approx([c for *_, c in expected])
    assert len({i for i, _ in pairs.tolist()}) > 100


@pytest.mark.parametrize("entities", [[], [""], ["ab"]])
def test_nothing_to_join(entities):
    pairs, cosines = find_synonyms(entities, np.ones((len(entities), 4), np.float32))
    assert pairs.shape == (0, 2) and cosines.shape == (0,)


def test_of_many_names_few_edges_are_missed_and_none_is_wrong(monkeypatch):
    rng = np.random.default_rng(3)
    rows = np.repeat(unit_rows(600, 64, 1), 5, axis=0) + rng.normal(scale=0.06, size=(3000, 64))
    vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    entities = [f"name{i:04}" for i in range(3000)]
    pairs, cosines = find_synonyms(entities, vectors, 0.7)
    exact = dict(zip(map(tuple, pairs.tolist()), cosines.tolist(), strict=True))
    monkeypatch.setattr(synonyms, "EXACT_UP_TO", 100)
    pairs, cosines = find_synonyms(entities, vectors, 0.7)
    assert all(exact[tuple(p)] == c for p, c in zip(pairs.tolist(), cosines.tolist(), strict=True))
    assert 0.95 * len(exact) < len(pairs) <= len(exact) and len(exact) > 8000
