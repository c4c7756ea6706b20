"""Score the nodes of a question with a loaded GNN, and explain a score by the paths that carry it.

Questions are scored one by one: the rounding of a matrix product depends on how many rows it has, and a result must not
depend on which questions share a batch. On a CPU a joint pass saves little (1.3 of 9.6 ms).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from gnnrag.errors import ConfigError
from gnnrag.gnn import RankerConfig
from gnnrag.gnn.checkpoint import Checkpoint
from gnnrag.gnn.edges import GraphBatch
from gnnrag.gnn.entity import EntityQuestion, EntityQuestions, NeighbourhoodConfig, Neighbourhoods
from gnnrag.gnn.model import Incidence, QueryGNN, rank_passages, whole_logits
from gnnrag.gnn.question_graphs import QuestionGraphs
from gnnrag.gnn.subgraph import PruneConfig, Subgraph, join
from gnnrag.index.index import Index


@dataclass(frozen=True)
class RelationalPath:
    """A path from a seed."""

    nodes: tuple[int, ...]  # one more than relations
    relations: tuple[int, ...]  # rows of the batch's relation vectors
    score: float  # mean gradient of the node's logit with respect to the weight of the message over each edge


def explain(model: QueryGNN, batch: GraphBatch, node: int, beam: int = 10, top_k: int = 10) -> list[RelationalPath]:
    """Return the best paths that end at a node, best first; `batch` has one question.

    To first order, an edge's share in a logit is the gradient with respect to the weight of its message, which is 1.
    The beam search adds up these gradients along paths that begin at a seed, in any layer, take one edge in each layer
    after it, visit no node twice, and end where they reach the node. Only paths of a positive score are evidence.
    `beam` paths are kept for each node in each layer.
    """
    seeds = (batch.seeds[:, 0] != 0).nonzero().flatten().tolist()
    starts: dict[int, list[_Partial]] = {seed: [(0.0, (seed,), ())] for seed in seeds if seed != node}
    best: dict[int, list[_Partial]] = {}
    edges = [t.cpu().numpy() for t in (batch.source, batch.relation, batch.target)]
    ended: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    for gradient in edge_gradients(model, batch, node):
        for seed, start in starts.items():  # the boundary enters at every layer, so a path may begin at any
            best.setdefault(seed, []).extend(start)
        best = _extend(best, edges, gradient, beam, node)
        for total, nodes, relations in best.pop(node, []):
            score = total / len(relations)
            ended[nodes, relations] = max(score, ended.get((nodes, relations), score))
    paths = [RelationalPath(nodes, relations, score) for (nodes, relations), score in ended.items()]
    return sorted(paths, key=lambda p: (-p.score, len(p.nodes), p.nodes, p.relations))[:top_k]


def edge_gradients(model: QueryGNN, batch: GraphBatch, node: int) -> list[np.ndarray]:
    """Return `layers` (E,) float64 gradients of a node's logit by message weight; the model's own stay unchanged."""
    if not len(model.layers):
        return []
    shape, dtype, device = len(batch.source), batch.seeds.dtype, batch.source.device
    ones = [torch.ones(shape, dtype=dtype, device=device, requires_grad=True) for _ in model.layers]
    with torch.enable_grad():
        logit = model(batch, layer_weights=ones)[node, 0]
        gradients = torch.autograd.grad(logit, ones)
    return [g.double().cpu().numpy() for g in gradients]


_Partial = tuple[float, tuple[int, ...], tuple[int, ...]]  # sum of gradients, nodes, relations


def _extend(
    best: dict[int, list[_Partial]], edges: list[np.ndarray], gradient: np.ndarray, beam: int, node: int
) -> dict[int, list[_Partial]]:
    """Take every path one edge further; keep the `beam` best that end at each node."""
    source, relation, target = edges
    # No path leaves the node explained, and an edge of gradient 0 is one that the logit does not see.
    usable = np.flatnonzero(np.isin(source, list(best)) & (source != node) & (gradient != 0))
    out: dict[int, list[_Partial]] = {}
    for edge in usable.tolist():
        tail, step = int(target[edge]), float(gradient[edge])
        for total, nodes, relations in best[int(source[edge])]:
            if tail not in nodes:
                extended = (total + step, (*nodes, tail), (*relations, int(relation[edge])))
                out.setdefault(tail, []).append(extended)
    return {tail: sorted(paths, key=lambda p: (-p[0], p[1], p[2]))[:beam] for tail, paths in out.items()}


PathText = tuple[tuple[str, ...], float]  # names of nodes and relations by turns, a node at either end; the score


def path_texts(
    model: QueryGNN,
    part: Subgraph,
    is_target: np.ndarray,
    node_name: Callable[[int], str],
    texts: Sequence[str],
    k: int,
) -> list[PathText]:
    """Write down the `k` best paths to the node of `is_target`, (n,) bool, if there is one: those of a positive score.

    `node_name` names nodes of the whole graph; `texts` are its relations, without the inverses, which get an arrow.
    """
    if not is_target.any():
        return []
    names = [texts[r] if r < len(texts) else f"<- {texts[r - len(texts)]}" for r in part.relations.tolist()]
    batch = join([part]).to(next(model.parameters()).device)
    written = []
    for path in explain(model, batch, int(is_target.argmax()), top_k=k):
        if path.score > 0:
            nodes = [node_name(int(part.nodes[node])) for node in path.nodes]
            steps = [step for r, node in zip(path.relations, nodes[1:], strict=True) for step in (names[r], node)]
            written.append(((nodes[0], *steps), path.score))
    return written


class PassageScorer:
    """Mode `node`: a subgraph's passages (None: as many as in training) are scored, all others follow by search."""

    def __init__(self, index: Index, checkpoint: Checkpoint, passages: int | None = None, device: str = "cpu") -> None:
        self.index, self.model, self.device = index, checkpoint.model.to(device), device
        sizes = PruneConfig(**checkpoint.facts.get("prune", {}))
        sizes = sizes if passages is None else replace(sizes, passages=passages)
        self.graphs = QuestionGraphs(index, checkpoint.model.config, sizes)

    def passage_scores(self, text: str) -> tuple[np.ndarray, str]:
        """Return (num_passages,) float64 scores in [0, 1] for a question, and how its seeds were found."""
        (part,) = self.graphs.prepare([text])
        with torch.no_grad():
            logits = self.model(join([part]).to(self.device))[:, 0].double().cpu().numpy()
        return _passage_scores(part, logits), part.branch

    def paths(self, text: str, passage: int, top_k: int = 3) -> list[PathText]:
        """Return the paths that the score of a passage leans on, best first; none where it is not in the subgraph."""
        (part,) = self.graphs.prepare([text])
        return path_texts(self.model, part, part.passages == passage, self._name, self.graphs.graph.relations, top_k)

    def _name(self, node: int) -> str:
        graph = self.graphs.graph
        if node < graph.first_passage:
            return graph.entities[node]
        if node < graph.first_sentence:
            passage = self.index.passages[node - graph.first_passage]
            return f"[{passage.title or passage.id}]"
        return f'"{self.graphs.hierarchy.sentences[node - graph.first_sentence]}"'


