"""`method=routed` as a whole run, on a real index with the hash embedder."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError
from gnnrag.methods.base import Method
from gnnrag.parts import part
from gnnrag.run.evaluate import check_fit, evaluate, needed_stages

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample"
BASE = [f"data.path={SAMPLE}", "index.embedder.model=hash", "index.text.language=blank:en", "method=routed"]


def load(*overrides: str) -> EvaluateConfig:
    return load_config(EvaluateConfig, None, [*BASE, *overrides])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("routed")

    def go(name: str, *overrides: str) -> Path:
        config = load(
            f"index.root={root / 'i'}", f"run.root={root / 'r'}", f"run.name={name}", "roles.reader=oracle", *overrides
        )
        return evaluate(config)[0]

    return go


def rows(path: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / name).read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_a_run_routes_and_escalates(run: Any) -> None:
    path = run("many", "concurrency=16", "retriever=bm25", "method.multi_hop_threshold=0.999")
    predictions = rows(path, "predictions.jsonl")
    assert len(predictions) == 47 and all(p["error"] is None for p in predictions)
    flags = Counter[str]()
    for prediction in predictions:
        flags.update(prediction["usage"]["flags"])
    assert flags["route_passage_local"] + flags["route_multi_hop"] + flags["route_thematic"] == 47
    assert min(flags["route_multi_hop"], flags["escalated"]) >= 5 and flags["route_thematic"] == 3
    assert flags["route_passage_local"] > flags["escalated"], "some flat evidence suffices"


def test_every_query_goes_to_the_retriever_of_its_route(run: Any) -> None:
    path = run("oracle", "retriever=dense", "roles=oracle", "method.escalate=false")
    seen = set()
    for trace in rows(path, "traces.jsonl"):
        (route,) = [e["route"] for e in trace["events"] if e["event"] == "route"]
        for query in (e for e in trace["events"] if e["event"] == "query"):
            seen.add((route, query["retriever"], query["ranking"]["branch"]))
    assert {(route, name) for route, name, _ in seen} == {
        ("passage_local", "hybrid"), ("multi_hop", "chg"), ("thematic", None)
    }  # fmt: skip
    assert {branch for route, _, branch in seen if route != "multi_hop"} == {"rrf", "cosine"}


def test_a_route_to_the_run_itself_equals_that_run(run: Any) -> None:
    """Everything sent to one route gives the very predictions of its method on its retriever."""
    plain = run("plain", "method=bdtr", "retriever=chg", "data.limit=12")
    all_multi = run(
        "multi", "retriever=chg", "data.limit=12", "method.multi_hop_threshold=0", "method.thematic_threshold=1"
    )
    for mine, theirs in zip(rows(all_multi, "predictions.jsonl"), rows(plain, "predictions.jsonl"), strict=True):
        flags = mine["usage"].pop("flags")
        assert flags.pop("route_multi_hop") == 1
        assert {**mine, "usage": mine["usage"] | {"flags": flags}} == theirs


def test_stages_of_all_routes_count() -> None:
    lexical = load(
        "retriever=bm25", "roles=oracle", "method.multi_hop.retriever=bm25", "method.multi_hop.method=single"
    )
    assert needed_stages(lexical) == {"lexical", "embeddings"}, "hybrid reads both"
    config = load("retriever=bm25", "roles=oracle", "method.multi_hop.retriever=hipporag2")
    assert "entity_graph" in needed_stages(config)
    anchored = [
        "method.passage_local.retriever=bm25",
        "method.multi_hop.retriever=bm25",
        "retriever=bm25",
        "roles=oracle",
    ]
    assert needed_stages(load(*anchored)) == {"lexical"}
    assert {"hierarchy"} <= needed_stages(load(*anchored, "roles.router=offline"))


@part("method", "dual")
class GraphMethod(Method):
    """A method that asks in a channel which no text retriever has."""

    asked_channels = frozenset({"text", "graph"})


def test_an_unsuitable_pair_in_a_route_is_refused() -> None:
    for overrides in (
        ["method.multi_hop.method=dual", "method.multi_hop.retriever=bm25"],
        ["retriever=dense", "method.thematic.method=dual"],
    ):
        with pytest.raises(ConfigError, match="method=dual asks the channels graph, text"):
            check_fit(load(*overrides))
    check_fit(load())
