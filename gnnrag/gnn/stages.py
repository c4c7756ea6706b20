"""The two training stages, graph completion and supervised retrieval, and their losses (GFM-RAG, arXiv 2502.01113).

All of them compare scores within a question, and take them flat with the question of each: one code for both layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.utils import scatter, softmax

from gnnrag.gnn import LossConfig
from gnnrag.gnn.edges import GraphBatch, join
from gnnrag.gnn.examples import EntitySet, ExampleSet
from gnnrag.gnn.model import QueryGNN
from gnnrag.graphs.messages import MessageGraph

_EPSILON = 1e-5
HITS = (1, 3, 10)


@dataclass(frozen=True)
class Candidates:
    """Scores of all questions, flat."""

    logits: Tensor  # (M,) float32 or float64
    positive: Tensor  # (M,) bool
    question: Tensor  # (M,) int64
    num_questions: int  # Q
    chosen: Tensor  # (N, B) bool, where the scores came from

    @classmethod
    def of(
        cls,
        logits: Tensor,
        targets: Tensor,
        owner: Tensor | None = None,
        among: Tensor | None = None,
        questions: int | None = None,
    ) -> Candidates:
        """Lay out (N, B) logits and targets; in the blocks layout B = 1, and `owner` (N,) gives the question.

        `among`, (N, 1) bool, are the nodes that are candidates, None for all; `questions` counts them in the blocks
        layout, where the last may have no nodes.
        """
        columns = torch.arange(logits.shape[1], device=logits.device)
        question = columns.expand_as(logits) if owner is None else owner[:, None]
        count = logits.shape[1] if owner is None else questions or int(owner.max()) + 1
        chosen = torch.ones_like(logits, dtype=torch.bool) if among is None else among.expand_as(logits)
        values = logits[chosen]
        values = values if values.dtype == torch.float64 else values.float()
        return cls(values, targets[chosen] > 0, question[chosen], count, chosen)

    def total(self, values: Tensor, rows: Tensor | None = None, reduce: str = "sum") -> Tensor:
        """Reduce values of some candidates, (M,) bool `rows`, within each question; 0 where it has none. Shape (Q,)."""
        question = self.question if rows is None else self.question[rows]
        return scatter(values, question, 0, self.num_questions, reduce)


# All losses return one value for each question, (Q,): 0 for one without what they compare.
def retrieval_loss(candidates: Candidates, config: LossConfig) -> Tensor:
    loss = candidates.logits.new_zeros(candidates.num_questions)
    if config.bce:
        loss = loss + config.bce * weighted_bce(candidates, config.temperature)
    if config.listwise:
        loss = loss + config.listwise * listwise_loss(candidates)
    if config.softmax:
        loss = loss + config.softmax * softmax_loss(candidates)
    return loss


def weighted_bce(candidates: Candidates, temperature: float) -> Tensor:
    """Return binary cross-entropy in which the positives of a question weigh 1 together, and so do its negatives.

    Negatives weigh by a detached softmax of their logits (self-adversarial sampling, RotatE, arXiv 1902.10197, eq. 5):
    hard ones weigh more the lower the temperature is; at 0 all weigh the same.
    """
    c, positive, negative = candidates, candidates.positive, ~candidates.positive
    loss = functional.binary_cross_entropy_with_logits(c.logits, positive.to(c.logits.dtype), reduction="none")
    hardness = c.logits.detach()[negative] / temperature if temperature > 0 else torch.zeros_like(c.logits[negative])
    weights = softmax(hardness, c.question[negative], num_nodes=c.num_questions)
    parts = c.total(loss[positive], positive, "mean") + c.total(weights * loss[negative], negative)
    kinds = (c.total(positive.to(loss.dtype)) > 0).int() + (c.total(negative.to(loss.dtype)) > 0).int()
    return parts / kinds.clamp(min=1)


def listwise_loss(candidates: Candidates) -> Tensor:
    """Return the mean cross-entropy of each target's share of the summed probabilities."""
    c = candidates
    probability = c.logits.sigmoid()
    share = probability / (c.total(probability)[c.question] + _EPSILON)
    return c.total(-(share[c.positive] + _EPSILON).log(), c.positive, "mean")


def softmax_loss(candidates: Candidates) -> Tensor:
    """Return the mean cross-entropy of each target's share of the softmax."""
    c = candidates
    top = c.total(c.logits.detach(), reduce="max")
    norm = c.total((c.logits - top[c.question]).exp()).log() + top
    return c.total((norm[c.question] - c.logits)[c.positive], c.positive, "mean")


