"""`inference/audit.py` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.cli.app import run

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample"


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    return [
        f"data.path={SAMPLE}", "index.embedder.model=hash", "index.text.language=blank:en", "retriever=bm25",
        f"index.root={tmp_path / 'i'}", f"run.root={tmp_path / 'r'}", "audit.n=12", "audit.least=2",
        "audit.labels=type", "audit.measure=retrieval/recall@5", "audit.threshold=1", "audit.target=0.9",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_table_for_people_and_json_for_machines(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", *arguments]) == 0
    out, err = capsys.readouterr()
    path = Path(out.strip().splitlines()[-1])
    report = json.loads((path / "audit.json").read_text())
    assert path.name.startswith("audit-sample-") and report["measure"] == "retrieval/recall@5 >= 1"
    row = report["classes"]["multi_hop"]
    cell = row["routes"]["graph"]
    assert f"{cell['accuracy']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]" in out
    assert any(row["adopted"] for row in report["classes"].values()) and "flat (fails)" in out
    assert f"multi_hop fails: {row['why']}" in err
    assert "questions have no gold passages: retrieval/recall@5 counts them as wrong" in err
    assert "fewer than 40 make a wide interval" in err and "note: route graph: " in err
