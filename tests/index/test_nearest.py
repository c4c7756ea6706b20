import numpy as np

from gnnrag.index.nearest import Nearest, largest, write_lists


def test_lists_find_nearly_what_a_full_comparison_finds(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 32))[rng.integers(0, 40, 4000)] + 0.3 * rng.normal(size=(4000, 32))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    write_lists(tmp_path, vectors)
    flat, lists = Nearest(vectors, None), Nearest(vectors, tmp_path)
    for query in vectors[:20]:
        near, cosines, low = flat.search(query, 10)
        assert near.tolist() == np.lexsort((np.arange(4000), -(vectors @ query)))[:10].tolist()
        found, scores, lowest = lists.search(query, 10)
        assert len(set(found.tolist()) & set(near.tolist())) >= 9 and found[0] == near[0]
        assert scores[0] == cosines[0] and abs(lowest - low) < 0.2


def test_the_largest_of_many_are_those_of_a_sort():
    scores = np.random.default_rng(1).random(100_000)
    assert sorted(largest(scores, 50).tolist()) == sorted(np.argsort(-scores)[:50].tolist())
    assert len(largest(scores, 0)) == 0
