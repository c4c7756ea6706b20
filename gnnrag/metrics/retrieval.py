"""Retrieval metrics of one question: gold is a set of passage ids, a ranking is a list, best first.

A duplicate in a ranking uses up a rank, as in the published scripts. A question without gold passages scores 0; whether
it counts in the mean is decided in `report.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence


def recall_at(ranking: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return the share of the gold passages that are in the first `k` ranks.

    Raises:
        ValueError: `k` is below 1.
    """
    wanted = set(gold)
    return len(wanted.intersection(_top(ranking, k))) / len(wanted) if wanted else 0.0


def all_at(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return 1.0 if every gold passage is in the first `k` ranks: the condition for answering from them.

    Raises:
        ValueError: `k` is below 1.
    """
    return float(recall_at(ranking, gold, k) == 1.0)


def mrr(ranking: Sequence[Hashable], gold: Collection[Hashable]) -> float:
    """Return one over the rank of the first gold passage, 0.0 if there is none."""
    wanted = set(gold)
    return next((1.0 / rank for rank, passage in enumerate(ranking, start=1) if passage in wanted), 0.0)


def precision(context: Collection[str], gold: Collection[str]) -> float:
    """Return the share of the distinct passages in `context` that are gold, 0.0 for an empty context."""
    shown = set(context)
    return len(shown.intersection(gold)) / len(shown) if shown else 0.0


def _top(ranking: Sequence[Hashable], k: int) -> Sequence[Hashable]:
    if k < 1:
        raise ValueError(f"k={k}: must be at least 1")
    return ranking[:k]
