"""Training examples whose answers are entities: a neighbourhood of what the question names, and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from gnnrag.gnn.entity import EntityQuestion, EntityQuestions
from gnnrag.gnn.examples import Example
from gnnrag.gnn.neighbourhood import NeighbourhoodConfig, Neighbourhoods
from gnnrag.gnn.ranking import ranked, ranking_metrics
from gnnrag.metrics.nodes import node_scores
from gnnrag.types import Question

LEAST = 0.01  # entities with a lower probability are never returned


class EntitySet:
    """Questions about entities of a graph of facts, as training examples and for evaluation.

    Args:
        questions: with `extra["nodes"]`, the names of the answers.
        source: the graph, and where questions start.
        config: size of the neighbourhoods.
    """

    def __init__(
        self, questions: Sequence[Question], source: EntityQuestions, config: NeighbourhoodConfig | None = None
    ) -> None:
        self.questions, self.source = list(questions), source
        self.near = Neighbourhoods(source, config)
        self._vectors: dict[str, np.ndarray] = {}
        self._starts: dict[int, EntityQuestion] = {}

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, i: int) -> Example:
        found, gold = self._found(i), self._gold(i)
        subgraph = self.near.cut(found, self._vector(found.text))
        is_seed = np.isin(subgraph.nodes, list(found.seeds))
        targets = np.isin(subgraph.nodes, gold) & ~is_seed
        return Example(self.questions[i].id, subgraph, ~is_seed, targets, len(gold) - int(targets.sum()))

    def _found(self, i: int) -> EntityQuestion:
        if i not in self._starts:
            self._starts[i] = self.source.find(self.questions[i].text)
        return self._starts[i]

    def _gold(self, i: int) -> list[int]:
        position = self.source.graph.position
        return sorted({position[name] for name in self.questions[i].extra.get("nodes", ()) if name in position})

    def _vector(self, text: str) -> np.ndarray:
        """Return the vector of a text; questions that differ by their names alone are one text."""
        if not self._vectors:  # all at once: without their names, questions have few texts
            texts = list(dict.fromkeys(self._found(i).text for i in range(len(self))))
            rows = self.source.index.embedder.encode(texts, is_query=True)
            self._vectors = dict(zip(texts, rows.astype(np.float32), strict=True))
        return self._vectors[text]

    def rank(
        self, model: nn.Module, items: Sequence[int], device: torch.device, keep: int = 10
    ) -> list[dict[str, Any]]:
        """Rank the entities of some questions' neighbourhoods; rows as of `rank_examples`, and what F1 is made of."""
        return [self._row(model, i, device, keep) for i in items]

    def _row(self, model: nn.Module, i: int, device: torch.device, keep: int) -> dict[str, Any]:
        example = self[i]
        logits, order = ranked(model, example, device)
        is_right, chances = example.targets[order], 1.0 / (1.0 + np.exp(-logits[order]))
        shown = max(keep, int((chances > LEAST).sum()))
        return {
            "id": example.id,
            "ranking": example.subgraph.nodes[order[:keep]].tolist(),
            "scores": [round(float(x), 5) for x in logits[order[:keep]]],
            "metrics": ranking_metrics(is_right, example.lost),
            "chances": [round(float(x), 5) for x in chances[:shown]],
            "is_right": is_right[:shown].astype(int).tolist(),
            "gold": int(is_right.sum()) + example.lost,
            "hops": self.questions[i].extra.get("hops"),
        }


def best_threshold(rows: Sequence[dict[str, Any]]) -> float:
    """Return the least probability at which an entity is returned: the one with the best mean F1 on validation rows."""
    grid = np.unique(np.round(np.concatenate([[0.5], *(row["chances"] for row in rows)]), 2))
    scores = [float(np.mean([node_f1(row, threshold)[2] for row in rows])) for threshold in grid]
    return float(grid[int(np.argmax(scores))])


def node_f1(row: dict[str, Any], threshold: float) -> tuple[float, float, float]:
    """Return recall, precision and F1 of what reaches a threshold, or of the best one where nothing does."""
    count = max(int(np.sum(np.asarray(row["chances"]) >= threshold)), 1)
    right = [place for place, is_right in enumerate(row["is_right"]) if is_right]
    gold = [str(place) for place in right] + [f"lost{i}" for i in range(row["gold"] - len(right))]
    return node_scores([str(place) for place in range(count)], gold)
