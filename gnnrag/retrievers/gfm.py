"""Retrieval by a trained graph network: GFM-RAG (arXiv 2502.01113), and with passages as nodes, as in G-reasoner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from scipy.special import expit

from gnnrag.datasets.kgqa import ARROW, BACK
from gnnrag.devices import device_named
from gnnrag.errors import ConfigError
from gnnrag.gnn import NODE_STAGES, entity_stages
from gnnrag.graphs.messages import MessageGraph
from gnnrag.io import read_record
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, any_of, best_positions, rank_hits, rank_passages
from gnnrag.types import Channel, Hit, Query, Ranking

if TYPE_CHECKING:
    from gnnrag.gnn.edges import Subgraph


@part("retriever", "gfm")
class GFMRetriever(Retriever):
    """Scores passages or entities by message passing from the names in the question.

    A network of mode `node` scores the passages of a subgraph that is cut out for each question; the others follow by
    dense and lexical search. A network of mode `entity` scores all entities of the graph of facts. Its ranker turns
    them into passage scores; in a knowledge base the passages are the entities' articles. Its channel `graph` gives the
    entities whose probability reaches the threshold, without those that the question names. With `mass` and `paths`
    that channel is GNN-RAG's (Mavromatis and Karypis, arXiv 2405.20139): the best candidates, and paths to each.

    No checkpoint is shipped: none beats `walk`, which scores the same graph by a formula. ConfigError: no checkpoint,
    or the index does not suit it; ArtefactError: a damaged checkpoint, or one trained with another embedder.
    """

    checkpoint: str | None = None  # folder that training wrote (gnn.checkpoint)
    threshold: float | None = None  # graph channel: least probability of an entity; null: as learned on validation
    # graph channel, instead of a threshold: the fewest best entities with this share of a softmax over the graph
    mass: Annotated[float, Gt(0), Le(1)] | None = None
    # graph channel: a hit's text is at most this many shortest paths from each seed of the question; 0: its name
    paths: Annotated[int, Ge(0)] = 0
    device: str = "auto"  # where the network runs: a GPU where there is one; cpu, cuda, cuda:1, ...

    @cached_property
    def folder(self) -> Path:
        """The folder of the checkpoint: as given, or `best` in that of a training run."""
        if not self.checkpoint:
            raise ConfigError(
                "retriever=gfm needs gnn.checkpoint=DIR of `gnnrag train gnn CONFIG`; retriever=walk needs no training"
            )
        for path in (Path(self.checkpoint), Path(self.checkpoint) / "best"):
            if (path / "config.json").is_file():
                return path
        advice = "give the folder of a training that has ended; after cross=true, the folder of one fold"
        raise ConfigError(f"gnn.checkpoint={self.checkpoint!r}: no checkpoint there; {advice}")

    @cached_property
    def _record(self) -> dict[str, Any]:
        """Settings of the network and facts of its training, as the checkpoint records them."""
        return read_record(self.folder / "config.json", {"network": dict, "facts": dict}, "give another gnn.checkpoint")

    is_entity = property(lambda self: bool(self.checkpoint) and self._record["network"].get("mode") == "entity")
    checkpoints = property(lambda self: (self.folder,))

    @property
    def channels(self) -> frozenset[Channel]:  # type: ignore[override]
        """A network of mode `entity` searches the graph, too."""
        return frozenset({"text", "graph"}) if self.is_entity else frozenset({"text"})

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        network, facts = self._record["network"], self._record["facts"]
        links = entity_stages(bool(network.get("link_vectors")), facts.get("fallback", "none"))
        return links if self.is_entity else NODE_STAGES

    def setup(self) -> None:
        from gnnrag.gnn.checkpoint import load_checkpoint  # torch: only runs of this retriever pay for it
        from gnnrag.gnn.scoring import EntityScorer, PassageScorer
        from gnnrag.index.embedder import encoder_record

        checkpoint = load_checkpoint(self.folder, {"encoder": encoder_record(self.index.embedder)})
        device = str(device_named(self.device, "retriever.device"))
        self.scorer: Any = (EntityScorer if self.is_entity else PassageScorer)(self.index, checkpoint, device)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        if queries:
            self.index.embedder.encode([query.text for query in queries], is_query=True)  # in one go; it is kept
        return [self._graph(query) if query.channel == "graph" else self._text(query) for query in queries]

    def _text(self, query: Query) -> Ranking:
        mask = self.mask(query)
        scores, branch = self.scorer.passage_scores(query.text, query.seeds, mask)
        return rank_passages(scores, self.index.ids, query.top_k, _branch(branch), mask=mask)

    def _graph(self, query: Query) -> Ranking:
        """Rank the entities that reach the threshold, at least one; none if the question has no seed."""
        graph, hits, mask = self.scorer.questions.graph, [], self.mask(query)
        logits, question, subgraph = self.scorer.score(query.text, query.seeds, mask)
        probabilities = expit(logits)
        probabilities[list(question.seeds)] = -1.0  # a question does not ask for what it names
        if mask is not None:
            probabilities = np.where(any_of(graph.entity_passages, mask), probabilities, -1.0)
        if self.mass is not None and subgraph is not None:
            falling = np.sort(logits[subgraph.nodes[probabilities[subgraph.nodes] >= 0]])[::-1]
            falling = np.exp(falling - falling.max(initial=-np.inf))  # softmax but for its sum
            count = int((falling.cumsum() - falling < self.mass * falling.sum()).sum())
        else:
            least = self.scorer.threshold if self.threshold is None else self.threshold
            count = max(int((probabilities >= least).sum()), 1)
        count = count if question.seeds and (probabilities >= 0).any() else 0
        best = best_positions(probabilities, min(query.top_k, count)).tolist()
        shortest = ShortestPaths(subgraph, graph, question.seeds, self.paths) if self.paths and subgraph else None
        for rank, entity in enumerate(best, start=1):
            name = graph.entities[entity]
            stated = [p for p in graph.entity_passages[entity].tolist() if mask is None or mask[p]][:3]
            sources = (name,) if name in self.index.position else tuple(self.index.ids[p] for p in stated)
            text = shortest.text(name) if shortest else name
            hits.append(Hit(name, float(probabilities[entity]), rank, "entity", text or name, sources))
        return rank_hits(hits, query.top_k, _branch(question.branch), self.passes(query))


def _branch(name: str) -> str:
    """Return the branch of a ranking: where nothing that the question names was linked, it is a fallback."""
    if name == "dense_fallback":
        return name
    return f"gnn_{name}" if name in ("given", "exact", "dense_link") else f"gnn_{name}_fallback"


class ShortestPaths:
    """The shortest paths between a question's entities and others, in what the network saw of a graph.

    GNN-RAG's evidence: a path is a line such as `Alien → directed_by → Ridley Scott ← directed_by ← Blade`, whose
    arrows point as the facts do.
    """

    def __init__(self, part: Subgraph, graph: MessageGraph, seeds: Iterable[int], most: int) -> None:
        import networkx  # only runs that ask for paths pay for it

        names, self.networkx = graph.entities, networkx
        self.seeds, self.most, self.edges = [names[seed] for seed in seeds], most, networkx.Graph()
        ends = part.nodes[np.stack([part.source, part.target], axis=1)].tolist()
        for (head, tail), relation in zip(ends, part.relations[part.relation].tolist(), strict=True):
            if relation < graph.num_relations:  # each fact is there in both directions
                self.edges.add_edge(names[head], names[tail], head=names[head], relation=graph.relations[relation])

    def text(self, name: str) -> str:
        """Return the paths to an entity, at most `most` from each of the question's; empty where there is none."""
        lines: list[str] = []
        for seed in self.seeds:
            with suppress(self.networkx.NetworkXNoPath, self.networkx.NodeNotFound):
                paths = self.networkx.all_shortest_paths(self.edges, seed, name)
                lines += map(self._line, islice(paths, self.most))
        return "\n".join(lines)

    def _line(self, path: Sequence[str]) -> str:
        line = path[0]
        for a, b in pairwise(path):
            fact = self.edges.edges[a, b]
            arrow = ARROW if fact["head"] == a else BACK
            line += f"{arrow}{fact['relation']}{arrow}{b}"
        return line
