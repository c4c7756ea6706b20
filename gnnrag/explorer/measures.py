"""The figures that the page shows, in words that need no paper, and what of `metrics.json` it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnrag.metrics.report import DEFAULT_KS


@dataclass(frozen=True)
class Measure:
    """A figure that every question has.

    Attributes:
        key: in `scores.jsonl` and `metrics.json`.
        name: as it is headed.
        help: what it means, in one line.
        group: `passages` or `answer`.
        right: what it means that it is 1; empty where a question is not simply right or wrong by it.
    """

    key: str
    name: str
    help: str
    group: str
    right: str = ""


MEASURES = (
    Measure("retrieval/recall@2", "Recall@2", "share of the gold passages among the first 2 found", "passages"),
    Measure(
        "retrieval/recall@5", "Recall@5", "share of the gold passages (those that prove the answer) among the first 5 found", "passages",
        "all gold passages are among the first 5",
    ),
    Measure("retrieval/all@5", "All@5", "questions that have every gold passage among the first 5", "passages"),
    Measure("retrieval/mrr", "MRR", "1 / rank of the first gold passage: 1 if it comes first, 0.5 if second", "passages"),
    Measure("retrieval/hits@1", "Hits@1", "questions whose first graph node is an answer", "passages", "the first node is an answer"),
    Measure("retrieval/node_recall", "Node recall", "share of the answer nodes that were found", "passages", "all answer nodes are found"),
    Measure("retrieval/node_precision", "Node precision", "share of the found nodes that are answers", "passages"),
    Measure("retrieval/node_f1", "Node F1", "balance of node recall and node precision", "passages", "exactly the answer nodes are found"),
    Measure("answer/em", "Exact match", "questions whose answer is, word for word, a gold answer", "answer", "the answer is exactly a gold answer"),
    Measure("answer/f1", "F1", "words that the answer shares with the gold answer, 1 for all", "answer"),
    Measure("answer/sub_em", "Contains", "questions whose answer contains a gold answer", "answer", "the answer contains a gold answer"),
    Measure("answer/abstained", "No answer", "questions that were left without an answer", "answer"),
)  # fmt: skip
COSTS = (
    "cost/retriever_calls", "cost/llm_calls", "cost/prompt_tokens", "cost/completion_tokens", "cost/usd",
    "cost/seconds_per_question", "context/size",
)  # fmt: skip
GROUPS = ("by_type", "by_hops", "by_length")


def trimmed(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of `metrics.json` the page shows, as it stands there."""
    keys = [m.key for m in MEASURES]
    whole = {k for key in keys for k in (key, f"{key}_ci")} | {"questions", "failed", "no_gold", "by_round", *COSTS}
    ks = {k for k in metrics if k.startswith("retrieval/recall@") and not k.endswith("_ci")} or {
        f"retrieval/recall@{k}" for k in DEFAULT_KS
    }
    found = {k: metrics[k] for k in metrics if k in whole | ks}
    for group in GROUPS:
        if group in metrics:
            rows = metrics[group].items()
            found[group] = {str(name): {k: v for k, v in row.items() if k in {*keys, "count"}} for name, row in rows}
    return found
