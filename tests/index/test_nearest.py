import numpy as np

from gnnrag.index.nearest import Nearest, index_vectors, largest
from gnnrag.index.tables import ValueTable


def test_a_vector_index_finds_nearly_what_a_full_comparison_finds(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 32))[rng.integers(0, 40, 4000)] + 0.3 * rng.normal(size=(4000, 32))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    table, keys = ValueTable(str(tmp_path / "v.lance")), [f"k{i}" for i in range(4000)]
    table.add(keys, vectors)
    table.flush()
    index_vectors(table.uri)
    flat, indexed = Nearest(vectors), Nearest(vectors, ValueTable(table.uri).dataset, keys)
    for query in vectors[:20]:
        near, cosines, _ = flat.search(query, 10)
        assert near.tolist() == np.lexsort((np.arange(4000), -(vectors @ query)))[:10].tolist()
        approximate, scores, lowest = indexed.search(query, 10)
        assert len(set(approximate.tolist()) & set(near.tolist())) >= 7 and approximate[0] == near[0]
        assert scores[0] == cosines[0] and lowest < 0


def test_the_largest_of_many_are_those_of_a_sort():
    scores = np.random.default_rng(1).random(100_000)
    assert sorted(largest(scores, 50).tolist()) == sorted(np.argsort(-scores)[:50].tolist())
    assert len(largest(scores, 0)) == 0
