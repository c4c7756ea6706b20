"""What a large index reads from disk: strings, names, passages, neighbours; the same as what a small one holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.common.tables import Keys, Lists, Texts
from gnnrag.config import IndexConfig
from gnnrag.errors import ArtefactError
from gnnrag.index.build import build_index
from gnnrag.index.index import Index
from gnnrag.index.nearest import Nearest, largest, write_lists
from gnnrag.index.passages import StoredPassages
from gnnrag.parts import ready
from gnnrag.retrievers.bm25 import BM25Retriever
from gnnrag.retrievers.chg import CHGRetriever
from gnnrag.types import Passage, Query

LIMITS = {
    "gnnrag.common.tables.SMALL": 0,
    "gnnrag.index.passages.READ_AT_ONCE": 0,
    "gnnrag.index.stages.FLAT_UP_TO": 0,
    "gnnrag.index.stages._AT_ONCE": 0,
}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every corpus for a large one."""
    for name, value in LIMITS.items():
        monkeypatch.setattr(name, value)


@given(st.lists(st.text(max_size=6), max_size=30, unique=True), st.text(max_size=6))
@settings(deadline=None)
def test_strings_in_arrays_are_those_strings(strings: list[str], other: str) -> None:
    texts = Texts.of(strings)
    assert [*texts] == [texts[i] for i in range(len(texts))] == texts[:] == strings
    assert texts[1:-1] == strings[1:-1] and texts[::-2] == strings[::-2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gnnrag.common.tables.SMALL", 0)
        keys = Keys.of(strings)
        assert [keys[s] for s in strings] == list(range(len(strings)))
        assert keys.find(other) == (strings.index(other) if other in strings else -1)


def test_groups_are_lists_of_positions() -> None:
    groups = Lists.grouped(np.array([2, -1, 0, 2], dtype=np.int32), 4)
    assert [row.tolist() for row in groups] == [[2], [], [0, 3], []]


CORPUS = [
    *(
        Passage(f"f{i}", f"Film {i}", f"Film {i} was directed by Ada Lind {i % 7} in {1900 + i}. It was shot in Oslo.")
        for i in range(40)
    ),
    *(Passage(f"d{i}", f"Ada Lind {i}", f"Ada Lind {i} was born in Town {i}. She made films.") for i in range(7)),
    *(Passage(f"doc.txt#{i}", "Basalt > Origin", f"Lava of kind {i} cools slowly, and so on.") for i in range(3)),
    Passage("u", "", "Gneiss is a rock that Ada Lind 3 liked."),
]
HASH = IndexConfig()
HASH.embedder.model = "hash"
ASKED = ("Where was the director of Film 12 born?", "What does lava do when it cools?")
QUERIES = [Query(text, top_k=8) for text in ASKED]


def test_a_large_index_answers_as_a_small_one(tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    build_index(tmp_path / "index", CORPUS, HASH, ["titles", "lexical", "embeddings", "extraction"])
    stored = Index(tmp_path / "index")
    near = ready(CHGRetriever(precision="fast"), index=stored).retrieve(QUERIES)
    found = [*map(stored.titles.match, ("ada lind 3", "film twelve", "the lind 5"))]
    assert isinstance(stored.passages, StoredPassages) and isinstance(stored.hierarchy.sentences, Texts)
    assert list(stored.passages) == CORPUS == stored.passages[:] and list(stored.ids) == [p.id for p in CORPUS]
    assert stored.position["d3"] == 43 and "x" not in stored.position and stored.lookup(["u"]) == (CORPUS[-1],)
    monkeypatch.undo()
    index = Index(tmp_path / "index")
    exact = ready(CHGRetriever(precision="exact"), index=index).retrieve(QUERIES)
    assert isinstance(index.passages, list) and isinstance(index.hierarchy.sentences, tuple)
    assert found == [*map(index.titles.match, ("ada lind 3", "film twelve", "the lind 5"))] and found[0]
    for one, other in zip(near, exact, strict=True):
        assert one.ids[:5] == other.ids[:5]
        assert one.scores[:5] == pytest.approx(other.scores[:5], abs=1e-4)
    together, alone = (ready(BM25Retriever(), index=i).retrieve(QUERIES)[0] for i in (stored, index))
    assert together.ids == alone.ids and (together.scores == alone.scores).all()


def test_a_result_near_the_seeds_does_not_depend_on_its_batch(tmp_path: Path, large: None) -> None:
    build_index(tmp_path / "index", CORPUS, HASH, ["titles", "lexical", "embeddings"])
    retriever = ready(CHGRetriever(precision="fast"), index=Index(tmp_path / "index"))
    together = retriever.retrieve(QUERIES)
    for query, one in zip(QUERIES, together, strict=True):
        (alone,) = retriever.retrieve([replace(query)])
        assert alone.ids == one.ids and (alone.scores == one.scores).all()


def test_lists_find_most_of_what_a_full_search_finds(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((60, 16))[draw.integers(0, 60, 6000)] + 0.3 * draw.standard_normal((6000, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_lists(tmp_path / name, vectors)
    assert all((tmp_path / "two" / p.name).read_bytes() == p.read_bytes() for p in (tmp_path / "one").iterdir())
    listed, whole = Nearest(vectors, tmp_path / "one"), Nearest(vectors, None)
    shared = []
    for query in vectors[:50]:
        some, scores, low = listed.search(query, 20)
        every, exact, least = whole.search(query, 20)
        assert np.isin(some, every).any() and (np.diff(scores) <= 0).all() and scores[0] == pytest.approx(exact[0])
        assert least - 1e-6 <= low <= scores[-1]
        shared.append(len({*some.tolist()} & {*every.tolist()}) / 20)
    assert np.mean(shared) > 0.95
    with pytest.raises(ArtefactError, match="do not fit"):
        Nearest(vectors[:-1], tmp_path / "one")


@pytest.mark.parametrize("scores", [np.arange(50_000) % 977, np.zeros(40_000), np.arange(10.0)])
def test_the_largest_are_found_without_sorting_all(scores: np.ndarray) -> None:
    found = largest(scores, 7)
    assert len({*found.tolist()}) == 7
    assert sorted(scores[found]) == sorted(scores)[-7:]
