"""Rankings of a network, and how good they are, while it is trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from gnnrag.gnn.subgraph import join

if TYPE_CHECKING:
    from gnnrag.gnn.examples import Example

KS = (1, 2, 5, 10)


def rank_examples(
    model: nn.Module, examples: Iterable[Example], device: torch.device, keep: int = 10
) -> list[dict[str, Any]]:
    """Rank the candidates of questions, one at a time: a question's result depends on no other.

    Returns:
        One row for each: `id`, `ranking` (the first `keep`, as corpus positions), `scores`, and `metrics`.
    """
    rows = []
    for example in examples:
        with torch.inference_mode():
            logits = model(join([example.subgraph]).to(device))[:, 0].float().cpu().numpy()
        candidates = np.flatnonzero(example.candidates)
        order = candidates[np.argsort(-logits[candidates], kind="stable")]
        rows.append(
            {
                "id": example.id,
                "ranking": example.subgraph.passages[order[:keep]].tolist(),
                "scores": [round(float(x), 5) for x in logits[order[:keep]]],
                "metrics": ranking_metrics(example.targets[order], example.lost),
            }
        )
    return rows


def ranking_metrics(is_right: np.ndarray, lost: int) -> dict[str, float]:
    """Return recall, hits and MRR of a ranking.

    Args:
        is_right: (n,) bool, best first.
        lost: right ones that are not in the ranking.
    """
    total, places = int(is_right.sum()) + lost, np.flatnonzero(is_right)
    found = {f"recall@{k}": float((places < k).sum() / total) if total else 0.0 for k in KS}
    first = int(places[0]) if len(places) else None
    return {**found, "hits@1": float(first == 0), "mrr": 0.0 if first is None else 1.0 / (1 + first)}
