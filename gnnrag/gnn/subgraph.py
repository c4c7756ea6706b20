"""The subgraph of a question, and its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit

from gnnrag.index.index import Index


@dataclass(frozen=True)
class Subgraph:
    """Part of a graph for one question: n nodes, e edges (each triple both ways, as local rows), r relation rows."""

    nodes: np.ndarray  # (n,) int64 node ids in the whole graph, ascending
    passages: np.ndarray  # (n,) int64 corpus position of each passage node, -1 for other nodes
    source: np.ndarray  # (e,) int64
    relation: np.ndarray  # (e,) int64
    target: np.ndarray  # (e,) int64
    relations: np.ndarray  # (r,) int64 ids in the whole graph, inverses offset by its number of relations, ascending
    relation_vectors: np.ndarray  # (r, F) float32
    question: np.ndarray  # (F,) float32
    seeds: np.ndarray  # (n,) float32 weight of each node as a seed
    features: np.ndarray  # (n, K) float32
    node_vectors: np.ndarray  # (n, F) float16
    prior: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (num_passages,) of search, 0 to 1
    branch: str = ""  # how seeds were found, see gnnrag.gnn.features

    def targets(self, gold: Sequence[int]) -> np.ndarray:
        """Return which nodes are the passages `gold` (corpus positions). Shape (n,), bool."""
        return np.isin(self.passages, np.asarray(list(gold), dtype=np.int64))

    @property
    def candidates(self) -> np.ndarray:
        """The nodes that are ranked: its passages. Shape (n,), bool."""
        return self.passages >= 0


@dataclass
class PruneConfig:
    """How much of the graph a question sees."""

    passages: int = 200  # passages, those that a short walk from the seeds likes best
    sentences: int = 1500  # no further passage is taken once they have so many sentences
    entities: int = 800  # names that two of the passages share, the rarest first
    seed_passages: int = 50  # passages that dense and lexical search like best, where walks start
    hub: int = 200  # names that more passages share lead nowhere
    steps: int = 3  # length of the walk


def as_rows(vectors: np.ndarray, index: Index) -> np.ndarray:
    """Return vectors as they are, or (0, F) where there are none: an empty artefact knows no F."""
    return vectors if len(vectors) else np.zeros((0, index.passage_vectors.shape[1]), np.float32)


def passage_scores(prior: np.ndarray, inside: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return scores of all passages, (num_passages,) float64: those `inside` a subgraph by their logits.

    The others follow by the `prior` of search, (num_passages,) in [0, 1]; `inside` holds positions.
    """
    known = expit(logits)
    scores = prior.astype(np.float64) * (known.min() if len(known) else 1.0) * 0.999
    scores[inside] = known
    return scores
