"""Scores a run into a JSON-ready dictionary: a failed question scores zero, one without a row is an error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gnnrag.config import MetricsConfig
from gnnrag.errors import GnnragError
from gnnrag.metrics.answer import (
    exact_match,
    f1,
    is_abstention,
    list_scores,
    sub_em,
    sub_em_tok,
)
from gnnrag.metrics.long_answers import TEXT, is_long
from gnnrag.metrics.retrieval import (
    all_at,
    gold_nodes,
    is_node_metric,
    mrr,
    ndcg_at,
    node_metrics,
    precision,
    recall_at,
    resolved_metrics,
)
from gnnrag.metrics.statistics import bootstrap_interval
from gnnrag.types import Prediction, Question

_LENGTHS = ((1, 10), (11, 15), (16, 20))  # words of a question, inclusive; longer ones are one group
_WITH_INTERVAL = (
    *("retrieval/recall@2", "retrieval/recall@5", "retrieval/all@5", "retrieval/mrr"),
    *("retrieval/hits@1", "retrieval/node_recall", "retrieval/node_precision", "retrieval/node_f1"),
    *("retrieval/resolved_recall", "retrieval/resolved_precision", "retrieval/resolved_f1"),
    *("answer/em", "answer/f1", "answer/sub_em"),
)
_OF_SHORT_ANSWERS = ("answer/em", "answer/f1", "answer/sub_em", "answer/sub_em_tok")
_USAGE = {
    "cost/llm_calls": "llm_calls",
    "cost/prompt_tokens": "prompt_tokens",
    "cost/completion_tokens": "completion_tokens",
    "cost/usd": "cost",
    "cost/retriever_calls": "retriever_calls",
}
_DIGITS = {"cost/usd": 8}  # dollars per question are often below 0.0001
Columns = Mapping[str, np.ndarray]


def summarise(questions: Sequence[Question], columns: Columns, resamples: int = 1000, seed: int = 0) -> dict[str, Any]:
    """Return means over questions, intervals of the main ones, cost, and the same means per type, length and hops.

    `columns` are those of `per_question`. A question for which a metric is not defined is left out of its mean, which
    is None where none is left. `resamples=0` leaves the intervals out.
    """
    report: dict[str, Any] = {"questions": len(questions), "no_gold": sum(not q.gold for q in questions)}
    report |= _means(columns, np.ones(len(questions), dtype=bool))
    for name in columns if resamples else ():
        values = defined(columns[name]) if name in _WITH_INTERVAL or name.startswith(TEXT) else ()
        if len(values):
            interval = bootstrap_interval(values, resamples=resamples, seed=seed)
            report[f"{name}_ci"] = [round(interval.low, 4), round(interval.high, 4)]
    groups = {"by_type": [q.type for q in questions], "by_length": [length_group(q.text) for q in questions]}
    if all(isinstance(q.extra.get("hops"), int) for q in questions):
        groups["by_hops"] = [str(q.extra["hops"]) for q in questions]
    for by, names in groups.items():
        members = {name: np.array(names) == name for name in sorted(set(names))}
        report[by] = {name: {"count": int(rows.sum()), **_means(columns, rows)} for name, rows in members.items()}
    return report


def length_group(text: str) -> str:
    """Return the group of a question by its number of words, such as `11-15 words`; names sort by length."""
    words = len(text.split())
    for low, high in _LENGTHS:
        if words <= high:
            return f"{low:02d}-{high} words"
    return f"{_LENGTHS[-1][1] + 1}+ words"


def defined(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def per_question(
    questions: Sequence[Question],
    predictions: Iterable[Prediction],
    config: MetricsConfig | None = None,
    nodes: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, np.ndarray]:
    """Return one array per metric, (n,) in the order of `questions`, to compare two runs on; NaN: not defined.

    Retrieval metrics are not defined without gold passages, nor metrics of short answers for a reference of a sentence
    or more: see `compare_texts`. Node metrics and those of lists are there where a question has `gold_nodes`; `nodes`,
    the table of `resolved_metrics`, adds those of retrieved nodes together with those of the passages read. A failed
    question scores 0 and keeps its cost.

    Raises GnnragError for no questions or predictions that are not one a question, ValueError for bad `ks` or
    `f1_variant`.
    """
    config, pairs = config or MetricsConfig(), paired(questions, predictions)
    rows = [_row(question, prediction, config) for question, prediction in pairs]
    if any(gold_nodes(q) for q in questions):
        for row, (question, prediction) in zip(rows, pairs, strict=True):
            metrics = node_metrics(question, prediction.nodes) | list_scores(prediction.answer, question.answers)
            if nodes:
                metrics |= resolved_metrics(question, prediction.nodes, prediction.context, nodes)
            if prediction.error is not None:
                metrics = dict.fromkeys(metrics, 0.0)
            row |= metrics if gold_nodes(question) else dict.fromkeys(metrics, math.nan)
    columns = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}
    has_gold = np.array([bool(q.gold) for q in questions])
    for name in columns:
        if name.startswith("retrieval/") and not is_node_metric(name):
            columns[name][~has_gold] = math.nan
    are_long = np.array([is_long(q) for q in questions])
    for name in _OF_SHORT_ANSWERS:
        columns[name][are_long] = math.nan
    return columns


def _row(question: Question, prediction: Prediction, config: MetricsConfig) -> dict[str, float]:
    answer, answers, ranking, gold = prediction.answer, question.answers, prediction.ranking, question.gold
    quality = {f"retrieval/recall@{k}": recall_at(ranking, gold, k) for k in config.ks}
    quality |= {f"retrieval/all@{k}": all_at(ranking, gold, k) for k in config.ks}
    quality |= {
        "retrieval/mrr": mrr(ranking, gold),
        "retrieval/ndcg@10": ndcg_at(ranking, gold, 10),
        "retrieval/context_precision": precision(prediction.context, gold),
        "answer/em": exact_match(answer, answers),
        "answer/f1": f1(answer, answers, config.f1_variant),
        "answer/sub_em": sub_em(answer, answers),
        "answer/sub_em_tok": sub_em_tok(answer, answers),
        "answer/abstained": float(is_abstention(answer)),
    }
    if prediction.error is not None:
        quality = dict.fromkeys(quality, 0.0)
    cost = {name: float(prediction.usage.get(key, 0)) for name, key in _USAGE.items()}
    cost["cost/seconds_per_question"] = prediction.seconds
    size, failed = float(len(prediction.context)), float(prediction.error is not None)
    return {**quality, **cost, "context/size": size, "failed": failed}


def _means(columns: Columns, rows: np.ndarray) -> dict[str, Any]:
    """Return rounded means over the questions in `rows` for which a metric is defined; None where there are none."""
    means: dict[str, Any] = {"failed": int(columns["failed"][rows].sum())}
    for name, values in columns.items():
        if name != "failed":
            chosen = defined(values[rows])
            means[name] = round(float(chosen.mean()), _DIGITS.get(name, 4)) if len(chosen) else None
    return means


def paired(questions: Sequence[Question], predictions: Iterable[Prediction]) -> list[tuple[Question, Prediction]]:
    """Return each question with its prediction; GnnragError: no questions, or rows that are not one a question."""
    if not questions:
        raise GnnragError("there are no questions to score")
    rows = list(predictions)
    by_id = {row.question_id: row for row in rows}
    if len(by_id) < len(rows):
        raise GnnragError("a question has two predictions; keep one row per question")
    if differing := by_id.keys() ^ {q.id for q in questions}:
        problem = f"{len(differing)} questions without a prediction, or predictions of none of them"
        raise GnnragError(f"{problem}, such as {min(differing)!r}; run the same command again to finish the run")
    return [(q, by_id[q.id]) for q in questions]
