"""Training examples of text and entity graphs, and how their rankings are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import nn

from gnnrag.gnn import RankerConfig
from gnnrag.gnn.edges import Subgraph, join
from gnnrag.gnn.entity import EntityQuestion, EntityQuestions, NeighbourhoodConfig, Neighbourhoods
from gnnrag.gnn.model import Incidence, rank_passages, whole_logits
from gnnrag.gnn.question_graphs import QuestionGraphs
from gnnrag.metrics.retrieval import mrr, node_scores, recall_at
from gnnrag.types import Question

KS = (1, 2, 5, 10)
KEPT = 10  # places of a ranking in the report


def ranking_row(
    id_: str, ids: np.ndarray, scores: np.ndarray, order: np.ndarray, targets: np.ndarray, lost: int = 0
) -> dict[str, Any]:
    """Return `id`, `ranking` (`KEPT` of the items' ids), `scores`, and `metrics`; `order` is of the candidates."""
    return {
        "id": id_,
        "ranking": ids[order[:KEPT]].tolist(),
        "scores": [round(float(x), 5) for x in scores[order[:KEPT]]],
        "metrics": ranking_metrics(targets[order], lost),
    }


def ranked(model: nn.Module, example: Example, device: torch.device) -> tuple[np.ndarray, np.ndarray]:
    """Return (num_nodes,) float64 logits of an example, and its candidates, best first, ties by position."""
    with torch.inference_mode():
        logits = model(join([example.subgraph]).to(device))[:, 0].double().cpu().numpy()
    candidates = np.flatnonzero(example.candidates)
    return logits, candidates[np.argsort(-logits[candidates], kind="stable")]


def ranking_metrics(is_right: np.ndarray, lost: int) -> dict[str, float]:
    """Return recall, hits and MRR of a ranking, (n,) bool, best first; `lost` counts right ones that are not in it."""
    places, gold = range(len(is_right)), {*np.flatnonzero(is_right).tolist(), *range(-lost, 0)}
    reciprocal = mrr(places, gold)
    found = {f"recall@{k}": recall_at(places, gold, k) for k in KS}
    return {**found, "hits@1": float(reciprocal == 1.0), "mrr": reciprocal}


CUT = 2000  # subgraphs that are kept


@dataclass(frozen=True)
class Example:
    id: str
    subgraph: Subgraph
    candidates: np.ndarray  # (n,) bool, the nodes that are ranked
    targets: np.ndarray  # (n,) bool, those that are right
    lost: int  # right ones that pruning left out of the subgraph


class ExampleSet:
    """Questions on one index, with `gold`: corpus positions of the right passages of each."""

    def __init__(self, questions: Sequence[Question], gold: Sequence[Sequence[int]], graphs: QuestionGraphs) -> None:
        self.questions, self._gold, self._graphs = list(questions), list(gold), graphs
        self._subgraph = lru_cache(CUT)(self._cut)

    def __getitem__(self, i: int) -> Example:
        subgraph, gold = self._subgraph(i), self._gold[i]
        if self._graphs.config.node_text:
            subgraph = replace(subgraph, node_vectors=self._graphs.node_vectors(subgraph.nodes))
        targets = np.isin(subgraph.passages, gold)
        lost = len(set(gold)) - int(targets.sum())
        return Example(self.questions[i].id, subgraph, subgraph.candidates, targets, lost)

    def _cut(self, i: int) -> Subgraph:
        """Return a question's subgraph without its largest array, which is gathered anew for each step."""
        (subgraph,) = self._graphs.prepare([self.questions[i].text])
        return replace(subgraph, node_vectors=subgraph.node_vectors[:0])

    def can_train(self, i: int) -> bool:
        """Tell whether a question can train; each has a subgraph of its own."""
        return True

    def rank(self, model: Any, items: Sequence[int], device: Any) -> list[dict[str, Any]]:
        """Rank the passages of some questions, one at a time; a `ranking_row` of corpus positions each."""
        examples = (self[i] for i in items)
        rows = ((e, e.subgraph.passages, *ranked(model, e, device)) for e in examples)
        return [ranking_row(e.id, ids, logits, order, e.targets, e.lost) for e, ids, logits, order in rows]


LEAST = 0.01  # entities with a lower probability are never returned


class EntitySet:
    """Questions about entities of a graph of facts, with the names of the answers as `extra["nodes"]`."""

    def __init__(
        self,
        questions: Sequence[Question],
        source: EntityQuestions,
        config: NeighbourhoodConfig | None = None,
        ranker: RankerConfig | None = None,
    ) -> None:
        self.questions, self.source, self.ranker = list(questions), source, ranker or RankerConfig()
        self.near = Neighbourhoods(source, config)
        self._vectors: dict[str, np.ndarray] = {}
        self._starts: dict[int, EntityQuestion] = {}

    def __getitem__(self, i: int) -> Example:
        found, (gold, unknown) = self._found(i), self._gold(i)
        subgraph = self.near.cut(found, self._vector(found.text), self._facts(i))
        is_seed = np.isin(subgraph.nodes, list(found.seeds))
        targets = np.isin(subgraph.nodes, gold) & ~is_seed
        return Example(self.questions[i].id, subgraph, ~is_seed, targets, len(gold) + unknown - int(targets.sum()))

    def can_train(self, i: int) -> bool:
        """Tell whether a question has a start: without one, every score is the same whatever is asked."""
        return bool(self._found(i).seeds)

    def _found(self, i: int) -> EntityQuestion:
        if i not in self._starts:
            question = self.questions[i]
            self._starts[i] = self.source.find(question.text, question.seeds)
        return self._starts[i]

    def _facts(self, i: int) -> np.ndarray | None:
        """Return the graph of a question that has one of its own; see `gnnrag.datasets.kgqa`."""
        scope = self.questions[i].scope
        return self.source.facts_of(self.source.index.matching(scope)) if scope else None

    def _gold(self, i: int) -> tuple[list[int], int]:
        """Return the answers, and how many more there are that the graph does not have: nothing can find these."""
        position, names = self.source.graph.position, set(self.questions[i].extra.get("nodes", ()))
        known = sorted(position[name] for name in names if name in position)
        return known, len(names) - len(known)

    def _vector(self, text: str) -> np.ndarray:
        """Return the vector of a text; questions that differ by their names alone are one text."""
        if not self._vectors:  # all at once: without their names, questions have few texts
            texts = list(dict.fromkeys(self._found(i).text for i in range(len(self.questions))))
            rows = self.source.index.embedder.encode(texts, is_query=True)
            self._vectors = dict(zip(texts, rows.astype(np.float32), strict=True))
        return self._vectors[text]

    def rank(self, model: nn.Module, items: Sequence[int], device: torch.device) -> list[dict[str, Any]]:
        """Rank the entities of some questions' neighbourhoods; each a `ranking_row` and what F1 is made of."""
        return [self._row(model, i, device) for i in items]

    def _row(self, model: nn.Module, i: int, device: torch.device) -> dict[str, Any]:
        example = self[i]
        logits, order = ranked(model, example, device) if self.can_train(i) else (np.zeros(0), np.zeros(0, np.int64))
        is_right, chances = example.targets[order], expit(logits[order])
        shown = max(KEPT, int((chances > LEAST).sum()))
        return {
            **ranking_row(example.id, example.subgraph.nodes, logits, order, example.targets, example.lost),
            "chances": [round(float(x), 5) for x in chances[:shown]],
            "is_right": is_right[:shown].astype(int).tolist(),
            "gold": int(is_right.sum()) + example.lost,
            "hops": self.questions[i].extra.get("hops"),
        }


class SupportSet(EntitySet):
    """Questions about a corpus, with `gold`; passages are ranked, by the `ranker`.

    Targets are the entities of gold passages (GFM-RAG). Without a start, dense search ranks, as at inference.
    """

    def __getitem__(self, i: int) -> Example:
        found = self._found(i)
        subgraph = self.near.cut(found, self._vector(found.text))
        support = self._support(i)
        targets, every = np.isin(subgraph.nodes, support), np.ones(len(subgraph.nodes), dtype=bool)
        return Example(self.questions[i].id, subgraph, every, targets, len(support) - int(targets.sum()))

    @cached_property
    def incidence(self) -> Incidence:
        return Incidence.of(self.source.graph.entity_passages, len(self.source.index.ids))

    def _is_gold(self, i: int) -> np.ndarray:
        """Tell which passages are gold. Shape (num_passages,), bool."""
        out = np.zeros(len(self.source.index.ids), dtype=bool)
        out[[self.source.index.position[id_] for id_ in self.questions[i].gold]] = True
        return out

    def _support(self, i: int) -> np.ndarray:
        """Return the entities of the gold passages, and those that the question names as answers, ascending."""
        lists = self.source.graph.entity_passages
        stated = np.repeat(np.arange(len(lists)), lists.sizes)[self._is_gold(i)[lists.values]]
        return np.union1d(stated, np.array(self._gold(i)[0], dtype=np.int64))

    def _row(self, model: Any, i: int, device: torch.device) -> dict[str, Any]:
        example, has_start = self[i], self.can_train(i)
        if has_start:
            nodes, count = example.subgraph.nodes, self.source.graph.num_entities
            with torch.inference_mode():
                inside = model(join([example.subgraph]).to(device)).cpu()
                ranked = rank_passages(self.ranker, whole_logits(inside, nodes, count), self.incidence)[:, 0]
            scores = ranked.double().numpy()
        else:
            vector = self.source.index.embedder.encode([self.questions[i].text], is_query=True)[0]
            scores = (self.source.index.passage_vectors @ vector).astype(np.float64)
        order = np.argsort(-scores, kind="stable")
        row = ranking_row(example.id, np.arange(len(scores)), scores, order, self._is_gold(i))
        return {**row, "has_start": has_start}


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
