"""Retrieval by a trained graph network: GFM-RAG (arXiv 2502.01113), and with passages as nodes, as in G-reasoner."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.devices import device_named
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.gnn import NODE_STAGES, entity_stages
from gnnrag.io import read_json
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, any_of, best_positions, rank_hits, rank_passages
from gnnrag.types import Channel, Hit, Query, Ranking


@part("retriever", "gfm")
class GFMRetriever(Retriever):
    """Scores what a question may need by message passing from what it names.

    A network of mode `node` scores the passages of a subgraph that is cut out for each question; the others follow by
    dense and lexical search. A network of mode `entity` scores all entities of the graph of facts: as hits of the
    channel `graph` those whose probability reaches the threshold, but never what the question names; as passages by its
    ranker, and of a knowledge base the articles of the entities.

    None comes with gnnrag: none beats `walk`, which reads the same graph by a formula. ConfigError: no checkpoint, or
    the index does not suit it; ArtefactError: a damaged checkpoint, or one trained with another embedder than the
    index's.
    """

    checkpoint: str | None = None  # folder that training wrote (gnn.checkpoint)
    threshold: float | None = None  # graph channel: least probability of an entity; null: as learned on validation
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
        advice = "give a folder that training wrote; of one with cross=true, one of its folds"
        raise ConfigError(f"gnn.checkpoint={self.checkpoint!r}: no checkpoint there; {advice}")

    @cached_property
    def _record(self) -> dict[str, Any]:
        """What the checkpoint says of its network and training."""
        path = self.folder / "config.json"
        try:
            record = read_json(path)
            return {"network": dict(record["network"]), "facts": dict(record["facts"])}
        except (ValueError, KeyError, TypeError) as error:
            raise ArtefactError(f"{path} is no record of a checkpoint ({error}); copy the checkpoint again") from error

    is_entity = property(lambda self: bool(self.checkpoint) and self._record["network"].get("mode") == "entity")
    checkpoints = property(lambda self: (self.folder,))

    @property
    def channels(self) -> frozenset[Channel]:  # type: ignore[override]
        """A network of mode `entity` searches the graph, too."""
        return frozenset({"text", "graph"}) if self.is_entity else frozenset({"text"})

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the network of these settings reads."""
        network, facts = self._record["network"], self._record["facts"]
        links = entity_stages(bool(network.get("link_vectors")), facts.get("fallback", "none"))
        return links if self.is_entity else NODE_STAGES

    def setup(self) -> None:
        """Open the network."""
        from gnnrag.gnn.checkpoint import load_checkpoint  # torch: only runs of this retriever pay for it
        from gnnrag.gnn.scoring import EntityScorer, PassageScorer
        from gnnrag.index.embedder import encoder_record

        checkpoint = load_checkpoint(self.folder, {"encoder": encoder_record(self.index.embedder)})
        device = str(device_named(self.device, "retriever.device"))
        self.scorer: Any = (EntityScorer if self.is_entity else PassageScorer)(self.index, checkpoint, device)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`; queries are embedded together, and scored one by one."""
        if queries:
            self.index.embedder.encode([query.text for query in queries], is_query=True)  # in one go; it is kept
        texts = [query.text for query in queries if query.channel != "graph"]
        scored = map(self.scorer.passage_scores, texts)
        return [
            self._graph(query) if query.channel == "graph" else self._text(query, *next(scored)) for query in queries
        ]

    def _text(self, query: Query, scores: np.ndarray, branch: str) -> Ranking:
        return rank_passages(scores, self.index.ids, query.top_k, _branch(branch), mask=self.mask(query))

    def _graph(self, query: Query) -> Ranking:
        """Rank the entities that answer: at least one, and all that reach the threshold; none without a start."""
        chances, question = self.scorer.score(query.text)
        chances[list(question.seeds)] = -1.0  # a question does not ask for what it names
        graph, hits, mask = self.scorer.questions.graph, [], self.mask(query)
        if mask is not None:
            chances = np.where(any_of(graph.entity_passages, mask), chances, -1.0)
        least = self.scorer.threshold if self.threshold is None else self.threshold
        count = max(int((chances >= least).sum()), 1) if question.seeds and (chances >= 0).any() else 0
        best = best_positions(chances, min(query.top_k, count)).tolist()
        for rank, entity in enumerate(best, start=1):
            name = graph.entities[entity]
            stated = [p for p in graph.entity_passages[entity].tolist() if mask is None or mask[p]][:3]
            sources = (name,) if name in self.index.position else tuple(self.index.ids[p] for p in stated)
            hits.append(Hit(name, float(chances[entity]), rank, "entity", name, sources))
        return rank_hits(hits, query.top_k, _branch(question.branch), self.passes(query))


def _branch(name: str) -> str:
    """Return the branch of a ranking: where nothing that the question names was linked, it is a fallback."""
    if name == "dense_fallback":
        return name
    return f"gnn_{name}" if name in ("exact", "dense_link") else f"gnn_{name}_fallback"
