"""Subgraphs of a question and their batches (`num_nodes`, `edge_index`, `edge_type`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gnnrag.gnn.config import GNNConfig
from gnnrag.gnn.edges import RelationalIndex
from gnnrag.graphs.knowledge import Lists
from gnnrag.graphs.messages import STRUCTURE, MessageGraph
from gnnrag.index.index import Index
from gnnrag.index.message_stages import MessageKnowledge


@dataclass(frozen=True)
class Subgraph:
    """What the network sees of a graph for one question; n nodes, e directed edges, r relation rows.

    Attributes:
        nodes: (n,) int64 node ids in the whole graph, ascending.
        passages: (n,) int64 corpus position of each passage node, -1 for other nodes.
        source, relation, target: (e,) int64, both directions of every triple; nodes and relations are local rows.
        relations: (r,) int64 ids in the whole graph, inverses offset by its number of relations, ascending.
        relation_vectors: (r, F) float32.
        question: (F,) float32 vector of the question.
        seeds: (n,) float32 weight of each node as a seed.
        features: (n, K) float32.
        edge_features: (e, K') float32.
        node_vectors: (n, F) float16.
        prior: (num_passages,) float32, how dense and lexical search like each passage of the corpus, in [0, 1].
        branch: how seeds were found, see `gnnrag.gnn.seeds`.
    """

    nodes: np.ndarray
    passages: np.ndarray
    source: np.ndarray
    relation: np.ndarray
    target: np.ndarray
    relations: np.ndarray
    relation_vectors: np.ndarray
    question: np.ndarray
    seeds: np.ndarray
    features: np.ndarray
    edge_features: np.ndarray
    node_vectors: np.ndarray
    prior: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    branch: str = ""

    def targets(self, gold: Sequence[int]) -> np.ndarray:
        """Return which nodes are the passages `gold` (corpus positions). Shape (n,), bool."""
        return np.isin(self.passages, np.asarray(list(gold), dtype=np.int64))

    @property
    def candidates(self) -> np.ndarray:
        """The nodes that are ranked: its passages. Shape (n,), bool."""
        return self.passages >= 0


def join(parts: Sequence[Subgraph]) -> GraphBatch:
    """Put subgraphs side by side in the blocks layout; relations that several have are one row.

    Raises:
        ValueError: no subgraph.
    """
    if not parts:
        raise ValueError("join needs at least one subgraph")
    sizes = [len(part.nodes) for part in parts]
    firsts = np.cumsum([0, *sizes[:-1]])
    every, where = np.unique(np.concatenate([part.relations for part in parts]), return_index=True)
    rows = np.concatenate([part.relation_vectors for part in parts])[where]
    edges = [np.searchsorted(every, part.relations)[part.relation] for part in parts]

    def put(arrays: Sequence[np.ndarray], kind: type = np.float32) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(np.concatenate(arrays).astype(kind, copy=False)))

    return GraphBatch(
        source=put([part.source + first for part, first in zip(parts, firsts, strict=True)], np.int64),
        relation=put(edges, np.int64),
        target=put([part.target + first for part, first in zip(parts, firsts, strict=True)], np.int64),
        num_nodes=sum(sizes),
        relation_vectors=put([rows]),
        questions=torch.from_numpy(np.stack([part.question for part in parts]).astype(np.float32)),
        seeds=put([part.seeds for part in parts])[:, None],
        features=put([part.features for part in parts])[:, None],
        node_vectors=put([part.node_vectors for part in parts]),
        edge_features=put([part.edge_features for part in parts]),
        owner=put([np.full(size, number) for number, size in enumerate(sizes)], np.int64),
    )


@dataclass(frozen=True)
class GraphBatch:
    """Questions on one graph, in one of two layouts.

    *Shared*: all B questions look at the same N nodes; column b of `seeds` and `features` belongs to question b, and
    `owner` is None. *Blocks*: each question has its own pruned subgraph, all of them side by side in one graph of
    N = sum of N_b nodes; then B = 1, `owner[v]` is the question of node v, and edges may have features of their own.

    Attributes:
        source, relation, target: (E,) int64, both directions of every triple; messages flow from source to target.
        num_nodes: N.
        relation_vectors: (R2, F) vectors of the relations and their inverses; row `relation[e]` belongs to edge e.
        questions: (Q, F) question vectors; Q = B in the shared layout.
        seeds: (N, B) weight of each node as a seed, 0 for most.
        features: (N, B, K) features of (question, node), or None.
        node_vectors: (N, F) vectors of the nodes' texts, or None.
        edge_features: (E, K') features of (question, edge), blocks layout only, or None.
        edge_weights: (E,) weights of edges; 0 removes one; None for all 1.
        owner: (N,) int64 question of each node in the blocks layout, or None.
        index: the edges sorted, where many batches share them; see `gnnrag.gnn.model.with_index`.
    """

    source: Tensor
    relation: Tensor
    target: Tensor
    num_nodes: int
    relation_vectors: Tensor
    questions: Tensor
    seeds: Tensor
    features: Tensor | None = None
    node_vectors: Tensor | None = None
    edge_features: Tensor | None = None
    edge_weights: Tensor | None = None
    owner: Tensor | None = None
    index: RelationalIndex | None = None

    @property
    def width(self) -> int:
        """B: columns of a state, 1 in the blocks layout."""
        return self.seeds.shape[1]

    def spread(self, rows: Tensor) -> Tensor:
        """Give every node its question's row: (Q, d) to (1, B, d), which broadcasts, or to (N, 1, d) in blocks."""
        return rows[None] if self.owner is None else rows.index_select(0, self.owner)[:, None]

    def to(self, device: torch.device | str) -> GraphBatch:
        """Return the batch on a device."""
        kinds = (Tensor, RelationalIndex)
        values = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, kinds)}
        return replace(self, **values)  # type: ignore[arg-type]


