"""Stage 1: knowledge-graph completion. The graphs' own triples teach the network, without any question (GFM-RAG)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.errors import ConfigError
from gnnrag.gnn.losses import completion_loss
from gnnrag.gnn.model import QueryGNN, with_index
from gnnrag.gnn.sampling import Draws, TripleQuery, TripleTable
from gnnrag.gnn.subgraph import GraphBatch
from gnnrag.graphs.messages import MessageGraph

QUERIES, HITS = ("question", "relation"), (1, 3, 10)


@dataclass
class CompletionConfig:
    """Stage 1: completing triples, GFM-RAG's unsupervised pre-training."""

    negatives: int = 64  # of each triple
    temperature: float = 1.0  # of the softmax that weighs them; 0: all weigh the same
    query: str = "question"  # which map reads the relation's text: question, or relation as in the first release
    one_hop: bool = False  # hide every edge between the two ends, not only the triple's
    triples: int = 500  # of each graph that are evaluated, both directions, against all nodes


@dataclass(frozen=True)
class Item:
    """One query of a batch, with the edges that are hidden from the whole batch: positions in `graph.edges`."""

    graph: str
    query: TripleQuery
    hidden: np.ndarray


class CompletionTask:
    """Trains on incomplete triples of several graphs; a batch comes from one of them (`Draws(together=True)`).

    Evaluation is filtered and against all nodes; only the triples of the batch that is asked are hidden. `bases` are
    made by `whole_graph`; `seed` draws negatives and evaluated triples. ConfigError for an unknown query map.
    """

    metric = "mrr"

    def __init__(
        self,
        graphs: Mapping[str, MessageGraph],
        bases: Mapping[str, GraphBatch],
        config: CompletionConfig,
        draws: Draws,
        save: Callable[[nn.Module, Path, Mapping[str, Any]], None],
        seed: int = 0,
    ) -> None:
        if config.query not in QUERIES:
            raise ConfigError(f"completion.query={config.query!r}: allowed are {', '.join(QUERIES)}")
        self.tables = {name: TripleTable(graph) for name, graph in graphs.items()}
        self.bases, self.config, self.draws, self.save, self.seed = dict(bases), config, draws, save, seed

    def batch(self, step: int) -> list[Item]:
        """Return the queries of a step: the first half has lost its tails, the second half its heads."""
        rng = np.random.default_rng([self.seed, step])
        places = self.draws[step]
        name = places[0][0]
        queries = [self._query(name, i, 2 * n >= len(places), rng) for n, (_, i) in enumerate(places)]
        hidden = self.tables[name].hidden(queries, self.config.one_hop)
        return [Item(name, query, hidden) for query in queries]

    def _query(self, name: str, triple: int, lost_head: bool, rng: np.random.Generator) -> TripleQuery:
        """Make the query of a triple, or of the next one that has negatives."""
        table = self.tables[name]
        count = len(table.graph.triples)
        for offset in range(count):
            if query := table.complete((triple + offset) % count, lost_head, self.config.negatives, rng):
                return query
        raise ConfigError(f"graph {name!r}: every node answers every triple; there is nothing to learn from it")

    def loss(self, model: nn.Module, items: Sequence[Item], device: torch.device) -> Tensor:
        """Return one loss for each query."""
        logits = self._logits(model, items, device)
        rows = np.stack([np.concatenate([[item.query.tail], item.query.negatives]) for item in items])
        scores = logits.T.gather(1, torch.from_numpy(rows).to(device))
        return completion_loss(scores, self.config.temperature, reduce=False)

    def _logits(self, model: nn.Module, items: Sequence[Item], device: torch.device) -> Tensor:
        """Return the scores of all nodes. Shape (N, len(items))."""
        base = self.bases[items[0].graph].to(device)
        seeds = torch.zeros(base.num_nodes, len(items), device=device)
        for column, item in enumerate(items):
            seeds[item.query.head, column] = 1.0
        weights = torch.ones(len(base.source), device=device)
        weights[torch.from_numpy(items[0].hidden).to(device)] = 0.0
        vectors = base.relation_vectors[[item.query.relation for item in items]]
        features = None if base.features is None else base.features.expand(-1, len(items), -1)
        batch = replace(base, seeds=seeds, edge_weights=weights, questions=vectors, features=features)
        if self.config.query == "question":
            return model(batch)
        bare: Any = getattr(model, "module", model)
        return model(batch, query=bare.rel_mlp(vectors))

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> dict[str, dict[str, float]]:
        """Return rank, MRR and hits of each evaluated query."""
        rows = {}
        for items in self._evaluated()[part]:
            with torch.inference_mode():
                logits = self._logits(model, items, device).float().cpu().numpy()
            for column, item in enumerate(items):
                known = self.tables[item.graph].tails(item.query.head, item.query.relation)
                place = rank_of(logits[:, column], item.query.tail, known)
                name = f"{item.graph}/{item.query.triple}/{item.query.head}"
                hits = {f"hits@{k}": float(place <= k) for k in HITS}
                rows[name] = {"mrr": 1.0 / place, "mr": float(place), **hits}
        return rows

    def _evaluated(self, size: int = 8) -> list[list[Item]]:
        """Return the queries that are evaluated, in batches that do not depend on the number of processes."""
        batches = []
        for name, table in self.tables.items():
            rng = np.random.default_rng([self.seed, 1])
            count = min(self.config.triples, len(table.graph.triples))
            chosen = rng.choice(len(table.graph.triples), size=count, replace=False)
            found = [table.complete(int(t), lost, 0, rng) for t in chosen for lost in (False, True)]
            queries = [query for query in found if query is not None]
            for start in range(0, len(queries), size):
                mine = queries[start : start + size]
                hidden = table.hidden(mine, self.config.one_hop)
                batches.append([Item(name, query, hidden) for query in mine])
        return batches


def rank_of(scores: np.ndarray, tail: int, known: np.ndarray) -> int:
    """Return the filtered rank of `tail` by (N,) scores: 1 + the nodes outside `known` that score at least as much."""
    others = np.ones(len(scores), dtype=bool)
    others[known] = False
    others[tail] = False
    return 1 + int((scores[others] >= scores[tail]).sum())


def whole_graph(graph: MessageGraph, relation_vectors: np.ndarray, model: QueryGNN) -> GraphBatch:
    """Return a graph as a sorted batch without questions, its features zero; `relation_vectors` are (2R, F)."""
    source, relation, target = (torch.from_numpy(part) for part in graph.edges)
    vectors = torch.from_numpy(np.ascontiguousarray(relation_vectors, dtype=np.float32))
    nodes, edges = len(model.config.features), len(model.config.edge_features)
    return with_index(
        GraphBatch(
            source,
            relation,
            target,
            graph.num_nodes,
            vectors,
            questions=torch.zeros(0, vectors.shape[1]),
            seeds=torch.zeros(graph.num_nodes, 1),
            features=torch.zeros(graph.num_nodes, 1, nodes) if nodes else None,
            edge_features=torch.zeros(len(source), edges) if edges else None,
        )
    )
