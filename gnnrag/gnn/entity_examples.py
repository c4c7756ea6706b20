"""Training examples of networks over entities: a neighbourhood of what the question names, and what it asks for.

Of a knowledge base that is its answers, of a corpus the entities of the passages that support its answer (GFM-RAG).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from gnnrag.gnn.entity import EntityQuestion, EntityQuestions
from gnnrag.gnn.entity_model import Places
from gnnrag.gnn.examples import Example
from gnnrag.gnn.neighbourhood import NeighbourhoodConfig, Neighbourhoods
from gnnrag.gnn.rankers import Incidence
from gnnrag.gnn.ranking import ranked, ranking_metrics
from gnnrag.gnn.subgraph import join
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
        found, (gold, unknown) = self._found(i), self._gold(i)
        subgraph = self.near.cut(found, self._vector(found.text))
        is_seed = np.isin(subgraph.nodes, list(found.seeds))
        targets = np.isin(subgraph.nodes, gold) & ~is_seed
        return Example(self.questions[i].id, subgraph, ~is_seed, targets, len(gold) + unknown - int(targets.sum()))

    def teaches(self, i: int) -> bool:
        """Tell whether a question has a start: without one, every score is the same whatever is asked."""
        return bool(self._found(i).seeds)

    def _found(self, i: int) -> EntityQuestion:
        if i not in self._starts:
            self._starts[i] = self.source.find(self.questions[i].text)
        return self._starts[i]

    def _gold(self, i: int) -> tuple[list[int], int]:
        """Return the answers, and how many more there are that the graph does not have: nothing can find these."""
        position, names = self.source.graph.position, set(self.questions[i].extra.get("nodes", ()))
        known = sorted(position[name] for name in names if name in position)
        return known, len(names) - len(known)

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
        logits, order = ranked(model, example, device) if self.teaches(i) else (np.zeros(0), np.zeros(0, np.int64))
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


class SupportSet(EntitySet):
    """Questions about a corpus: entities of the gold passages are the targets, and passages are ranked.

    A question that the network has no start for is ranked by dense search, as at inference.

    Args:
        questions: with `gold`, or with `extra["nodes"]` as `path_questions` makes them.
        source: the graph of facts, and where questions start.
        config: size of the neighbourhoods.
    """

    def __getitem__(self, i: int) -> Example:
        found = self._found(i)
        subgraph = self.near.cut(found, self._vector(found.text))
        targets = np.isin(subgraph.nodes, self._support(i))
        places = Places(subgraph.nodes, self.source.graph.num_entities, self.incidence, self._is_gold(i))
        every = np.ones(len(subgraph.nodes), dtype=bool)
        lost = len(self._support(i)) - int(targets.sum())
        return Example(self.questions[i].id, subgraph, every, targets, lost, places if found.seeds else None)

    @cached_property
    def incidence(self) -> Incidence:
        """Which entities stand in which passages."""
        return Incidence.of(self.source.graph.entity_passages, len(self.source.index.ids))

    def _is_gold(self, i: int) -> np.ndarray:
        """Tell which passages are gold. Shape (num_passages,), bool."""
        out = np.zeros(len(self.source.index.ids), dtype=bool)
        out[[self.source.index.position[id_] for id_ in self.questions[i].gold]] = True
        return out

    def _support(self, i: int) -> np.ndarray:
        """Return the entities of the gold passages, and those that the question names as answers, ascending."""
        inside = np.repeat(self._is_gold(i), self.incidence.sizes.numpy())
        return np.union1d(self.incidence.entities.numpy()[inside], np.array(self._gold(i)[0], dtype=np.int64))

    def _row(self, model: Any, i: int, device: torch.device, keep: int) -> dict[str, Any]:
        example = self[i]
        if example.places is None:
            vector = self.source.index.embedder.encode([self.questions[i].text], is_query=True)[0]
            scores = (self.source.index.passage_vectors @ vector).astype(np.float64)
        else:
            with torch.inference_mode():
                (found,) = model(join([example.subgraph]).to(device), places=[example.places])[1]
            scores = found.double().cpu().numpy()
        order = np.argsort(-scores, kind="stable")
        is_gold = self._is_gold(i)
        return {
            "id": example.id,
            "ranking": order[:keep].tolist(),
            "scores": [round(float(x), 6) for x in scores[order[:keep]]],
            "metrics": ranking_metrics(is_gold[order], 0),
            "has_start": example.places is not None,
        }


def best_threshold(rows: Sequence[dict[str, Any]]) -> float:
    """Return the least probability at which an entity is returned: the one with the best mean F1 on validation rows."""
    rows = [row for row in rows if "chances" in row]
    grid = np.unique(np.round(np.concatenate([[0.5], *(row["chances"] for row in rows)]), 2))
    scores = [float(np.mean([node_f1(row, threshold)[2] for row in rows] or [0.0])) for threshold in grid]
    return float(grid[int(np.argmax(scores))])


def node_f1(row: dict[str, Any], threshold: float) -> tuple[float, float, float]:
    """Return recall, precision and F1 of what reaches a threshold, or of the best one where nothing does."""
    count = max(int(np.sum(np.asarray(row["chances"]) >= threshold)), 1)
    right = [place for place, is_right in enumerate(row["is_right"]) if is_right]
    gold = [str(place) for place in right] + [f"lost{i}" for i in range(row["gold"] - len(right))]
    return node_scores([str(place) for place in range(count)], gold)
