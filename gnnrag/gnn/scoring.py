"""Score the nodes of a question with a loaded GNN.

Questions are scored one by one: the rounding of a matrix product depends on how many rows it has, and a result must not
depend on which questions share a batch. On a CPU a joint pass saves little (1.3 of 9.6 ms).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from gnnrag.datasets.kgqa import GRAPH
from gnnrag.gnn import PruneConfig, RankerConfig
from gnnrag.gnn.checkpoint import Checkpoint
from gnnrag.gnn.edges import Subgraph, join
from gnnrag.gnn.entity import EntityQuestion, EntityQuestions, NeighbourhoodConfig, Neighbourhoods
from gnnrag.gnn.model import Incidence, rank_passages, whole_logits
from gnnrag.gnn.question_graphs import QuestionGraphs, passage_scores
from gnnrag.index.index import Index


class PassageScorer:
    """Mode `node`: a subgraph's passages are scored, as many as in training; all others follow by search."""

    def __init__(self, index: Index, checkpoint: Checkpoint, device: str = "cpu") -> None:
        self.index, self.model, self.device = index, checkpoint.model.to(device), device
        self.graphs = QuestionGraphs(index, self.model.config, PruneConfig(**checkpoint.facts.get("prune", {})))

    def passage_scores(self, text: str, *_: Any) -> tuple[np.ndarray, str]:
        """Return (num_passages,) float64 scores in [0, 1] for a question, and how its seeds were found."""
        (part,) = self.graphs.prepare([text])
        with torch.no_grad():
            logits = self.model(join([part]).to(self.device))[:, 0].double().cpu().numpy()
        return passage_scores(part.prior, part.passages[part.candidates], logits[part.candidates]), part.branch


class EntityScorer:
    """Mode `entity`: every entity of the graph of facts is scored, and a ranker maps them to passages."""

    def __init__(self, index: Index, checkpoint: Checkpoint, device: str = "cpu") -> None:
        self.index, self.model, self.device = index, checkpoint.model.to(device), device
        self.fallback = checkpoint.facts.get("fallback", "none")  # what ranks passages without a start: dense, none
        self.questions = EntityQuestions(index, checkpoint.model.config)
        self.ranker = checkpoint.ranker or RankerConfig()
        threshold = checkpoint.facts.get("threshold")
        self.threshold = 0.5 if threshold is None else float(threshold)
        sizes = NeighbourhoodConfig(**(checkpoint.facts.get("neighbourhood") or {"hops": None}))
        self.near = Neighbourhoods(self.questions, sizes)

    @cached_property
    def _incidence(self) -> Incidence:
        return Incidence.of(self.questions.graph.entity_passages, len(self.index.ids))

    @cached_property
    def _articles(self) -> tuple[np.ndarray, np.ndarray]:
        """Of a knowledge base: the entity that each passage is about, and whether it is an article's first part."""
        position, parts = self.questions.graph.position, dict[tuple[str, Any], int]()
        for i, passage in enumerate(self.index.passages):
            parts.setdefault((passage.title, passage.metadata.get(GRAPH)), i)
        about = np.array([position.get(p.title, -1) for p in self.index.passages], dtype=np.int64)
        first = np.zeros(len(about), dtype=bool)
        first[list(parts.values())] = True
        return about, first & (about >= 0)

    def score(
        self, text: str, given: Sequence[str] = (), mask: np.ndarray | None = None
    ) -> tuple[np.ndarray, EntityQuestion, Subgraph | None]:
        """Return (num_entities,) float64 logits, where the question starts, and what the network saw.

        Logits are -inf without a start, `given` or found. `mask` (num_passages,): the passages that state the graph
        of a knowledge base's question.
        """
        question = self.questions.find(text, given)
        if not question.seeds:  # without a start, scores would follow the structure of the graph, not the question
            return np.full(self.questions.graph.num_entities, -np.inf), question, None
        logits, part = self._logits(question, mask)
        return logits.double().numpy(), question, part

    def passage_scores(
        self, text: str, given: Sequence[str] = (), mask: np.ndarray | None = None
    ) -> tuple[np.ndarray, str]:
        """Return a score of every passage for a question, and how seeds were found; arguments as in `score`.

        An article of a knowledge base scores as its entity does, its further parts after all first ones. Without a
        start, dense search scores (`dense_fallback`), if there is any.
        """
        question = self.questions.find(text, given)
        if not question.seeds:
            return self._without_start(question)
        return self._passages(self._logits(question, mask)[0], question), question.branch

    def _without_start(self, question: EntityQuestion) -> tuple[np.ndarray, str]:
        if self.fallback == "dense":
            vector = self.index.embedder.encode([question.text], is_query=True)[0]
            return (self.index.passage_vectors @ vector).astype(np.float64), "dense_fallback"
        first = self._articles[1] if self.questions.is_kb else np.ones(len(self.index.ids), dtype=bool)
        return np.where(first, 0.0, -1.0), question.branch

    def _passages(self, logits: torch.Tensor, question: EntityQuestion) -> np.ndarray:
        """Return the scores of passages from the logits of entities. Shape (num_passages,), float64."""
        if self.questions.is_kb:
            chances = expit(logits.double().numpy())
            chances[list(question.seeds)] = 0.0
            about, first = self._articles
            return np.where(about >= 0, chances[about], 0.0) - ~first
        with torch.no_grad():
            return rank_passages(self.ranker, logits[:, None], self._incidence)[:, 0].double().numpy()

    def _logits(self, question: EntityQuestion, mask: np.ndarray | None) -> tuple[torch.Tensor, Subgraph]:
        """Return (num_entities,) CPU logits, entities outside of the question's graph last, and that graph."""
        facts = self.questions.facts_of(mask) if mask is not None and self.questions.is_kb else None
        part = self.near.cut(question, self.index.embedder.encode([question.text], is_query=True)[0], facts)
        with torch.no_grad():
            inside = self.model(join([part]).to(self.device)).cpu()
        return whole_logits(inside, part.nodes, self.questions.graph.num_entities)[:, 0], part
