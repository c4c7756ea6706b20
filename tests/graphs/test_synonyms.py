from __future__ import annotations

import numpy as np
import pytest

from gnnrag.graphs.synonyms import find_synonyms


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


def test_a_cosine_depends_on_its_pair_alone():
    vectors, entities = unit_rows(1500), [f"name{i:04}" for i in range(1500)]
    found = find_synonyms(entities, vectors, 0.8, 1500)
    whole = {(i, j): c for (i, j), c in zip(found.pairs.tolist(), found.cosines.tolist(), strict=True)}
    assert all(whole[j, i] == c for (i, j), c in whole.items())
    keep = np.arange(0, 1500, 3)
    part = find_synonyms([entities[i] for i in keep], vectors[keep], 0.8, 1500)
    for (i, j), cosine in zip(part.pairs.tolist(), part.cosines.tolist(), strict=True):
        assert whole[int(keep[i]), int(keep[j])] == cosine


@pytest.mark.parametrize("max_neighbours", [1, 3, 100])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_known_changes_nothing_but_the_work(seed, max_neighbours, monkeypatch):
    vectors, entities = unit_rows(250, 4, seed), names(250)
    rng = np.random.default_rng(seed)
    known = None
    for size in (150, 140, 200, 5, 180, 181, 0, 30):
        keep = np.sort(rng.choice(250, size, replace=False))
        some = [entities[i] for i in keep]
        fresh = find_synonyms(some, vectors[keep], 0.7, max_neighbours)
        changed = find_synonyms(some, vectors[keep], 0.7, max_neighbours, known)
        assert changed.pairs.tolist() == fresh.pairs.tolist()
        assert (changed.cosines == fresh.cosines).all()
        known = fresh


def test_only_what_differs_is_searched(monkeypatch):
    from gnnrag.graphs import synonyms

    searched, plain = [], synonyms._near
    monkeypatch.setattr(synonyms, "_near", lambda v, s, t: searched.extend(s.tolist()) or plain(v, s, t))
    vectors, entities = unit_rows(), names(300)
    known = find_synonyms(entities[:-2], vectors[:-2], 0.6)
    searched.clear()
    find_synonyms(entities[1:], vectors[1:], 0.6, known=known)
    assert searched == [297, 298]
    find_synonyms(entities, vectors, 0.6, known=find_synonyms(entities, vectors, 0.6))


@pytest.mark.parametrize("entities", [[], [""], ["ab"]])
def test_nothing_to_join(entities):
    found = find_synonyms(entities, np.ones((len(entities), 4), np.float32))
    assert found.pairs.shape == (0, 2) and found.cosines.shape == (0,)
