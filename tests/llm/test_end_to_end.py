"""A whole evaluation with prompted roles against servers that are broken or dead."""

from __future__ import annotations

from pathlib import Path

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.io import read_journal
from gnnrag.run.evaluate import evaluate
from gnnrag.run.rundir import read_predictions
from tests.helpers.http_stub import ok, status, stub

REPOSITORY = Path(__file__).resolve().parents[2]


def settings(tmp_path: Path, url: str, model: str, *more: str) -> EvaluateConfig:
    """BDTR with every role prompted, on a few questions of the sample."""
    base = [
        f"data.path={REPOSITORY / 'data/sample'}", f"index.root={tmp_path / 'indexes'}", "index.embedder.model=hash",
        "index.text.language=blank:en", "retriever=dense", "method=bdtr", "roles=prompted",
        f"run.root={tmp_path / 'runs'}",
        f"llm_cache={tmp_path / 'cache.sqlite'}", f"llm.base_url={url}", f"llm.model={model}", "llm.api_key_env=null",
        "llm.timeout_s=180", "concurrency=4",
    ]  # fmt: skip
    return load_config(EvaluateConfig, None, [*base, *more])


def test_a_dead_server_gives_rows_that_are_tried_again(tmp_path: Path) -> None:
    config = settings(tmp_path, "http://127.0.0.1:9/v1", "dead", "data.limit=4", "llm.max_retries=1")
    path, metrics = evaluate(config)
    assert metrics["failed"] == 4
    assert all("language-model calls failed" in (r.error or "") for r in read_predictions(path))
    with stub(default=ok("Answer: x")) as server:  # the same run goes on once a server answers, whatever its address
        again, metrics = evaluate(settings(tmp_path, server.url, "dead", "data.limit=4"))
    assert again == path and metrics["failed"] == 0 and metrics["questions"] == 4
    assert len(read_journal(path / "predictions.jsonl")) == 4, "tried again, not doubled"


def test_a_rejected_prompt_costs_a_fallback_and_not_the_run(tmp_path: Path) -> None:
    refusal = status(400, "The prompt was filtered", "content_filter")
    with stub(refusal, default=ok("Fast Thought: who\nSlow Thought: where\nAnswer: Riga")) as server:
        path, metrics = evaluate(settings(tmp_path, server.url, "stub", "data.limit=3"))
    counted = [row for each in read_predictions(path) for row in each.usage["roles"].values()]
    assert metrics["failed"] == 0 and all(sum(row.get(n, 0) for row in counted) == 1 for n in ("rejected", "filtered"))
    assert not any(row.error for row in read_predictions(path))
