"""Runs to look at: small real ones on the sample corpus, and invented ones of any size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnnrag.config import EvaluateConfig, MetricsConfig, load_config
from gnnrag.datasets.base import load_dataset
from gnnrag.io import write_jsonl
from gnnrag.metrics.comparison import load_runs
from gnnrag.pages.comparison import build_model, render
from gnnrag.run.evaluate import evaluate, write_metrics
from gnnrag.run.rundir import read_predictions
from tests.helpers.indexes import REPOSITORY

EVIL = "</script><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">\u2028__DATA__"
TYPES = ("bridge", "comparison")


def sample_runs(root: Path, methods: Sequence[str] = ("single", "bdtr"), *more: str) -> list[Path]:
    """Answer sample questions without weights: an index by hashing, offline roles."""
    dots = [
        f"data.path={REPOSITORY / 'data/sample'}", "index.embedder.model=hash", "index.text.language=blank:en",
        f"index.path={root / 'index'}", f"run.root={root / 'runs'}", "roles=offline", "llm_cache=null",
        "retriever=bm25", *more,
    ]  # fmt: skip
    config = REPOSITORY / "configs/evaluate/sample.yaml"
    return [evaluate(load_config(EvaluateConfig, config, [*dots, f"method={m}"]))[0] for m in methods]


def page_of(paths: Sequence[Path], file: Path, data: str | None = None) -> Path:
    """Write the page of runs and return its path."""
    file.write_text(render(build_model(paths, load_runs(paths), data)), "utf-8")
    return file


def invented_data(root: Path, count: int, evil: bool = True) -> Path:
    """Write a corpus and questions; question 3 and passage 3 are hostile."""
    root.mkdir(parents=True, exist_ok=True)
    passages = [{"id": f"p{i}", "title": f"Title {i}", "text": f"Text of passage {i}. " * 8} for i in range(count * 2)]
    questions = [
        {"id": f"q{i}", "question": f"Which harbour number {i} is meant?", "answers": [f"Harbour {i}"],
         "hops": 2 + i % 3, "type": TYPES[i % 2], "gold": [f"p{2 * i}", f"p{2 * i + 1}"]}
        for i in range(count)
    ]  # fmt: skip
    if evil and count > 3:
        questions[3] |= {"question": f"Who is {EVIL}?", "answers": [EVIL], "type": EVIL}
        passages[6] |= {"title": EVIL, "text": EVIL}
    write_jsonl(root / "corpus.jsonl", passages)
    write_jsonl(root / "questions.dev.jsonl", questions)
    return root


def query(round_: int, text: str, ids: Sequence[str], kind: str = "question") -> dict[str, Any]:
    """Return the event of a query as the loop records it."""
    scores = [round(1 / (i + 1), 6) for i in range(len(ids))]
    ranking = {"branch": "bm25", "kind": "passage", "ids": list(ids), "scores": scores, "range": [0, 1]}
    return {"event": "query", "round": round_, "text": text, "channel": "text", "top_k": 10, "origin": kind,
            "filter": None, "retriever": None, "ranking": ranking}  # fmt: skip


def invented_run(data: Path, path: Path, rounds: int, right: int, method: str = "bdtr") -> Path:
    """Write a run: one question in ten has all rounds, the others two; those at multiples of `right` are answered."""
    dataset = load_dataset(data)
    path.mkdir(parents=True)
    predictions, traces = [], []
    for i, question in enumerate(dataset.questions):
        found = list(question.gold) if i % right == 0 else []
        ids = [*found, *(f"p{(7 * i + k) % len(dataset.passages)}" for k in range(1, 12))]
        ids = list(dict.fromkeys(ids))
        events: list[dict[str, Any]] = []
        for r in range(rounds if i % 10 == 7 else min(rounds, 2)):
            events.append(query(r, f"{question.text} {r}", ids[r % 5 :] + ids[: r % 5], "fast" if r else "question"))
            events.append({"event": "merge", "round": r, "origin": "fast", "new": 2, "top": ids[r % 3 :]})
        events.append({"event": "cut", "selected": ids[1:3], "kept": ids[:4], "mean": 0.5, "deviation": 0.1})
        answer = question.answers[0] if found else "somewhere else"
        events.append({"event": "evidence", "context": ids[:4], "notes": "", "answer": None, "nodes": []})
        events.append(
            {"event": "answer", "text": answer, "support": ids[:1], "confidence": 0.5, "thought": "", "flags": []}
        )
        usage = {"llm_calls": 2, "prompt_tokens": 100, "completion_tokens": 10, "cost": 0.0, "retriever_calls": rounds}
        predictions.append({"question_id": question.id, "answer": answer, "ranking": ids, "context": ids[:4],
                            "rounds": rounds - 1, "usage": usage, "error": None, "nodes": []})  # fmt: skip
        traces.append({"question_id": question.id, "events": events})
    write_jsonl(path / "predictions.jsonl", predictions)
    write_jsonl(path / "traces.jsonl", traces)
    write_jsonl(path / "log.jsonl", [{"event": "question", "id": q.id, "seconds": 0.25} for q in dataset.questions])
    (path / "config.yaml").write_text(json.dumps({
        "data": {"path": str(data), "split": "dev"}, "method": {"name": method}, "retriever": {"name": "bm25"},
        "roles": {"default": "offline", "reader": {"impl": None}},
    }))  # fmt: skip
    (path / "meta.json").write_text(json.dumps({"inputs": {"data": dataset.fingerprints}, "commit": "abc"}))
    write_metrics(path, dataset, read_predictions(path), MetricsConfig())
    return path