# ------------------------------------------------------------------------------------------------ stage 1: completion
@dataclass
class CompletionConfig:
    """Stage 1: completing triples, GFM-RAG's unsupervised pre-training."""

    negatives: Annotated[int, Ge(1)] = 64  # of each triple
    temperature: Annotated[float, Ge(0)] = 1.0  # of the softmax that weighs them; 0: all weigh the same
    # which map reads the relation's text: question, or relation as in the first release
    query: Literal["question", "relation"] = "question"
    triples: Annotated[int, Ge(0)] = 500  # of each graph that are evaluated, both directions, against all nodes


@dataclass(frozen=True)
class TripleQuery:
    """An incomplete triple (head, relation, ?) in tail form: a lost head is the tail of the inverse relation."""

    triple: int  # row in the graph's `triples`
    head: int
    relation: int  # inverses are offset by the number of relations
    tail: int
    negatives: np.ndarray  # (n,) int64 nodes that no known triple makes an answer


class TripleTable:
    """The triples of a graph, without duplicates, with known answers, negatives, and edges that give answers away."""

    def __init__(self, graph: MessageGraph) -> None:
        self.graph = graph
        source, relation, target = graph.edges
        self._keys = source * (2 * graph.num_relations) + relation
        self._order = np.lexsort((target, self._keys))
        self._keys, self._tails = self._keys[self._order], target[self._order]

    def tails(self, head: int, relation: int) -> np.ndarray:
        """Return the known answers of (head, relation, ?), ascending and distinct."""
        key = head * (2 * self.graph.num_relations) + relation
        low, high = np.searchsorted(self._keys, [key, key + 1])
        return np.unique(self._tails[low:high])

    def complete(self, triple: int, lost_head: bool, count: int, rng: np.random.Generator) -> TripleQuery:
        """Make a query of a triple, negatives drawn with replacement."""
        head, relation, tail = self.graph.triples[triple].astype(np.int64).tolist()
        if lost_head:
            head, relation, tail = tail, relation + self.graph.num_relations, head
        known = self.tails(head, relation)
        left = self.graph.num_nodes - len(known)
        # The k-th node that is not known: k plus the known ones at or before it.
        ranks = np.floor(rng.random(count) * left).astype(np.int64)
        negatives = ranks + np.searchsorted(known - np.arange(len(known)), ranks, side="right")
        return TripleQuery(triple, head, relation, tail, negatives)

    def hidden(self, queries: Sequence[TripleQuery]) -> np.ndarray:
        """Return ascending positions in `graph.edges` of the triples, both ways."""
        number = len(self.graph.triples)
        return np.unique(np.array([row for q in queries for row in (q.triple, q.triple + number)], dtype=np.int64))


class CompletionTask:
    """Trains on incomplete triples of several graphs; all items of a batch are of one of them.

    Evaluation is filtered and against all nodes; only the triples of the batch that is asked are hidden. `bases` are
    made by `whole_graph`; `seed` draws the evaluated triples.
    """

    def __init__(
        self,
        graphs: Mapping[str, MessageGraph],
        bases: Mapping[str, GraphBatch],
        config: CompletionConfig,
        seed: int = 0,
    ) -> None:
        self.tables = {name: TripleTable(graph) for name, graph in graphs.items()}
        self.bases, self.config, self.seed = dict(bases), config, seed

    def queries(self, items: Sequence[Any]) -> list[TripleQuery]:
        """Return the queries of a batch: every other one has lost its head, the rest their tails."""
        table, count = self.tables[items[0].set], self.config.negatives
        return [table.complete(item.example, n % 2 == 1, count, item.rng) for n, item in enumerate(items)]

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return one loss for each item, a row of its graph's triples."""
        return self.losses(model, items[0].set, self.queries(items), device)

    def losses(self, model: nn.Module, graph: str, queries: Sequence[TripleQuery], device: torch.device) -> Tensor:
        logits = self.logits(model, graph, queries, device)
        rows = np.stack([np.concatenate([[query.tail], query.negatives]) for query in queries])
        scores = logits.T.gather(1, torch.from_numpy(rows).to(device))
        targets = torch.zeros_like(scores.T)
        targets[0] = 1
        return weighted_bce(Candidates.of(scores.T, targets), self.config.temperature)

    def logits(self, model: nn.Module, graph: str, queries: Sequence[TripleQuery], device: torch.device) -> Tensor:
        """Return the scores of all nodes, with the triples of all queries hidden. Shape (N, len(queries))."""
        base = self.bases[graph].to(device)
        seeds = torch.zeros(base.num_nodes, len(queries), device=device)
        for column, query in enumerate(queries):
            seeds[query.head, column] = 1.0
        is_kept = torch.ones(len(base.source), dtype=torch.bool, device=device)
        is_kept[torch.from_numpy(self.tables[graph].hidden(queries)).to(device)] = False
        edges = {name: getattr(base, name)[is_kept] for name in ("source", "relation", "target")}
        vectors = base.relation_vectors[[query.relation for query in queries]]
        features = None if base.features is None else base.features.expand(-1, len(queries), -1)
        batch = replace(base, seeds=seeds, questions=vectors, features=features, **edges)
        if self.config.query == "question":
            return model(batch)
        bare: Any = getattr(model, "module", model)
        return model(batch, query=bare.rel_mlp(vectors))

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> dict[str, dict[str, float]]:
        rows = {}
        for graph, queries in self._evaluated()[part]:
            with torch.inference_mode():
                logits = self.logits(model, graph, queries, device).float().cpu().numpy()
            for column, query in enumerate(queries):
                known = self.tables[graph].tails(query.head, query.relation)
                place = rank_of(logits[:, column], query.tail, known)
                hits = {f"hits@{k}": float(place <= k) for k in HITS}
                rows[f"{graph}/{query.triple}/{query.head}"] = {"mrr": 1.0 / place, "mr": float(place), **hits}
        return rows

    def _evaluated(self, size: int = 8) -> list[tuple[str, list[TripleQuery]]]:
        """Return the queries that are evaluated, in batches that do not depend on the number of processes."""
        batches = []
        for name, table in self.tables.items():
            rng = np.random.default_rng([self.seed, 1])
            count = min(self.config.triples, len(table.graph.triples))
            chosen = rng.choice(len(table.graph.triples), size=count, replace=False)
            queries = [table.complete(int(t), lost, 0, rng) for t in chosen for lost in (False, True)]
            batches += [(name, queries[start : start + size]) for start in range(0, len(queries), size)]
        return batches


