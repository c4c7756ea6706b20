"""Stage 2: supervised retrieval. Questions with gold passages teach the network to rank (GFM-RAG, arXiv 2502.01113)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.gnn.config import LossConfig
from gnnrag.gnn.examples import Example, ExampleSet
from gnnrag.gnn.losses import Candidates, retrieval_loss
from gnnrag.gnn.sampling import Draws
from gnnrag.gnn.subgraph import join

KS = (1, 2, 5, 10)
Saver = Callable[[nn.Module, Path, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Pool:
    """Examples of several sets, by name of the set: whole sets, and which items of each belong."""

    sets: Mapping[str, ExampleSet]
    items: Mapping[str, Sequence[int]]

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.items.values())

    def places(self) -> list[tuple[str, int]]:
        """Return every item as set and place in `items`."""
        return [(name, i) for name, rows in self.items.items() for i in range(len(rows))]

    def get(self, place: tuple[str, int]) -> Example:
        """Return an example."""
        name, i = place
        return self.sets[name][self.items[name][i]]


class RetrievalTask:
    """Trains on the questions of one pool, and is judged by those of another.

    Args:
        train: what is trained on.
        validation: what decides which weights are kept.
        losses: their weights.
        draws: which items a step takes; see `Draws`.
        save: writes a checkpoint.
        metric: what is maximised: `recall@5`, `hits@1`, `mrr`, ...
    """

    def __init__(
        self, train: Pool, validation: Pool, losses: LossConfig, draws: Draws, save: Saver, metric: str = "recall@5"
    ) -> None:
        self.train, self.validation, self.losses, self.draws = train, validation, losses, draws
        self.save, self.metric = save, metric

    def batch(self, step: int) -> list[tuple[str, int]]:
        """Return the items of a step."""
        return self.draws[step]

    def loss(self, model: nn.Module, items: Sequence[tuple[str, int]], device: torch.device) -> Tensor:
        """Return one loss for each question: 0 for one none of whose right nodes are in its subgraph."""
        examples = [self.train.get(item) for item in items]
        batch = join([example.subgraph for example in examples]).to(device)
        right, ranked = (np.concatenate(rows) for rows in zip(*((e.targets, e.candidates) for e in examples), strict=True))
        targets, among = (torch.from_numpy(rows).to(device)[:, None] for rows in (right, ranked))
        cosine = None
        if self.losses.distillation and batch.node_vectors is not None and batch.owner is not None:
            cosine = (batch.node_vectors * batch.questions[batch.owner]).sum(1, keepdim=True)
        return retrieval_loss(Candidates.of(model(batch), targets, batch.owner, among, reduce=False), self.losses, cosine)

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> dict[str, dict[str, float]]:
        """Return the metrics of the validation questions."""
        places = self.validation.places()[part]
        return {row["id"]: row["metrics"] for row in rank(model, self.validation, places, device)}


def rank(
    model: nn.Module, pool: Pool, places: Sequence[tuple[str, int]], device: torch.device, keep: int = 10
) -> list[dict[str, Any]]:
    """Rank the candidates of questions, one at a time: a question's result depends on no other.

    Returns:
        One row for each: `id`, `set`, `ranking` (the first `keep`, as corpus positions, or node ids where candidates
        are entities), `scores`, and `metrics`.
    """
    rows = []
    for place in places:
        example = pool.get(place)
        with torch.inference_mode():
            logits = model(join([example.subgraph]).to(device))[:, 0].float().cpu().numpy()
        candidates = np.flatnonzero(example.candidates)
        order = candidates[np.argsort(-logits[candidates], kind="stable")]
        names = example.subgraph.passages if (example.subgraph.passages >= 0).any() else example.subgraph.nodes
        rows.append(
            {
                "id": example.id,
                "set": place[0],
                "ranking": names[order[:keep]].tolist(),
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
