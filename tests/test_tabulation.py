from __future__ import annotations

import json
from typing import ClassVar

import numpy as np
import pytest

from gnnrag import registry
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.index.index import Index
from gnnrag.index.store import Store
from gnnrag.reports import retrievers as tabulation
from gnnrag.reports.retrievers import (
    fitting_retrievers,
    index_cost,
    measure,
    retriever_config,
    tabulate,
    time_retriever,
)
from gnnrag.retrievers.base import Retriever
from gnnrag.types import Ranking
from tests.helpers.each import each
from tests.helpers.indexes import REPOSITORY

pytestmark = pytest.mark.slow

SAMPLE = str(REPOSITORY / "configs/evaluate/sample.yaml")


@pytest.fixture
def dots(tmp_path, tmp_path_factory):
    shared = tmp_path_factory.getbasetemp() / "tabulation-index"
    return [
        f"data.path={REPOSITORY / 'data/sample'}", "data.limit=6", "index.embedder.model=hash",
        "index.text.language=blank:en", f"index.path={shared}", f"run.root={tmp_path / 'runs'}",
        "roles=offline", "llm_cache=null",
    ]  # fmt: skip


class Broken(Retriever):
    channels = frozenset({"text"})
    stages = ("passages",)

    def __init__(self, index, config=None):
        raise RuntimeError("bug")


class GraphOnly(Retriever):
    channels = frozenset({"graph"})
    stages = ("passages",)


class Asking(Retriever):
    """A retriever that needs roles: its only way in is `retrieve_for`, and each question costs two calls."""

    channels = frozenset({"text"})
    stages = ("passages",)
    role_names, asks_roles = ("expander",), True
    asked: ClassVar[list[str]] = []

    def __init__(self, index, config, roles):
        self.ids = index.ids

    def retrieve(self, queries):
        raise AssertionError("never asked without a session")

    async def retrieve_for(self, queries, session):
        for query in queries:
            self.asked.append(query.text)
            session.add_call("expander", 10, 1)
            session.add_call("expander", 10, 1)
        return [Ranking(tuple(self.ids[:3]), np.array([3.0, 2.0, 1.0]), branch="dense_fallback") for _ in queries]


@pytest.fixture
def more(monkeypatch):
    for cls in (Broken, GraphOnly, Asking):
        monkeypatch.setitem(registry.RETRIEVERS, cls.__name__.lower(), f"{__name__}:{cls.__name__}")


def test_all_that_rank_passages_are_offered(more):
    offered = fitting_retrievers()
    assert {"bm25", "dense", "hybrid", "chg", "hipporag", "hipporag2", "broken"} <= set(offered)
    assert "graphonly" not in offered
    assert offered == [name for name in registry.RETRIEVERS if name in offered]


def test_a_row_holds_what_the_run_measured(dots):
    row = measure(retriever_config(SAMPLE, dots, "bm25"), "bm25")
    assert not row.error and row.questions == 6 and row.failed == 0 and row.values["llm_calls"] == 0
    run = next(p for p in row_runs(dots) if p.is_dir())
    metrics = json.loads((run / "metrics.json").read_text())
    assert all(row.values[f"recall@{k}"] == metrics[f"retrieval/recall@{k}"] for k in (2, 5, 10))
    assert row.intervals == {f"recall@{k}": tuple(metrics[f"retrieval/recall@{k}_ci"]) for k in (2, 5)}
    assert all(row.values[name] > 0 for name in ("batch_ms", "single_ms", "open_seconds"))
    store = Store(Index(index_root(dots)).store.root)
    sizes = {n: sum(f["bytes"] for f in e["files"].values()) for n, e in store.manifest["stages"].items()}
    assert row.values["index_bytes"] == sizes["passages"] + sizes["lexical"]
    assert row.values["build_seconds"] == pytest.approx(
        store.info("passages")["seconds"] + store.info("lexical")["seconds"]
    )


def row_runs(dots):
    from pathlib import Path

    return Path(next(d for d in dots if d.startswith("run.root")).partition("=")[2]).iterdir()


def index_root(dots):
    return next(d for d in dots if d.startswith("index.path")).partition("=")[2]


def test_building_counts_what_an_artefact_is_made_from(dots):
    config = retriever_config(SAMPLE, dots, "hipporag2")
    measure(config, "hipporag2")
    index = Index(index_root(dots))
    _, seconds = index_cost(index, config)
    made = ("passages", "text", "extraction", "entity_graph", "embeddings")
    assert seconds == pytest.approx(sum(index.store.info(s)["seconds"] for s in made))


