"""Where an index is made and where it lies: workers elsewhere, an object store; the same index everywhere."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gnnrag.errors import BudgetError
from gnnrag.executors import ExecutorConfig
from gnnrag.index.index import Index
from gnnrag.index.update import update_index
from gnnrag.index_config import ExtractConfig, RoleConfig
from gnnrag.types import Passage
from tests.helpers.indexes import HASH, REPOSITORY, artefacts, build
from tests.helpers.store import bucket  # noqa: F401 - a fixture

REPLIES = [
    {"match": "so that facts about it", "reply": '{"named_entities": ["Lord Byron"]}'},
    {"match": "", "reply": '{"triples": [["Ada Lovelace", "child of", "Lord Byron"]]}'},
]
NEW = Passage("p9", "Rome", "Rome lies on the Tiber.")


def settings(name, **more):
    llm = {"name": "scripted", "rules": REPLIES, "default": "A summary."}
    return replace(
        HASH, extract=ExtractConfig("prompted"), llm=llm, llm_cache=None, executor=ExecutorConfig(name, workers=2),
        writers=replace(HASH.writers, summary=RoleConfig(impl="prompted")), tree=replace(HASH.tree, cluster_size=2.0),
        **more,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["processes", "ray"])
def test_workers_make_the_index_that_this_process_makes(tmp_path, monkeypatch, name):
    if name == "ray":
        ray = pytest.importorskip("ray")
        monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
        ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    names = ["entity_graph", "embeddings", "tree"]
    for root, executor in ((tmp_path / "here", "local"), (tmp_path / "there", name)):
        build(root, settings=settings(executor), names=names)
        update_index(root, add=[NEW], caller=settings(executor))
    assert artefacts(tmp_path / "there") == artefacts(tmp_path / "here")
    here, there = (Index(tmp_path / at).record("extraction")["counts"] for at in ("here", "there"))
    assert there["triples calls"] == here["triples calls"] > 0
    with pytest.raises(BudgetError, match=r"index\.max_calls=1"):
        build(tmp_path / "other", settings=settings(name, max_calls=1), names=["extraction"])
    if name == "ray":
        ray.shutdown()


@pytest.mark.slow
def test_an_index_in_an_object_store(bucket, tmp_path):  # noqa: F811
    root, names = f"{bucket}/i", ["lexical", "embeddings", "titles"]
    assert set(build(root, names=names)) >= set(names)
    update_index(root, add=[NEW], remove=["p3"])
    os.environ["GNNRAG_CACHE"] = str(tmp_path / "another machine")
    index = Index(root)
    assert index.has("titles") and [p.id for p in index.passages] == ["p1", "p2", "p4", "p5", "p6", "p9"]
    build(tmp_path / "here", list(index.passages), names=names)
    here, queries = Index(tmp_path / "here"), ["Byron", "the Tiber"]
    assert index.bm25_scores(queries).tolist() == here.bm25_scores(queries).tolist()
    assert index.dense_scores(queries).tolist() == here.dense_scores(queries).tolist()
    assert list(index.titles.passages("rome")) == list(here.titles.passages("rome")) == [5]
