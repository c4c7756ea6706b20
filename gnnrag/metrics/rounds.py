"""What each round brought: evidence recall by round and by sub-query, from a run's traces.

A trace says for each query what it ranked, and for methods that pool their evidence what the pool held afterwards.
Questions that stop early keep their last value, so that every round is a mean over the same questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gnnrag.metrics.retrieval import recall_at
from gnnrag.types import Question

DEPTH = 5  # ranks that count, of each query and of the pool
SIDES = ("semantic", "relational")  # of GraphSearch, arXiv 2509.22009
Trace = Mapping[str, Any]  # a row of `traces.jsonl`: question_id, events


def by_round(traces: Iterable[Trace], questions: Sequence[Question], depth: int = DEPTH) -> list[dict[str, Any]]:
    """Return one row for each round, the retrieval of the question itself first.

    A row holds `round`, `questions` (that had this round), `queries` (a question's mean number of them in it, over
    those questions), `reached` and, where the method pools its evidence, `pool`: shares of the gold passages, means
    over all questions that have any. A passage is reached once a query has it among its first `depth` hits, or among
    what they came from; `pool` is Recall@`depth` of all that was found so far.

    Args:
        traces: rows of `traces.jsonl`; those of unknown questions are left out.
        questions: what was asked.
        depth: ranks that count.
    """
    gold = {question.id: set(question.gold) for question in questions if question.gold}
    reached, pooled, asked = [], [], []
    for trace in traces:
        if wanted := gold.get(trace["question_id"]):
            one = _rounds(trace["events"], wanted, depth)
            reached.append([share for share, _, _ in one])
            pooled.append([pool for _, pool, _ in one])
            asked.append([queries for _, _, queries in one])
    has_pool = any(pool is not None for chain in pooled for pool in chain)
    pools = carried([[pool or 0.0 for pool in chain] for chain in pooled]) if has_pool else []
    rows = []
    for number, share in enumerate(carried(reached)):
        counts = [chain[number] for chain in asked if number < len(chain) and chain[number]]
        queries = round(sum(counts) / len(counts), 4) if counts else 0.0
        row = {"round": number, "questions": len(counts), "queries": queries, "reached": share}
        rows.append(row | ({"pool": pools[number]} if has_pool else {}))
    return rows


def _rounds(events: Iterable[Mapping[str, Any]], gold: set[str], depth: int) -> list[tuple[float, float | None, int]]:
    """Return (reached, pool, queries) after each round of one question. What a round lacks, the one before it says."""
    found: set[str] = set()
    rounds: dict[int, list[Any]] = {}
    for event in events:
        if event["event"] == "query":
            row = rounds.setdefault(event["round"], [0.0, None, 0])
            found |= gold & set(_brought(event["ranking"], depth))
            row[0], row[2] = len(found) / len(gold), row[2] + 1
        elif event["event"] == "merge" and event["round"] in rounds:
            rounds[event["round"]][1] = recall_at(event["top"], gold, depth)
    filled: list[tuple[float, float | None, int]] = []
    for number in range(max(rounds, default=-1) + 1):
        share, pool, queries = rounds.get(number, (filled[-1][0] if filled else 0.0, None, 0))
        filled.append((share, filled[-1][1] if pool is None and filled else pool, queries))
    return filled


def _brought(ranking: Mapping[str, Any], depth: int) -> list[str]:
    if ranking["kind"] == "passage":
        return list(ranking["ids"][:depth])
    return [passage for sources in ranking.get("sources", ())[:depth] for passage in sources]


def by_step(traces: Iterable[Trace], questions: Sequence[Question]) -> dict[str, list[float]]:
    """Return the mean share of gold passages that a side retrieved up to each sub-query (Figure 7 of GraphSearch).

    A graph hit counts for the passages that it comes from. Questions with fewer sub-queries keep their last share;
    those without gold passages are left out.
    """
    gold = {question.id: set(question.gold) for question in questions if question.gold}
    chains: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    for trace in traces:
        wanted = gold.get(trace["question_id"])
        for side in SIDES if wanted else ():
            found: set[str] = set()
            chain = []
            for event in trace["events"]:
                if event["event"] == "sub_query" and event["side"] == side:
                    found |= wanted & set(event["context_ids"])  # type: ignore[operator]
                    chain.append(len(found) / len(wanted))  # type: ignore[arg-type]
            chains[side].append(chain)
    return {side: carried(rows) for side, rows in chains.items()}


def carried(chains: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean of chains at each position; a shorter one keeps its last value, an empty one counts 0."""
    longest = max(map(len, chains), default=0)
    filled = [[*chain, *[chain[-1] if chain else 0.0] * (longest - len(chain))] for chain in chains]
    return [round(sum(row[i] for row in filled) / len(filled), 4) for i in range(longest)]
