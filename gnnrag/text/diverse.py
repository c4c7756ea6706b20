"""Choosing texts that score high and do not repeat each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gnnrag.text.normalise import FUNCTION_WORDS, words


@lru_cache(maxsize=65536)  # the sentences of a community come again in those above it
def content_words(text: str) -> frozenset[str]:
    """Return the folded words of a text that say something."""
    return frozenset(w for w in words(text) if w not in FUNCTION_WORDS and len(w) > 1)


def similarity(a: frozenset[str], b: frozenset[str]) -> float:
    """Return the share of the smaller set that both have; 0 where one is empty."""
    return len(a & b) / min(len(a), len(b)) if a and b else 0.0


def diverse(
    bags: Sequence[frozenset[str]], scores: Sequence[float], count: int, redundancy: float = 0.5, limit: float = 0.7
) -> list[int]:
    """Choose by maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998).

    Args:
        bags: content words of each candidate.
        scores: how good each is, at least 0; scaled by the largest.
        count: how many to choose.
        redundancy: what a candidate loses, at most, for being like a chosen one.
        limit: similarity to a chosen one from which a candidate is out.

    Returns:
        Positions in order of choice; ties go to the first.
    """
    top = max(scores, default=0.0) or 1.0
    nearest = [0.0] * len(bags)
    left, chosen = list(range(len(bags))), list[int]()
    while left and len(chosen) < count:
        best = max(left, key=lambda i: (scores[i] / top - redundancy * nearest[i], -i))
        chosen.append(best)
        for i in left:
            nearest[i] = max(nearest[i], similarity(bags[i], bags[best]))
        left = [i for i in left if i != best and nearest[i] < limit]
    return chosen
