"""Look-alike names, exactly and, of many, in buckets."""

from __future__ import annotations

import numpy as np
import pytest

from gnnrag.graphs import synonyms
from gnnrag.graphs.synonyms import MEMBERS, buckets_of, find_synonyms, num_directions, num_probes, sharing


def unit_rows(n=300, dim=8, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def names(n):
    """Return sorted names, some of which start no edge, and the empty one, which ends none."""
    return sorted(["", "ab", "c d", "é!", "北京", *(f"name{i:04}" for i in range(n - 5))])


def test_against_a_loop():
    vectors, entities = unit_rows(), names(300)
    found = find_synonyms(entities, vectors, 0.6, 4)
    expected = []
    exact = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    for i, name in enumerate(entities):
        if sum(c.isalnum() for c in name) > 2:
            near = sorted((-exact[i, j], j) for j, n in enumerate(entities) if j != i and n and exact[i, j] >= 0.6)
            expected += [(i, j, -c) for c, j in near[:4]]
    assert found.pairs.tolist() == [[i, j] for i, j, _ in expected]
    assert found.cosines == pytest.approx([c for *_, c in expected])
    assert len({i for i, _ in found.pairs.tolist()}) > 100


@pytest.mark.parametrize("entities", [[], [""], ["ab"]])
def test_nothing_to_join(entities):
    found = find_synonyms(entities, np.ones((len(entities), 4), np.float32))
    assert found.pairs.shape == (0, 2) and found.cosines.shape == (0,)


class TestManyNames:
    """Above `EXACT_UP_TO` only names that share a bucket are compared."""

    def test_few_edges_are_missed_and_none_is_wrong(self, monkeypatch):
        rng = np.random.default_rng(3)
        centres = unit_rows(600, 64, 1)
        rows = np.repeat(centres, 5, axis=0) + rng.normal(scale=0.06, size=(3000, 64))
        vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        entities = [f"name{i:04}" for i in range(3000)]
        exact = find_synonyms(entities, vectors, 0.7)
        monkeypatch.setattr(synonyms, "EXACT_UP_TO", 100)
        monkeypatch.setattr(synonyms, "_BUFFER", 500)
        monkeypatch.setattr(synonyms, "_CODES", 500)
        found = find_synonyms(entities, vectors, 0.7)
        kept = dict(zip(map(tuple, exact.pairs.tolist()), exact.cosines.tolist(), strict=True))
        assert all(kept[tuple(p)] == c for p, c in zip(found.pairs.tolist(), found.cosines.tolist(), strict=True))
        assert 0.95 * len(kept) < len(found.pairs) < len(kept) and len(kept) > 8000

    def test_equal_vectors_are_all_found(self, monkeypatch):
        monkeypatch.setattr(synonyms, "EXACT_UP_TO", 10)
        found = find_synonyms([f"name{i:04}" for i in range(400)], np.repeat(unit_rows(4, 16), 100, axis=0))
        assert len(found.pairs) == 400 * 99


def test_they_are_the_strongest_pairs_of_directions():
    from gnnrag.graphs import synonyms as buckets

    vectors = unit_rows(20, 12)
    rng = np.random.default_rng(buckets._SEED)
    first, second = np.rint(rng.standard_normal((2, 16, 12)) * 2**7)
    rows = np.rint(vectors.astype(np.float64) * 2**11)
    for row, found in zip(rows, buckets_of(vectors, 16), strict=True):
        sums = (first @ row)[:, None] + (second @ row)[None, :]
        assert found.tolist() == np.argsort(-sums.ravel(), kind="stable")[: num_probes(16)].tolist()


@pytest.mark.slow
def test_near_vectors_share_a_bucket_and_far_ones_seldom():
    a = unit_rows(3000, 64)
    b = 0.8 * a + 0.6 * _orthogonal(a)
    near, far = buckets_of(b.astype(np.float32), 128), buckets_of(unit_rows(3000, 64, 5), 128)
    own = buckets_of(a, 128)

    def share(other):
        return np.mean([bool(set(x) & set(y)) for x, y in zip(own.tolist(), other.tolist(), strict=True)])

    assert share(near) > 0.95
    assert share(far) < 0.15


def _orthogonal(rows):
    other = unit_rows(*rows.shape, 9)
    other = other - (other * rows).sum(axis=1, keepdims=True) * rows
    return other / np.linalg.norm(other, axis=1, keepdims=True)


def test_sharing_gives_every_pair_of_a_bucket():
    buckets = np.array([[0, 5], [5, 2], [7, 8], [2, 0], [9, 5]])
    asks = np.array([True, False, True, False, True])
    found = [(a.tolist(), m.tolist()) for a, m in sharing(buckets, asks)]
    assert found == [([0], [0, 3]), ([0, 4], [0, 1, 4])]
    assert list(sharing(np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=bool))) == []


@pytest.mark.parametrize("count", [1, 100_001, 200_000, 2_000_000])
def test_more_vectors_have_more_buckets(count):
    directions = num_directions(count)
    assert directions**2 * MEMBERS >= count * num_probes(directions)
    assert directions == 16 or (directions // 2) ** 2 * MEMBERS < count * num_probes(directions // 2)
