"""Metrics of a run's traces: what each round and each sub-query brought.

A trace (a row of `traces.jsonl`: question_id, events) has the ranking of each query and, for methods that pool
evidence, the pool. Each round is a mean over the same questions: those that stop early keep their last value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.io import read_lines
from gnnrag.metrics.retrieval import recall_at
from gnnrag.types import Question

DEPTH = 5  # ranks that count, of each query and of the pool
CHANNELS = ("semantic", "relational")  # of GraphSearch, arXiv 2509.22009
_EVENTS = frozenset({"query", "merge", "sub_query"})

Trace = Mapping[str, Any]


def from_traces(path: Path, questions: Sequence[Question], on_note: Callable[[str], None]) -> dict[str, Any]:
    """Return `by_round`, and `by_step` (GraphSearch: by channel).

    Empty, with a note, where only some questions have a trace.
    """
    traces = []
    for row, _ in read_lines(path):
        # The messages of language models are nearly all of a large trace: dropped row by row.
        events = [event for event in row["events"] if event["event"] in _EVENTS]
        traces.append({"question_id": row["question_id"], "events": events})
    if lacking := {q.id for q in questions} - {trace["question_id"] for trace in traces}:
        on_note(
            f"{path.parent}: {len(lacking)} of {len(questions)} questions have no trace, so there are no figures by "
            "round; run.fresh=true answers all of them again"
        )
        return {}
    metrics: dict[str, Any] = {"by_round": by_round(traces, questions)}
    if any(steps := by_step(traces, questions).values()):
        metrics["by_step"] = dict(zip(CHANNELS, steps, strict=True))
    return metrics


def by_round(traces: Iterable[Trace], questions: Sequence[Question], depth: int = DEPTH) -> list[dict[str, Any]]:
    """Return one row for each round, the retrieval of the question itself first.

    A row holds `round`, `questions` that had it, their mean number of `queries`, and shares of the gold passages over
    all questions that have any: `reached` (among the first `depth` hits of a query so far, or what these came from)
    and, where evidence is pooled, `pool` (Recall@`depth` of all that was found so far).
    """
    chains = [_rounds(trace["events"], gold, depth) for trace, gold in _with_gold(traces, questions)]
    reached = carried([[share for share, _, _ in chain] for chain in chains])
    has_pool = any(pool is not None for chain in chains for _, pool, _ in chain)
    pools = carried([[pool or 0.0 for _, pool, _ in chain] for chain in chains])
    rows = []
    for number, share in enumerate(reached):
        counts = [chain[number][2] for chain in chains if number < len(chain) and chain[number][2]]
        queries = round(sum(counts) / len(counts), 4) if counts else 0.0
        row = {"round": number, "questions": len(counts), "queries": queries, "reached": share}
        rows.append(row | ({"pool": pools[number]} if has_pool else {}))
    return rows


def _rounds(events: Iterable[Mapping[str, Any]], gold: set[Any], depth: int) -> list[tuple[float, float | None, int]]:
    """Return (reached, pool, queries) after each round of one question; what a round lacks is as in the one before."""
    reached: set[str] = set()
    rounds: dict[int, list[Any]] = {}
    for event in events:
        if event["event"] == "query":
            row = rounds.setdefault(event["round"], [0.0, None, 0])
            ranking = event["ranking"]
            if ranking["kind"] == "passage":
                hits = ranking["ids"][:depth]
            else:
                hits = [passage for sources in ranking.get("sources", ())[:depth] for passage in sources]
            reached |= gold & set(hits)
            row[0], row[2] = len(reached) / len(gold), row[2] + 1
        elif event["event"] == "merge" and event["round"] in rounds:
            rounds[event["round"]][1] = recall_at(event["top"], gold, depth)
    filled: list[tuple[float, float | None, int]] = []
    share, last_pool = 0.0, None
    for number in range(max(rounds, default=-1) + 1):
        share, pool, queries = rounds.get(number, (share, None, 0))
        last_pool = last_pool if pool is None else pool
        filled.append((share, last_pool, queries))
    return filled


def by_step(traces: Iterable[Trace], questions: Sequence[Question]) -> dict[str, list[float]]:
    """Return the mean share of gold passages that a channel retrieved up to each sub-query (Figure 7 of GraphSearch).

    A graph hit counts for its source passages. Questions without gold passages are left out.
    """
    chains: dict[str, list[list[float]]] = {channel: [] for channel in CHANNELS}
    for trace, gold in _with_gold(traces, questions):
        for channel in CHANNELS:
            retrieved: set[str] = set()
            chain = []
            for event in trace["events"]:
                if event["event"] == "sub_query" and event["side"] == channel:
                    retrieved |= gold & set(event["context_ids"])
                    chain.append(len(retrieved) / len(gold))
            chains[channel].append(chain)
    return {channel: carried(rows) for channel, rows in chains.items()}


def _with_gold(traces: Iterable[Trace], questions: Sequence[Question]) -> Iterable[tuple[Trace, set[str]]]:
    """Yield the traces of questions that have gold passages, with these."""
    gold = {question.id: set(question.gold) for question in questions}
    return ((trace, gold[trace["question_id"]]) for trace in traces if gold.get(trace["question_id"]))


def carried(chains: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean of chains at each position; a shorter one keeps its last value, an empty one counts 0."""
    longest = max(map(len, chains), default=0)
    filled = [[*chain, *[chain[-1] if chain else 0.0] * (longest - len(chain))] for chain in chains]
    return [round(sum(row[i] for row in filled) / len(filled), 4) for i in range(longest)]