def _passage_scores(part: Subgraph, logits: np.ndarray) -> np.ndarray:
    """Return scores of all passages: those of the subgraph by their logits, then the others by what search says."""
    inside = part.passages[part.candidates]
    known = 1.0 / (1.0 + np.exp(-logits[part.candidates]))
    scores = part.prior.astype(np.float64) * (known.min() if len(known) else 1.0) * 0.999
    scores[inside] = known
    return scores


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
        position = self.questions.graph.position
        about = np.array([position.get(p.title, -1) for p in self.index.passages], dtype=np.int64)
        first = np.zeros(len(about), dtype=bool)
        first[np.unique(about, return_index=True)[1]] = True
        return about, first & (about >= 0)

    def score(self, text: str) -> tuple[np.ndarray, EntityQuestion]:
        """Return (num_entities,) float64 probabilities, 0 without a start, and where the question starts."""
        question = self.questions.find(text)
        if not question.seeds:  # without a start, scores would follow the structure of the graph, not the question
            return np.zeros(self.questions.graph.num_entities), question
        return _chances(self._logits(question)), question

    def passage_scores(self, text: str) -> tuple[np.ndarray, str]:
        """Return a score of every passage for a question, and how seeds were found.

        An article of a knowledge base scores as its entity does, its further parts after all first ones. Without a
        start, dense search scores (`dense_fallback`), if there is any.
        """
        question = self.questions.find(text)
        if not question.seeds:
            return self._without_start(question)
        return self._passages(self._logits(question), question), question.branch

    def _without_start(self, question: EntityQuestion) -> tuple[np.ndarray, str]:
        if self.fallback == "dense":
            vector = self.index.embedder.encode([question.text], is_query=True)[0]
            return (self.index.passage_vectors @ vector).astype(np.float64), "dense_fallback"
        first = self._articles[1] if self.questions.is_kb else np.ones(len(self.index.ids), dtype=bool)
        return np.where(first, 0.0, -1.0), question.branch

    def _passages(self, logits: torch.Tensor, question: EntityQuestion) -> np.ndarray:
        """Return the scores of passages from the logits of entities. Shape (num_passages,), float64."""
        if self.questions.is_kb:
            chances = _chances(logits)
            chances[list(question.seeds)] = 0.0
            about, first = self._articles
            return np.where(about >= 0, chances[about], 0.0) - ~first
        with torch.no_grad():
            return rank_passages(self.ranker, logits[:, None], self._incidence)[:, 0].double().numpy()

    def best_entity(self, text: str, passage: int) -> int:
        """Return the best entity of a passage for a question, -1 where the passage has none."""
        lists = self.questions.graph.entity_passages
        inside = np.repeat(np.arange(len(lists)), lists.sizes)[lists.values == passage]
        return int(inside[np.argmax(self.score(text)[0][inside])]) if len(inside) else -1

    def _cut(self, question: EntityQuestion) -> Subgraph:
        return self.near.cut(question, self.index.embedder.encode([question.text], is_query=True)[0])

    def _logits(self, question: EntityQuestion) -> torch.Tensor:
        """Return (num_entities,) CPU logits; entities outside of the question's neighbourhood last."""
        part = self._cut(question)
        with torch.no_grad():
            inside = self.model(join([part]).to(self.device)).cpu()
        return whole_logits(inside, part.nodes, self.questions.graph.num_entities)[:, 0]

    def paths(self, text: str, entity: int, top_k: int = 3) -> list[PathText]:
        """Return the paths that the score of an entity leans on, best first."""
        part, graph = self._cut(self.questions.find(text)), self.questions.graph
        return path_texts(self.model, part, part.nodes == entity, graph.entities.__getitem__, graph.relations, top_k)


def _chances(logits: torch.Tensor) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-logits.double().numpy()))


def make_scorer(
    index: Index, checkpoint: Checkpoint, passages: int | None, device: str
) -> PassageScorer | EntityScorer:
    """Return the scorer that a network's mode asks for. Raises ConfigError where the index does not suit it."""
    if checkpoint.model.config.mode == "entity":
        return EntityScorer(index, checkpoint, device)
    if index.config.extract.method == "kb" or not index.config.gnn.structure:
        raise ConfigError(
            "this checkpoint scores passages (mode 'node'), and the index holds facts alone: use one of mode 'entity', "
            "or an index with index.gnn.structure=true"
        )
    return PassageScorer(index, checkpoint, passages, device)
