"""Scores a run into a JSON-ready dictionary: a failed question scores zero, one without a row is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gnnrag.errors import GnnragError
from gnnrag.metrics.answer import F1Variant, exact_match, f1, is_abstention, sub_em, sub_em_tok
from gnnrag.metrics.retrieval import (
    all_at,
    gold_nodes,
    is_node_metric,
    mrr,
    node_metrics,
    precision,
    recall_at,
    resolved_metrics,
    resolved_nodes,
)
from gnnrag.metrics.statistics import bootstrap_interval
from gnnrag.types import Prediction, Question

LENGTHS = ((1, 10), (11, 15), (16, 20))  # words of a question, inclusive; longer ones are one group
DEFAULT_KS = (1, 2, 5, 10, 20, 30, 50, 100, 150, 200)
_WITH_INTERVAL = (
    *("retrieval/recall@2", "retrieval/recall@5", "retrieval/all@5", "retrieval/mrr"),
    *("retrieval/hits@1", "retrieval/node_recall", "retrieval/node_precision", "retrieval/node_f1"),
    *("retrieval/resolved_recall", "retrieval/resolved_precision", "retrieval/resolved_f1"),
    *("answer/em", "answer/f1", "answer/sub_em"),
)
_USAGE = {
    "cost/llm_calls": "llm_calls",
    "cost/prompt_tokens": "prompt_tokens",
    "cost/completion_tokens": "completion_tokens",
    "cost/usd": "cost",
    "cost/retriever_calls": "retriever_calls",
}
# Dollars per question are often below 0.0001.
_DIGITS = {"cost/usd": 8}


def score(
    questions: Sequence[Question],
    predictions: Iterable[Prediction],
    ks: Sequence[int] = DEFAULT_KS,
    f1_variant: F1Variant = "hipporag",
    skip_no_gold: bool = False,
    resamples: int = 1000,
    seed: int = 0,
    nodes: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return means over questions, intervals of the main ones, cost, and the same means per type and length.

    Questions with `gold_nodes` also get node metrics, those with a number of hops means per number. `predictions` are
    one row a question, in any order. Questions without gold passages count 0 in retrieval means or, with
    `skip_no_gold`, are left out (None where none is left). `resamples=0` leaves the intervals out. `nodes`, as in
    `resolved_nodes`, adds metrics of retrieved nodes together with those of the passages that the reader saw.

    Raises GnnragError for no questions or rows that are not one a question, ValueError for bad `ks` or `f1_variant`.
    """
    columns = per_question(questions, predictions, ks, f1_variant, nodes)
    has_gold = np.array([bool(q.gold) for q in questions])
    everything = np.ones(len(questions), dtype=bool)
    has_nodes = np.array([bool(gold_nodes(q)) for q in questions])
    counted = {"passage": has_gold if skip_no_gold else everything, "node": has_nodes}
    report: dict[str, Any] = {"questions": len(questions), "no_gold": int((~has_gold).sum())}
    report |= _means(columns, everything, counted)
    for name in _WITH_INTERVAL if resamples else ():
        values = columns[name][_rows(name, everything, counted)] if name in columns else np.zeros(0)
        if len(values):
            interval = bootstrap_interval(values, resamples=resamples, seed=seed)
            report[f"{name}_ci"] = [round(interval.low, 4), round(interval.high, 4)]
    for percent in (10, 50, 90):
        report[f"context/size_p{percent}"] = round(float(np.percentile(columns["context/size"], percent)), 4)
    report["by_type"] = _grouped(columns, np.array([q.type for q in questions]), counted)
    report["by_length"] = _grouped(columns, np.array([length_group(q.text) for q in questions]), counted)
    if all(isinstance(q.extra.get("hops"), int) for q in questions):
        report["by_hops"] = _grouped(columns, np.array([q.extra["hops"] for q in questions]), counted)
    return report


def length_group(text: str) -> str:
    """Return the group of a question by its number of words, such as `11-15 words`; names sort by length."""
    words = len(text.split())
    low, high = next((pair for pair in LENGTHS if words <= pair[1]), (LENGTHS[-1][1] + 1, None))
    return f"{low:02d}-{high} words" if high else f"{low}+ words"


