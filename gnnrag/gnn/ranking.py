"""Rankings of a network, and how good they are, while it is trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from gnnrag.gnn.subgraph import join
from gnnrag.metrics.retrieval import mrr, recall_at

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
        logits, order = ranked(model, example, device)
        rows.append(
            {
                "id": example.id,
                "ranking": example.subgraph.passages[order[:keep]].tolist(),
                "scores": [round(float(x), 5) for x in logits[order[:keep]]],
                "metrics": ranking_metrics(example.targets[order], example.lost),
            }
        )
    return rows


def ranked(model: nn.Module, example: Example, device: torch.device) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits of all nodes of an example, and its candidates, best first, ties by position.

    The first has shape (num_nodes,), float64, the second (num_candidates,).
    """
    with torch.inference_mode():
        logits = model(join([example.subgraph]).to(device))[:, 0].double().cpu().numpy()
    candidates = np.flatnonzero(example.candidates)
    return logits, candidates[np.argsort(-logits[candidates], kind="stable")]


def ranking_metrics(is_right: np.ndarray, lost: int) -> dict[str, float]:
    """Return recall, hits and MRR of a ranking.

    Args:
        is_right: (n,) bool, best first.
        lost: right ones that are not in the ranking.
    """
    places, gold = range(len(is_right)), {*np.flatnonzero(is_right).tolist(), *range(-lost, 0)}
    reciprocal = mrr(places, gold)
    found = {f"recall@{k}": recall_at(places, gold, k) for k in KS}
    return {**found, "hits@1": float(reciprocal == 1.0), "mrr": reciprocal}
