"""A whole audit of the sample corpus: passage-local questions are the hops of its multi-hop questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnnrag.audit import AuditRunConfig, audit
from gnnrag.config import load_config
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError
from gnnrag.run.rundir import read_predictions

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("audit")
    rows: list[dict[str, Any]] = []
    for question in load_dataset(SAMPLE, "dev").questions:
        if question.type == "unanswerable":
            continue
        row = {"question": question.text, "answers": question.answers, "type": question.type, "gold": question.gold}
        rows.append({"id": question.id, **row})
        if question.decomposition:
            hop = question.decomposition[0]
            row = {"question": hop.question, "answers": [hop.answer], "type": "1hop", "gold": [hop.gold]}
            rows.append({"id": f"{question.id}-hop", **row})
    (root / "q.jsonl").write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return [
        f"data.path={SAMPLE}", f"data.questions={root / 'q.jsonl'}", "index.embedder.model=hash",
        "index.text.language=blank:en", f"index.root={root / 'i'}", "audit.measure=retrieval/all@5",
        "audit.flat.retriever=bm25", "audit.n=60", "audit.least=5",
    ]  # fmt: skip


def go(base: list[str], root: Path, *more: str) -> tuple[Path, dict[str, Any]]:
    return audit(load_config(AuditRunConfig, None, [*base, f"run.root={root}", *more]))


@pytest.mark.slow
def test_an_audit(base: list[str], tmp_path: Path) -> None:
    arguments = [*base, f"run.root={tmp_path}", "audit.labels=type", "audit.recover=0.3"]
    path, report = audit(load_config(AuditRunConfig, None, arguments))
    multi, local = report["classes"]["multi_hop"], report["classes"]["passage_local"]
    assert report["questions"] == 60 and multi["fails"] and not local["fails"]
    assert set(local["routes"]) == {"flat"}, "the other routes run for failing classes only"
    assert set(multi["routes"]) == {"flat", "iterative", "graph", "graph_iterative"} and multi["adopted"] == "graph"
    assert multi["routes"]["graph"]["recovered"] == pytest.approx(multi["routes"]["graph_iterative"]["recovered"])
    wanted = {row["id"] for row in map(json.loads, (path / "labels.jsonl").open()) if row["class"] == "multi_hop"}
    flat, graph = read_predictions(path / "flat"), read_predictions(path / "graph")
    assert len(flat) == 60 and wanted <= {p.question_id for p in graph} < {p.question_id for p in flat}
    assert {p.question_id for p in graph} - wanted == {
        row["id"] for row in map(json.loads, (path / "labels.jsonl").open()) if row["class"] == "thematic"
    }, "thematic questions fail, too"
    stored = json.loads((path / "audit.json").read_text())
    assert stored["classes"] == json.loads(json.dumps(report["classes"])) and stored["settings"]["audit"]["n"] == 60
    assert sum(row["share"] for row in report["classes"].values()) == pytest.approx(1.0, abs=1e-5)

    notes: list[str] = []
    again, same = audit(load_config(AuditRunConfig, None, arguments), on_note=notes.append)
    assert again == path and same == report, "nothing was predicted again"
    assert sum("answered before" in note for note in notes) == 4


def test_the_router_labels_by_default(base: list[str], tmp_path: Path) -> None:
    path, report = go(base, tmp_path, "audit.n=9", "audit.target=1", "audit.routes={graph: {retriever: chg}}")
    rows = [json.loads(line) for line in (path / "labels.jsonl").open()]
    assert {row["class"] for row in rows} == set(report["classes"]) and report["labels"] == "router"
    assert all(("graph" in row["routes"]) == row["fails"] for row in report["classes"].values())


@pytest.mark.parametrize(
    "override, named",
    [
        ("audit.measure=answer/f2", "audit.measure.*answer/f1"),
        ("audit.measure=retrieval/recall@7", "audit.measure"),
        ("audit.n=0", "audit.n"),
        ("audit.threshold=2", "audit.threshold"),
        ("audit.flat.method=sngle", "audit.flat.method.*single"),
        ("audit.routes.mine.retriever=dnse", "audit.routes.mine.retriever.*dense"),
        ("audit.routes.flat.retriever=dense", "audit.routes.flat"),
        ("audit.routes.mine.methd=single", "audit.routes.mine"),
    ],
)
def test_what_is_refused_before_any_work(base: list[str], override: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        audit(load_config(AuditRunConfig, None, [*base, override]))