def per_question(
    questions: Sequence[Question],
    predictions: Iterable[Prediction],
    ks: Sequence[int] = DEFAULT_KS,
    f1_variant: F1Variant = "hipporag",
    nodes: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, np.ndarray]:
    """Return one array per metric, (n,) in the order of `questions`, to compare two runs on. Raises as `score`."""
    pairs = _paired(questions, predictions)
    rows = [_row(q, p, ks, f1_variant) for q, p in pairs]
    if any(gold_nodes(q) for q in questions):
        for row, (question, prediction) in zip(rows, pairs, strict=True):
            metrics = _node_row(question, prediction, nodes)
            row |= dict.fromkeys(metrics, 0.0) if prediction.error is not None else metrics
    return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}


def _node_row(
    question: Question, prediction: Prediction, table: Mapping[str, Sequence[str]] | None
) -> dict[str, float]:
    metrics = node_metrics(question, prediction.nodes)
    if table:
        metrics |= resolved_metrics(question, resolved_nodes(prediction.nodes, prediction.context, table))
    return metrics


def _row(question: Question, prediction: Prediction, ks: Sequence[int], variant: F1Variant) -> dict[str, float]:
    failed = prediction.error is not None
    answer, answers = prediction.answer, question.answers
    ranking, gold = prediction.ranking, question.gold
    quality = {f"retrieval/recall@{k}": recall_at(ranking, gold, k) for k in ks}
    quality |= {f"retrieval/all@{k}": all_at(ranking, gold, k) for k in ks}
    quality |= {
        "retrieval/mrr": mrr(ranking, gold),
        "retrieval/context_precision": precision(prediction.context, gold),
        "answer/em": exact_match(answer, answers),
        "answer/f1": f1(answer, answers, variant),
        "answer/sub_em": sub_em(answer, answers),
        "answer/sub_em_tok": sub_em_tok(answer, answers),
        "answer/abstained": float(is_abstention(answer)),
    }
    if failed:
        quality = dict.fromkeys(quality, 0.0)
    # A failed question has spent what it spent: its cost counts.
    cost = {name: float(prediction.usage.get(key, 0)) for name, key in _USAGE.items()}
    cost["cost/seconds_per_question"] = prediction.seconds
    size = float(len(prediction.context))
    return {**quality, **cost, "context/size": size, "failed": float(failed)}


def _grouped(
    columns: Mapping[str, np.ndarray], groups: np.ndarray, counted: Mapping[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """Return the size and the means of each group of questions. `groups` names each question's, shape (n,)."""
    rows = {str(group): groups == group for group in np.unique(groups)}
    return {name: {"count": int(mine.sum()), **_means(columns, mine, counted)} for name, mine in rows.items()}


def _means(columns: Mapping[str, np.ndarray], rows: np.ndarray, counted: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return rounded means over the questions in `rows`; retrieval metrics only over those that are `counted` too."""
    result: dict[str, Any] = {"failed": int(columns["failed"][rows].sum())}
    for name, values in columns.items():
        if name != "failed":
            chosen = values[_rows(name, rows, counted)]
            result[name] = round(float(chosen.mean()), _DIGITS.get(name, 4)) if len(chosen) else None
    return result


def _rows(name: str, rows: np.ndarray, counted: Mapping[str, np.ndarray]) -> np.ndarray:
    if is_node_metric(name):
        return rows & counted["node"]
    return rows & counted["passage"] if name.startswith("retrieval/") else rows


def _paired(questions: Sequence[Question], predictions: Iterable[Prediction]) -> Iterable[tuple[Question, Prediction]]:
    if not questions:
        raise GnnragError("there are no questions to score")
    by_id: dict[str, Prediction] = {}
    for prediction in predictions:
        if prediction.question_id in by_id:
            raise GnnragError(f"question {prediction.question_id!r} has two predictions; keep one row per question")
        by_id[prediction.question_id] = prediction
    missing = [q.id for q in questions if q.id not in by_id]
    if missing:
        raise GnnragError(
            f"question {missing[0]!r} has no prediction ({len(missing)} of {len(questions)} are missing); "
            "run the same command again to finish the run, then score it"
        )
    unknown = by_id.keys() - {q.id for q in questions}
    if unknown:
        raise GnnragError(
            f"the prediction for {min(unknown)!r} belongs to no question ({len(unknown)} of {len(by_id)} do not); "
            "score the run with the questions it was made with"
        )
    return [(q, by_id[q.id]) for q in questions]
