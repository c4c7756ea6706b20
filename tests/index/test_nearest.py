import numpy as np

from gnnrag.index import corpus, nearest
from gnnrag.index import index as whole
from gnnrag.index.index import Index, build_index
from gnnrag.index.tables import ValueTable
from gnnrag.types import Passage
from tests.helpers.indexes import HASH


def test_a_vector_index_finds_nearly_what_a_full_comparison_finds(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 32))[rng.integers(0, 40, 4000)] + 0.3 * rng.normal(size=(4000, 32))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    table, keys = ValueTable(str(tmp_path / "v.lance")), [f"k{i}" for i in range(4000)]
    table.add(keys, vectors)
    table.flush()
    nearest.index_vectors(table.uri)
    indexed = nearest.Nearest(ValueTable(table.uri).dataset, table.keys)
    for query in vectors[:20]:
        cosines = vectors @ query
        near = np.lexsort((np.arange(4000), -cosines))[:10].tolist()
        approximate = indexed.cosines(query, 100)
        best = np.lexsort((np.arange(4000), -approximate))[:10].tolist()
        assert len(set(best) & set(near)) >= 7 and best[0] == near[0]
        assert approximate[near[0]] == cosines[near[0]] and approximate.min() < 0


def test_new_vectors_are_a_segment_of_the_index_until_there_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(nearest, "_SEGMENTS", 2)
    table, rng = ValueTable(str(tmp_path / "v.lance")), np.random.default_rng(1)
    for part, segments in enumerate((1, 2, 1)):
        table.add([f"k{part}-{i}" for i in range(512)], rng.normal(size=(512, 16)).astype(np.float32))
        table.flush()
        nearest.index_vectors(table.uri)
        (index,) = ValueTable(table.uri).dataset.describe_indices()
        assert (len(index.segments), index.num_rows_indexed) == (segments, 512 * (part + 1))


def test_of_many_passages_only_the_near_ones_are_compared(tmp_path, monkeypatch):
    for module in (corpus, whole):
        monkeypatch.setattr(module, "FLAT_UP_TO", 300)
    build_index(tmp_path, [Passage(f"p{i}", "", f"w{i}" + i % 9 * " boat") for i in range(301)], HASH, ["embeddings"])
    index = Index(tmp_path)
    vector = index.passage_vectors[7]
    near, every = index.cosines(vector, 20), index.cosines(vector)
    assert near.argmax() == every.argmax() == 7 and (near > near.min()).sum() <= 20 < (every > every.min()).sum()
