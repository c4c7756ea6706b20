"""Stage 2: supervised retrieval. Questions with gold passages teach the network to rank (GFM-RAG, arXiv 2502.01113)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.gnn.config import LossConfig
from gnnrag.gnn.examples import Example
from gnnrag.gnn.losses import Candidates, passage_loss, retrieval_loss
from gnnrag.gnn.model import Places
from gnnrag.gnn.sampling import Draws
from gnnrag.gnn.subgraph import GraphBatch, join

Saver = Callable[[nn.Module, Path, Mapping[str, Any]], None]


class Examples(Protocol):
    """The examples of a set."""

    def __getitem__(self, i: int) -> Example: ...

    def rank(self, model: nn.Module, items: Sequence[int], device: torch.device) -> list[dict[str, Any]]:
        """Rank the candidates of some questions as at inference; see `gnnrag.gnn.examples.rank_examples`."""
        ...


@dataclass(frozen=True)
class Pool:
    """Examples of several sets, by name of the set: whole sets, and which items of each belong."""

    sets: Mapping[str, Examples]
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

    def rank(self, model: nn.Module, places: Sequence[tuple[str, int]], device: torch.device) -> list[dict[str, Any]]:
        """Rank the candidates of some items; one row for each, with the name of its set."""
        rows = []
        for name, items in self.items.items():
            mine = [items[i] for other, i in places if other == name]
            rows += [{"set": name, **row} for row in self.sets[name].rank(model, mine, device)]
        return rows


class RetrievalTask:
    """Trains on the questions of one pool; those of another choose the weights by `metric` (`recall@5`, `mrr`)."""

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
        right, ranked = (
            np.concatenate(rows) for rows in zip(*((e.targets, e.candidates) for e in examples), strict=True)
        )
        targets, among = (torch.from_numpy(rows).to(device)[:, None] for rows in (right, ranked))
        logits, found = self._forward(model, batch, [example.places for example in examples])
        cosine = None
        if self.losses.distillation and batch.node_vectors is not None and batch.owner is not None:
            cosine = (batch.node_vectors * batch.questions[batch.owner]).sum(1, keepdim=True)
        candidates = Candidates.of(logits, targets, batch.owner, among, reduce=False, questions=len(examples))
        loss = retrieval_loss(candidates, self.losses, cosine)
        return loss if found is None else loss + self.losses.passages * found

    def _forward(
        self, model: nn.Module, batch: GraphBatch, places: Sequence[Places | None]
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits, and where scores of passages are trained, their loss of each question."""
        if not self.losses.passages or not any(places):
            return model(batch), None
        logits, scores = model(batch, places=places)
        bare: Any = getattr(model, "module", model)
        are_sums = bare.ranker.config.name == "learned"
        rows = []
        for score, place in zip(scores, places, strict=True):
            if score is None or place is None:
                rows.append(logits.new_zeros(()))
            else:
                gold = torch.from_numpy(place.gold).to(logits.device)
                rows.append(passage_loss(score.float(), gold, are_sums))
        return logits, torch.stack(rows)

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> dict[str, dict[str, float]]:
        """Return the metrics of the validation questions."""
        places = self.validation.places()[part]
        return {f"{row['set']}/{row['id']}": row["metrics"] for row in self.validation.rank(model, places, device)}
