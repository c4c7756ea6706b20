"""`inference/evaluate.py` as a person calls it: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli.app import run
from gnnrag.cli.console import NO_GOLD, NO_SHORT

ROOT = Path(__file__).resolve().parents[2]
HASH = ["index.embedder.model=hash", "index.text.language=blank:en", "retriever=bm25", "data.limit=2"]


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    return [
        *HASH,
        f"data.path={ROOT / 'data' / 'sample'}",
        f"index.root={tmp_path / 'i'}",
        f"run.root={tmp_path / 'r'}",
    ]


def call(arguments: list[str]) -> int:
    return run(["evaluate", *arguments])


def test_without_a_config_the_sample_is_scored_as_its_config_says(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(ROOT)
    assert call([*HASH, "method=single", f"index.root={tmp_path / 'i'}", f"run.root={tmp_path / 'r'}"]) == 0
    (metrics,) = tmp_path.glob("r/*/metrics.json")
    assert json.loads(metrics.read_text())["answer/em"] is not None


FIRST = "note: data.limit=2 takes the first questions of a file; data.sample=2 draws by type"


def test_a_run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(arguments) == 0
    out, err = capsys.readouterr()
    path = Path(out.strip().splitlines()[-1])
    assert (path / "predictions.jsonl").is_file(), "the last line is the run directory"
    assert path.name.startswith("sample-dev-bdtr-bm25-offline-")
    assert "bdtr / bm25" in out and "Recall@5" in out and "EM" in out
    assert err == f"{FIRST}\n", "bars are for terminals"
    assert json.loads((path / "metrics.json").read_text())["questions"] == 2

    assert call(arguments) == 0
    again, err = capsys.readouterr()
    assert again == out and "2 of 2 questions were answered before" in err, "nothing was left to do"


def test_long_answers_without_gold_passages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "own"
    data.mkdir()
    texts = [
        "Surgery removes the tumour early on.",
        "Radiation follows surgery in most of the cases.",
        "Drugs come last.",
    ]
    passages = [{"id": f"p{i}", "title": "", "text": text} for i, text in enumerate(texts)]
    (data / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in passages))
    rows = [
        {"id": f"q{i}", "question": f"What is known of {word}?", "answers": [text], "type": type_}
        for i, (word, text, type_) in enumerate(zip(("tumours", "radiation", "most cases"), texts, "aab", strict=True))
    ]
    rows[2]["answers"] = ["They are followed by radiation after the surgery."]
    (data / "questions.dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = [*HASH[:-1], f"data.path={data}", f"index.root={tmp_path / 'i'}", f"run.root={tmp_path / 'r'}"]
    assert call([*arguments, "method=single"]) == 0
    out = capsys.readouterr().out
    assert NO_GOLD in out and NO_SHORT in out and "Recall" not in out and "EM " not in out and "factual" not in out
    assert "coverage@1000" in out and "ROUGE-L" in out and "embedder: hash (hash-256)" in out
    metrics = json.loads((Path(out.splitlines()[-1]) / "metrics.json").read_text())
    assert metrics["retrieval/recall@5"] is None and metrics["answer/em"] is None
    assert metrics["text/context_coverage_lexical@1000"] > 0.9 and metrics["by_type"]["b"]["text/rouge_l"] is not None
    assert metrics["texts"]["long"] == 3


def test_failed_questions_are_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rules = "llm.rules=[{match: '.', reply: 'Answer: x'}]"
    assert call([*arguments, "roles=prompted", "llm=scripted", rules, "budget.max_tokens=1"]) == 1
    out, err = capsys.readouterr()
    assert "2 of 2 questions failed, all of them: nothing was measured; the same command tries them again" in err
    assert "2 x budget.max_tokens=1 is used up (...)" in err
    assert "Recall" not in out and Path(out.strip()).is_dir(), "zeros of nothing look like a result"
