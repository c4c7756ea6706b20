from __future__ import annotations

from typing import Any

import pytest

from gnnrag import registry
from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.retrievers.hybrid import HybridConfig, HybridRetriever
from gnnrag.types import Query
from tests.helpers.parts import CORPUS, ToyRetriever, small_index


class Left(ToyRetriever):
    stages = ("lexical",)

    def __init__(self, index: Any, config: None = None) -> None:
        super().__init__({"Q": {"p1": 9.0, "p2": 8.0, "p3": 7.0}, "alone": {"p4": 1.0}, "tie": {"p2": 5.0}})


class Right(ToyRetriever):
    stages = ("embeddings",)
    channels = frozenset({"text", "graph"})

    def __init__(self, index: Any, config: None = None) -> None:
        super().__init__({"Q": {"p3": 0.5, "p1": 0.4, "p0": 0.3, "p5": 0.2}, "tie": {"p1": 0.5}})


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(tmp_path_factory.mktemp("index"))


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, cls in (("left", "Left"), ("right", "Right")):
        monkeypatch.setitem(registry.RETRIEVERS, name, f"{__name__}:{cls}")


def fuse(index: Index, text: str = "Q", top_k: int = 200, **settings: Any) -> Any:
    settings = {"parts": ["left", "right"], **settings}
    return HybridRetriever(index, HybridConfig(**settings)).retrieve([Query(text, top_k=top_k)])[0]


def test_reciprocal_ranks_by_hand(index: Index, toys: None) -> None:
    ranking = fuse(index)
    expected = {"p1": 1 / 61 + 1 / 62, "p3": 1 / 63 + 1 / 61, "p2": 1 / 62, "p0": 1 / 63, "p5": 1 / 64}
    assert dict(zip(ranking.ids, ranking.scores.tolist(), strict=True)) == pytest.approx(expected)
    assert list(ranking.ids) == list(expected)
    assert (ranking.low, ranking.high, ranking.branch) == (0.0, pytest.approx(1 / 61 + 1 / 62), "rrf")


def test_weights_and_constant(index: Index, toys: None) -> None:
    ranking = fuse(index, weights=[1.0, 3.0], k=1)
    expected = {"p3": 1 / 4 + 3 / 2, "p1": 1 / 2 + 3 / 3, "p0": 3 / 4, "p5": 3 / 5, "p2": 1 / 3}
    assert list(ranking.ids) == list(expected)
    assert dict(zip(ranking.ids, ranking.scores.tolist(), strict=True)) == pytest.approx(expected)


def test_ties_by_corpus_order_and_the_cut(index: Index, toys: None) -> None:
    assert fuse(index, "tie").ids == fuse(index, "tie", parts=["right", "left"]).ids == ("p1", "p2")
    assert fuse(index, "tie", top_k=1).ids == ("p1",)


def test_each_part_is_read_deeper_than_the_list_that_is_asked_for(index: Index, toys: None) -> None:
    assert fuse(index, top_k=1).ids == ("p1",)  # p3 leads on the right, p1 wins by both
    assert fuse(index, top_k=1, depth=1).ids == ("p1",)  # tied with p3: corpus order


def test_one_part_finds_nothing(index: Index, toys: None) -> None:
    assert fuse(index, "alone").ids == ("p4",)
    nothing = fuse(index, "unknown")
    assert nothing.ids == () and (nothing.low, nothing.high) == (0.0, 0.0)


def test_channels_are_those_of_all_parts(index: Index, toys: None) -> None:
    assert HybridRetriever(index, HybridConfig(["left", "right"])).channels == {"text"}
    assert HybridRetriever(index, HybridConfig(["right", "right"])).channels == {"text", "graph"}


def test_stages_are_those_of_all_parts(toys: None) -> None:
    assert set(HybridRetriever.stages_for(HybridConfig(["left", "right"]))) == {"lexical", "embeddings"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (HybridConfig(["bm25"]), "name at least two"),
        (HybridConfig(weights=[1.0]), "give one weight for each"),
        (HybridConfig(["bm25", "dnese"]), "retriever='dnese' is unknown. Did you mean 'dense'"),
        (HybridConfig(settings={"dnese": {}}), "retriever.settings.dnese: no such part. Did you mean 'dense'"),
        (HybridConfig(settings={"dense": {"serach": "x"}}), "'retriever.settings.dense.serach'. Did you mean 'search'"),
    ],
)
def test_bad_settings(index: Index, config: HybridConfig, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HybridRetriever(index, config)
    assert message in str(caught.value)


def test_settings_reach_the_part(index: Index) -> None:
    retriever = HybridRetriever(index, HybridConfig(settings={"dense": {"search": "hnsw"}}))
    assert retriever.parts[1].config.search == "hnsw"  # type: ignore[attr-defined]


def test_bm25_and_dense_on_a_real_index(index: Index) -> None:
    retriever = HybridRetriever(index)
    queries = [Query(p.text, top_k=4) for p in CORPUS]
    rankings = retriever.retrieve(queries)
    assert [r.ids[0] for r in rankings] == [p.id for p in CORPUS]
    for query, together in zip(queries, rankings, strict=True):
        (alone,) = retriever.retrieve([query])
        assert alone.ids == together.ids and alone.scores.tolist() == together.scores.tolist()