@dataclass
class PruneConfig:
    """How much of the graph a question sees."""

    passages: int = 200  # passages, those that a short walk from the seeds likes best
    sentences: int = 1500  # no further passage is taken once they have so many sentences
    entities: int = 800  # names that two of the passages share, the rarest first
    seed_passages: int = 50  # passages that dense and lexical search like best, where walks start
    hub: int = 200  # names that more passages share lead nowhere
    steps: int = 3  # length of the walk


class TextGraph:
    """What a network of mode `node` reads of an index: its message graph, vectors, hierarchy and titles.

    Args:
        index: an opened index with the stages `NODE_STAGES`.
        config: which features the network reads, and how seeds weigh.
        prune: sizes.
    """

    def __init__(self, index: Index, config: GNNConfig | None = None, prune: PruneConfig | None = None) -> None:
        self.index, self.config, self.sizes = index, config or GNNConfig(), prune or PruneConfig()
        knowledge: MessageKnowledge = index.read("message_graph")
        assert knowledge.grounding is not None, "a graph of facts alone has no passages"
        self.graph, self.grounding = knowledge.graph, knowledge.grounding
        self.entity_vectors = as_rows(index.read("entity_vectors"), index)
        self.relation_vectors = with_inverses(index.read("relation_vectors"), self.graph, self.config)
        self.sentence_vectors = as_rows(index.read("sentence_vectors"), index)
        self.hierarchy, self.titles = index.hierarchy, index.titles
        ends = self.graph.triples[:, [0, 2]].ravel()
        self.degrees = np.bincount(ends, minlength=self.graph.num_nodes)

    @cached_property
    def fact_rows(self) -> np.ndarray:
        """Rows of the triples that are facts."""
        return np.flatnonzero(self.graph.triples[:, 1] >= len(STRUCTURE))

    @cached_property
    def passage_sentences(self) -> Lists:
        """Sentences of each passage in reading order."""
        return Lists(self.hierarchy.passage_indptr.astype(np.int64), self.hierarchy.passage_sentences)


def as_rows(vectors: np.ndarray, index: Index) -> np.ndarray:
    """Return vectors as they are, or (0, F) where there are none: an empty artefact knows no F."""
    return vectors if len(vectors) else np.zeros((0, index.passage_vectors.shape[1]), np.float32)


def with_inverses(vectors: np.ndarray, graph: MessageGraph, config: GNNConfig) -> np.ndarray:
    """Return the vectors of all relations, then of their inverses: by text, or negative. Shape (2 * num_relations, F).

    Args:
        vectors: what the stage `relation_vectors` holds.
        graph: the graph.
        config: `inverse` decides; relations that are sentences have negative inverses only.
    """
    if len(vectors) == graph.num_relations or config.inverse == "negative":
        base = vectors[: graph.num_relations]
        return np.concatenate([base, -base])
    return vectors
