"""Training examples whose answers are entities: a neighbourhood of what the question names, and its answers.

A network of relations learns from a neighbourhood what it later does on the whole graph, at a twentieth of the cost
(NSM and GNN-RAG train and answer on such subgraphs). Evaluation is on the whole graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from gnnrag.gnn.entity import EntityQuestion, EntityQuestions
from gnnrag.gnn.examples import Example
from gnnrag.gnn.ranking import ranking_metrics
from gnnrag.gnn.subgraph import Subgraph
from gnnrag.metrics.nodes import node_scores
from gnnrag.types import Question

LEAST = 0.01  # entities with a lower probability are never returned


@dataclass
class NeighbourhoodConfig:
    """What an example of a question about entities holds."""

    hops: int = 3  # from the seeds
    fan: int = 30  # neighbours at most that one node leads to, evenly spread over its relations; seeds lead to all
    batch: int = 8  # questions that are evaluated at once on the whole graph


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
        self.questions, self.source, self.config = list(questions), source, config or NeighbourhoodConfig()
        self._vectors: dict[str, np.ndarray] = {}
        self._starts: dict[int, EntityQuestion] = {}
        graph = source.graph
        edges = np.stack(graph.edges)
        self._edges = edges[:, np.lexsort((edges[2], edges[1], edges[0]))]
        self._first = np.searchsorted(self._edges[0], np.arange(graph.num_nodes + 1))

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, i: int) -> Example:
        found, gold = self._found(i), self._gold(i)
        nodes = self._neighbourhood(sorted(found.seeds))
        subgraph = self._cut(found, nodes)
        is_seed = np.isin(nodes, list(found.seeds))
        targets = np.isin(nodes, gold) & ~is_seed
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

    def _neighbourhood(self, seeds: Sequence[int]) -> np.ndarray:
        """Return the nodes within reach, ascending; a hub leads to a sample of its neighbours, always the same."""
        reached = front = np.array(seeds, dtype=np.int64)
        for hop in range(self.config.hops):
            first, ends = (self._first, self._edges[2]) if hop == 0 else self._sampled
            found = np.unique(ends[_ranges(first[front], first[front + 1])])
            front = np.setdiff1d(found, reached, assume_unique=True)
            reached = np.union1d(reached, front)
        return reached

    @cached_property
    def _sampled(self) -> tuple[np.ndarray, np.ndarray]:
        """First edge of each node, and where each edge ends, where no node has more than `fan` edges."""
        counts = np.diff(self._first)
        rank = np.arange(len(self._edges[0])) - self._first[self._edges[0]]
        for hub in np.flatnonzero(counts > self.config.fan).tolist():
            rank[self._first[hub] : self._first[hub + 1]] = np.random.default_rng(hub).permutation(counts[hub])
        kept = rank < self.config.fan
        first = np.concatenate([[0], np.cumsum(np.minimum(counts, self.config.fan))])
        return first, self._edges[2][kept]

    def _cut(self, found: EntityQuestion, nodes: np.ndarray) -> Subgraph:
        rows = _ranges(self._first[nodes], self._first[nodes + 1])
        place = np.minimum(np.searchsorted(nodes, self._edges[2][rows]), max(len(nodes) - 1, 0))
        rows, place = (part[nodes[place] == self._edges[2][rows]] for part in (rows, place))
        relations = np.unique(self._edges[1][rows])
        weights = [found.seeds.get(int(node), 0.0) for node in nodes]
        vectors = self.source.relation_vectors
        return Subgraph(
            nodes=nodes,
            passages=np.full(len(nodes), -1),
            source=np.searchsorted(nodes, self._edges[0][rows]),
            relation=np.searchsorted(relations, self._edges[1][rows]),
            target=place,
            relations=relations,
            relation_vectors=np.asarray(vectors[relations], dtype=np.float32),
            question=self._vector(found.text),
            seeds=np.array(weights, dtype=np.float32),
            features=np.zeros((len(nodes), 0), np.float32),
            edge_features=np.zeros((len(rows), 0), np.float32),
            node_vectors=np.zeros((0, vectors.shape[1]), np.float16),
        )

    def rank(
        self, model: nn.Module, items: Sequence[int], device: torch.device, keep: int = 10
    ) -> list[dict[str, Any]]:
        """Rank all entities for some questions on the whole graph; rows as of `gnnrag.gnn.ranking`, with `chances`."""
        rows, base = [], self.source.base.to(device)
        for start in range(0, len(items), self.config.batch):
            part = list(items[start : start + self.config.batch])
            batch = self.source.prepare([self._found(i) for i in part])
            own = {"questions": batch.questions.to(device), "seeds": batch.seeds.to(device)}
            with torch.inference_mode():
                logits = model(replace(base, **own)).float().cpu().numpy()
            rows += [self._row(i, logits[:, column], keep) for column, i in enumerate(part)]
        return rows

    def _row(self, i: int, logits: np.ndarray, keep: int) -> dict[str, Any]:
        candidates = np.ones(len(logits), dtype=bool)
        candidates[list(self._found(i).seeds)] = False
        order = np.argsort(-np.where(candidates, logits, -np.inf), kind="stable")[: int(candidates.sum())]
        gold = self._gold(i)
        is_right = np.isin(order, gold)
        chances = 1.0 / (1.0 + np.exp(-logits[order].astype(np.float64)))
        shown = max(keep, int((chances > LEAST).sum()))
        return {
            "id": self.questions[i].id,
            "ranking": order[:keep].tolist(),
            "scores": [round(float(x), 5) for x in logits[order[:keep]]],
            "metrics": ranking_metrics(is_right, len(gold) - int(is_right.sum())),
            "chances": [round(float(x), 5) for x in chances[:shown]],
            "is_right": is_right[:shown].astype(int).tolist(),
            "gold": len(gold),
            "hops": self.questions[i].extra.get("hops"),
        }


def _ranges(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return the numbers of each range, one after the other."""
    counts = stops - starts
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))


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