def test_one_that_fails_is_a_row_with_its_error(dots, more):
    told = []
    rows = tabulate(SAMPLE, dots, ["broken", "graphonly", "bm25"], on_row=told.append)
    assert [row.row.name for row in rows] == ["broken", "graphonly", "bm25"] and told == rows
    assert rows[0].error == "RuntimeError: bug" and not rows[0].values
    assert "channels text, which retriever=graphonly does not have" in rows[1].error
    assert not rows[2].error


@pytest.mark.slow
def test_all_rows_read_one_index_made_with_the_settings_asked_for(dots, tmp_path):
    path = tmp_path / "openie.jsonl"
    path.write_text(json.dumps({"id": "sample-0", "entities": [], "triples": [["Solaris", "by", "Tarkovsky"]]}) + "\n")
    dots = [*dots, f"index.path={tmp_path / 'index'}"]
    given = [*dots, "index.extract.method=precomputed", f"index.extract.path={path}"]
    assert not any(row.error for row in tabulate(SAMPLE, given, ["bm25", "hipporag2"]))
    plain, unsaid = tabulate(SAMPLE, dots, ["bm25", "hipporag2"])
    assert not plain.error and "this run says nothing of them" in unsaid.error
    assert Index(tmp_path / "index").entity_graph.graph.facts == (("solaris", "by", "tarkovsky"),), "not replaced"
    path.write_text("changed")
    (row,) = tabulate(SAMPLE, given, ["hipporag2"])
    assert "is not JSON" in row.error


def test_settings_of_one_row(dots):
    config = retriever_config(SAMPLE, dots, "hybrid:k=10:depth=7")
    assert (config.retriever.name, config.retriever.settings.k, config.retriever.settings.depth) == ("hybrid", 10, 7)
    assert config.method.name == "single" and {2, 5, 10} <= set(config.metrics.ks)


def test_a_retriever_with_roles_is_asked_as_the_loop_asks_it(dots, more):
    Asking.asked.clear()
    config = retriever_config(SAMPLE, dots, "asking")
    row = measure(config, "asking")
    assert not row.error and row.values["llm_calls"] == 2.0 and row.values["fallbacks"] == 6
    assert not any(text.endswith(" ") for text in Asking.asked), "no reply is bought twice"


def test_every_query_is_embedded_when_it_is_timed(dots, monkeypatch):
    from gnnrag.index.embedder import HashEmbedder

    seen, plain = [], HashEmbedder.encode
    monkeypatch.setattr(HashEmbedder, "encode", lambda s, t, is_query=False: seen.extend(t) or plain(s, t))
    config = retriever_config(SAMPLE, dots, "dense")
    tabulation.open_index(config, "sample", tabulation.load_questions_for(config).passages)
    seen.clear()
    timing = time_retriever(config, Index(index_root(dots)).store.root, ["a b", "c d"])
    assert seen == 2 * [tabulation._WARM_UP, "a b", "c d"]
    assert timing["timing/single_ms"] > 0


def test_the_fallback_of_a_role_is_none_of_the_retriever(dots, more, monkeypatch):
    async def retrieve_for(self, queries, session):
        session.flag("report_reduce", "reduce_fallback")
        return [Ranking(tuple(self.ids[:3]), np.array([3.0, 2.0, 1.0]), branch="graphrag_global") for _ in queries]

    monkeypatch.setattr(Asking, "retrieve_for", retrieve_for)
    row = measure(retriever_config(SAMPLE, dots, "asking"), "asking")
    assert not row.error and row.values["fallbacks"] == 0
    predictions = tabulation.read_predictions(next(p for p in row_runs(dots) if p.is_dir()))
    assert all(p.usage["roles"]["report_reduce"]["reduce_fallback"] == 1 for p in predictions)


@each("name", ["dense", "minirag", "lightrag"])
def test_the_batch_meets_no_vector_of_the_queries_before(dots, monkeypatch, name):
    from gnnrag.index.embedder import HashEmbedder

    plain, computed = HashEmbedder.encode, []

    def encode(self, texts, is_query=False):  # keeps the vectors of queries, as the real ones do
        known = self.__dict__.setdefault("known", set())
        computed.extend(t for t in texts if is_query and t not in known)
        known.update(texts)
        return plain(self, texts, is_query)

    monkeypatch.setattr(HashEmbedder, "encode", encode)
    config = retriever_config(SAMPLE, dots, name)
    tabulation.open_index(config, "sample", tabulation.load_questions_for(config).passages)
    computed.clear()
    time_retriever(config, Index(index_root(dots)).store.root, ["Who made Solaris?", "Where is Kyoto?"])
    assert computed.count("Who made Solaris?") == computed.count("Where is Kyoto?") == 2


def test_a_config_need_not_be_a_file(dots):
    assert load_config(EvaluateConfig, None, dots).data.limit == 6
    assert retriever_config(None, dots, "bm25").retriever.name == "bm25"
