"""Every method with every role prompted, on a tiny corpus: one small evaluation each, and what must hold of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.io import read_journal
from gnnrag.parts import find_class
from gnnrag.run.evaluate import evaluate
from gnnrag.run.rundir import read_predictions
from gnnrag.types import Prediction
from tests.helpers.names import METHODS, ROLES, forms
from tests.helpers.parts import COMPARISON, COMPOSITIONAL, CORPUS

QUESTIONS = [
    ("q1", COMPOSITIONAL, ["Kalmar"], ["p0", "p1"], "bridge"),
    ("q2", COMPARISON, ["Otto Brandt"], ["p0", "p3", "p4"], "comparison"),
    ("q3", "Which sea does the birthplace of Vera Lindqvist lie on?", ["Baltic"], ["p1", "p2"], "bridge"),
]
# The retriever that each method runs on here: among them, every one that asks roles of its own.
ON = {
    "closed_book": "bm25",
    "single": "graphrag_global",
    "multihop": "dense",
    "bdtr": "chg",
    "mgranrag": "dense",
    "graphsearch": "lightrag",
    "dotrag": "bm25",
    "ircot": "hipporag2",
    "iter_retgen": "minirag",
    "tog": "hipporag",
    "tog_graph": "bm25",
    "gcot": "pathrag",
    "react": "hypergraphrag",
    "search_r1": "raptor",
    "r1_searcher": "hybrid",
    "routed": "graphrag_local",
}
RAW = {"agent_search_r1", "agent_r1_searcher"}  # prompts that a model continues without a chat template


def write_corpus(folder: Path) -> Path:
    """Write corpus and questions as a canonical dataset."""
    keys = ("id", "question", "answers", "gold", "type")
    tables = {
        "corpus.jsonl": [asdict(p) for p in CORPUS],
        "questions.dev.jsonl": [dict(zip(keys, row, strict=True)) for row in QUESTIONS],
    }
    for name, rows in tables.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return folder


@dataclass
class Outcome:
    """A finished evaluation.

    Attributes:
        rows: one prediction a question.
        calls: every language-model call of the traces.
        counts: what all roles together counted.
    """

    path: Path
    metrics: dict[str, Any]
    rows: list[Prediction]
    calls: list[dict[str, Any]]
    counts: Counter[str]


class EveryMethod:
    """Runs methods on one corpus and one index with one model.

    Args:
        work: folder for corpus, index and runs.
        dots: the overrides that choose the model.
        max_tokens: of every reply.
    """

    def __init__(self, work: Path, dots: list[str], max_tokens: int) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.work, self.dots = work, dots
        (work / "corpus").mkdir(exist_ok=True)
        write_corpus(work / "corpus")
        self.limits = [
            f"roles.{role}.options.max_tokens={max_tokens}"
            for role in ROLES
            if "prompted" in forms(role) and has_limit(find_class("role", f"{role}.prompted"))
        ]

    def run(self, method: str, *more: str, name: str | None = None) -> Outcome:
        """Evaluate one method."""
        dots = [
            f"data.path={self.work / 'corpus'}", f"index.path={self.work / 'index'}", f"run.root={self.work / 'runs'}",
            "index.embedder.model=hash", "index.text.language=blank:en", f"method={method}", f"retriever={ON[method]}",
            "roles=prompted", "llm_cache=null", f"run.name={name or method}", "concurrency=4", *self.limits, *self.dots,
        ]  # fmt: skip
        if method == "dotrag":
            dots.append("method.schema_file=null")
        path, metrics = evaluate(load_config(EvaluateConfig, None, [*dots, *more]))
        rows = read_predictions(path)
        counts: Counter[str] = Counter()
        for row in rows:
            for spent in row.usage["roles"].values():
                counts.update(spent)
        traces = read_journal(path / "traces.jsonl")
        calls = [e for trace in traces for e in trace["events"] if e["event"] == "llm"]
        return Outcome(path, metrics, rows, calls, counts)


def has_limit(cls: Any) -> bool:
    return hasattr(cls, "max_tokens")


def check(outcome: Outcome, count_prompt: Callable[[dict[str, Any]], int] | None = None) -> None:
    """Assert what holds of every run, whatever nonsense the model talks.

    Args:
        outcome: of the run.
        count_prompt: tokens of a call's prompt; None where they cannot be known from the trace.
    """
    rows, counts = outcome.rows, outcome.counts
    assert sorted(row.question_id for row in rows) == [q[0] for q in QUESTIONS], "every question has one row"
    assert outcome.metrics["questions"] == len(QUESTIONS) and outcome.metrics["failed"] == 0
    assert not [row.error for row in rows if row.error]
    assert counts["calls"] == len(outcome.calls) > 0, "every call is in the trace, and every one is counted"
    assert not counts["usage_estimated"] and not counts["llm_error"]
    assert counts["parse_failure"] == sum(bool(call["problem"]) for call in outcome.calls)
    assert counts["completion_tokens"] > 0
    if count_prompt:
        assert counts["prompt_tokens"] == sum(map(count_prompt, outcome.calls))


def prompt_counter(folder: Path) -> Callable[[dict[str, Any]], int]:
    """Return a function from a call of a trace to the tokens of its prompt, by the model's own tokenizer."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)

    def count(call: dict[str, Any]) -> int:
        if call["prompt"] in RAW:
            return len(tokenizer("".join(m["content"] for m in call["messages"]))["input_ids"])
        encoded = tokenizer.apply_chat_template(call["messages"], add_generation_prompt=True, return_dict=True)
        return len(encoded["input_ids"])

    return count


assert set(ON) == set(METHODS), "a new method needs a retriever here"
