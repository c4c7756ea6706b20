"""The figures that the page shows, in words that need no paper, and what of `metrics.json` it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measure:
    """A figure that every question has.

    Attributes:
        key: in `scores.jsonl` and `metrics.json`.
        group: `passages` or `answer`.
        name: as it is headed.
        help: what it means, in one line.
        right: what it means that it is 1; empty where a question is not simply right or wrong by it.
    """

    key: str
    group: str
    name: str
    help: str
    right: str = ""


_FOUND, _ANSWER = "passages", "answer"
MEASURES = (
    Measure("retrieval/recall@2", _FOUND, "Recall@2", "share of the gold passages among the first 2 found"),
    Measure(
        "retrieval/recall@5", _FOUND, "Recall@5",
        "share of the gold passages (those that prove the answer) among the first 5 found",
        "all gold passages are among the first 5",
    ),
    Measure("retrieval/all@5", _FOUND, "All@5", "questions that have every gold passage among the first 5"),
    Measure("retrieval/mrr", _FOUND, "MRR", "1 / rank of the first gold passage: 1 if it comes first, 0.5 if second"),
    Measure(
        "retrieval/hits@1", _FOUND, "Hits@1", "questions whose first graph node is an answer",
        "the first node is an answer",
    ),
    Measure(
        "retrieval/node_recall", _FOUND, "Node recall", "share of the answer nodes that were found",
        "all answer nodes are found",
    ),
    Measure("retrieval/node_precision", _FOUND, "Node precision", "share of the found nodes that are answers"),
    Measure(
        "retrieval/node_f1", _FOUND, "Node F1", "balance of node recall and node precision",
        "exactly the answer nodes are found",
    ),
    Measure(
        "answer/em", _ANSWER, "Exact match", "questions whose answer is, word for word, a gold answer",
        "the answer is exactly a gold answer",
    ),
    Measure("answer/f1", _ANSWER, "F1", "words that the answer shares with the gold answer, 1 for all"),
    Measure(
        "answer/sub_em", _ANSWER, "Contains", "questions whose answer contains a gold answer",
        "the answer contains a gold answer",
    ),
    Measure(
        "answer/abstained", _ANSWER, "No answer",
        "questions that were left without an answer; lower is better, but for those that have none",
    ),
)  # fmt: skip
COSTS = (
    "cost/retriever_calls", "cost/llm_calls", "cost/prompt_tokens", "cost/completion_tokens", "cost/usd",
    "cost/seconds_per_question", "context/size",
)  # fmt: skip
WHOLE = ("questions", "failed", "no_gold", "by_round", "by_step", "replies")
GROUPS = ("by_type", "by_hops", "by_length")


def trimmed(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of `metrics.json` the page shows, as it stands there."""
    keys = {measure.key for measure in MEASURES}
    whole = keys | {f"{key}_ci" for key in keys} | {*WHOLE, *COSTS}
    found = {k: v for k, v in metrics.items() if k in whole or _is_recall(k)}
    for group in GROUPS:
        if group in metrics:
            rows = metrics[group].items()
            found[group] = {str(name): {k: v for k, v in row.items() if k in keys | {"count"}} for name, row in rows}
    return found


def _is_recall(name: str) -> bool:
    return name.removeprefix("retrieval/recall@").isdigit()