def rank_of(scores: np.ndarray, tail: int, known: np.ndarray) -> int:
    """Return the filtered rank of `tail` by (N,) scores: 1 + the nodes outside `known` that score at least as much."""
    others = np.ones(len(scores), dtype=bool)
    others[known] = False
    others[tail] = False
    return 1 + int((scores[others] >= scores[tail]).sum())


def whole_graph(graph: MessageGraph, relation_vectors: np.ndarray, model: QueryGNN) -> GraphBatch:
    """Return a graph as a batch without questions, its features zero; `relation_vectors` are (2R, F)."""
    source, relation, target = (torch.from_numpy(part) for part in graph.edges)
    vectors = torch.from_numpy(np.ascontiguousarray(relation_vectors, dtype=np.float32))
    width = len(model.config.features)
    return GraphBatch(
        source,
        relation,
        target,
        graph.num_nodes,
        vectors,
        questions=torch.zeros(0, vectors.shape[1]),
        seeds=torch.zeros(graph.num_nodes, 1),
        features=torch.zeros(graph.num_nodes, 1, width) if width else None,
    )


# ------------------------------------------------------------------------------------------------- stage 2: retrieval
@dataclass(frozen=True)
class Pool:
    """Examples of several sets, by name of the set: whole sets, and which items of each belong."""

    sets: Mapping[str, ExampleSet | EntitySet]
    items: Mapping[str, Sequence[int]]

    def places(self) -> list[tuple[str, int]]:
        """Return every item as set and place in `items`."""
        return [(name, i) for name, rows in self.items.items() for i in range(len(rows))]

    def rank(self, model: nn.Module, places: Sequence[tuple[str, int]], device: torch.device) -> list[dict[str, Any]]:
        """Rank the candidates of some items; one row for each, with the name of its set."""
        rows = []
        for name, items in self.items.items():
            mine = [items[i] for other, i in places if other == name]
            rows += [{"set": name, **row} for row in self.sets[name].rank(model, mine, device)]
        return rows


class RetrievalTask:
    """Trains on questions of one pool, and is validated on those of another."""

    def __init__(self, train: Pool, validation: Pool, losses: LossConfig) -> None:
        self.train, self.validation, self.losses = train, validation, losses

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return one loss for each question: 0 for one none of whose right nodes are in its subgraph."""
        examples = [self.train.sets[item.set][item.example] for item in items]
        sets = np.unique([item.set for item in items], return_inverse=True)[1].tolist()
        batch = join([example.subgraph for example in examples], sets).to(device)
        right, ranked = (
            np.concatenate(rows) for rows in zip(*((e.targets, e.candidates) for e in examples), strict=True)
        )
        targets, among = (torch.from_numpy(rows).to(device)[:, None] for rows in (right, ranked))
        logits = model(batch)
        candidates = Candidates.of(logits, targets, batch.owner, among, len(examples))
        return retrieval_loss(candidates, self.losses)

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> dict[str, dict[str, float]]:
        places = self.validation.places()[part]
        return {f"{row['set']}/{row['id']}": row["metrics"] for row in self.validation.rank(model, places, device)}
