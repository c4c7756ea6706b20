from __future__ import annotations

import numpy as np

from gnnrag.graphs.synonyms import MEMBERS, cells_of, num_directions, num_probes, sharing
from tests.helpers.each import each


def unit_rows(n, dim, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_the_cells_of_a_vector_depend_on_it_alone():
    vectors = unit_rows(500, 48)
    whole = cells_of(vectors, 64)
    assert whole.shape == (500, num_probes(64)) and whole.min() >= 0 and whole.max() < 64**2
    assert all(len(set(row)) == len(row) for row in whole.tolist())
    for some in ([7], [499, 3, 7], range(100, 400)):
        assert (cells_of(vectors[list(some)], 64) == whole[list(some)]).all()


def test_they_are_the_strongest_pairs_of_directions():
    from gnnrag.graphs import synonyms as cells

    vectors = unit_rows(20, 12)
    rng = np.random.default_rng(cells._SEED)
    first, second = np.rint(rng.standard_normal((2, 16, 12)) * 2**7)
    rows = np.rint(vectors.astype(np.float64) * 2**11)
    for row, found in zip(rows, cells_of(vectors, 16), strict=True):
        sums = (first @ row)[:, None] + (second @ row)[None, :]
        assert found.tolist() == np.argsort(-sums.ravel(), kind="stable")[: num_probes(16)].tolist()


def test_near_vectors_share_a_cell_and_far_ones_seldom():
    a = unit_rows(3000, 64)
    b = 0.8 * a + 0.6 * _orthogonal(a)
    near, far = cells_of(b.astype(np.float32), 128), cells_of(unit_rows(3000, 64, 5), 128)
    own = cells_of(a, 128)

    def share(other):
        return np.mean([bool(set(x) & set(y)) for x, y in zip(own.tolist(), other.tolist(), strict=True)])

    assert share(near) > 0.95
    assert share(far) < 0.15


def _orthogonal(rows):
    other = unit_rows(*rows.shape, 9)
    other = other - (other * rows).sum(axis=1, keepdims=True) * rows
    return other / np.linalg.norm(other, axis=1, keepdims=True)


def test_sharing_gives_every_pair_of_a_cell():
    cells = np.array([[0, 5], [5, 2], [7, 8], [2, 0], [9, 5]])
    asks = np.array([True, False, True, False, True])
    found = [(a.tolist(), m.tolist()) for a, m in sharing(cells, asks)]
    assert found == [([0], [0, 3]), ([0, 4], [0, 1, 4])]
    assert list(sharing(np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=bool))) == []


@each("count", [1, 100_001, 200_000, 2_000_000])
def test_more_vectors_have_more_cells(count):
    directions = num_directions(count)
    assert directions**2 * MEMBERS >= count * num_probes(directions)
    assert directions == 16 or (directions // 2) ** 2 * MEMBERS < count * num_probes(directions // 2)
