"""How well a judge agrees with itself when it is asked again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import Any

from gnnrag.metrics.agreement import cohen_kappa, fleiss_kappa


def self_agreement(ratings: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the agreement of repeats.

    Args:
        ratings: for each thing that was judged, what each repeat said; None where a repeat said nothing, which leaves
            the thing out.

    Returns:
        `judged`, how many are counted; `agreement`, the share of pairs of repeats that say the same; `kappa`, of Fleiss
        (of Cohen for two repeats); of numbers also `within_one`, the share of pairs at most 1 apart, and `deviation`,
        the mean standard deviation. Only `judged` where nothing is counted.
    """
    whole = [list(row) for row in ratings if len(row) > 1 and None not in row]
    if not whole:
        return {"judged": 0}
    pairs = [pair for row in whole for pair in combinations(row, 2)]
    kappa = cohen_kappa(*zip(*whole, strict=True)) if len(whole[0]) == 2 else fleiss_kappa(whole)
    found: dict[str, Any] = {
        "judged": len(whole),
        "agreement": round(fmean(a == b for a, b in pairs), 6),
        "kappa": round(kappa, 6),
    }
    if all(isinstance(value, int) for row in whole for value in row):
        found["within_one"] = round(fmean(abs(a - b) <= 1 for a, b in pairs), 6)
        found["deviation"] = round(fmean(stdev(row) for row in whole), 6)
    return found
