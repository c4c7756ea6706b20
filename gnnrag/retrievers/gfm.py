"""Retrieval by a trained graph network: GFM-RAG (arXiv 2502.01113), and with passages as nodes, as in G-reasoner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge

from gnnrag.common.devices import device_named
from gnnrag.common.files import child, read_json
from gnnrag.common.records import folds_advice
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.gnn import NODE_STAGES, entity_stages
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, best_positions, rank_graph, rank_passages
from gnnrag.types import Channel, Hit, Query, Ranking, Reason

SHIPPED = Path(__file__).parents[1] / "gnn" / "checkpoints" / "default"


@part("retriever", "gfm")
class GFMRetriever(Retriever):
    """Scores what a question may need by message passing from what it names.

    A network of mode `node` scores the passages of a subgraph that is cut out for each question; the others follow by
    dense and lexical search. A network of mode `entity` scores all entities of the graph of facts: as hits of the
    channel `graph` those whose probability reaches the threshold, but never what the question names; as passages by its
    ranker, and of a knowledge base the articles of the entities.

    Raises:
        ConfigError: no checkpoint, or the index does not suit it.
        ArtefactError: a damaged checkpoint, or one trained with another embedder than the index.
    """

    checkpoint: str | None = None  # folder that training wrote; null: the one that comes with gnnrag
    # mode node: passages that the network looks at; null: as in its training
    passages: Annotated[int, Ge(1)] | None = None
    threshold: float | None = None  # graph channel: least probability of an entity; null: as learned on validation
    link_vectors: bool | None = None  # mode entity: names are also linked by vectors; null: as in training
    # mode entity, without a start: dense ranks passages, or none; null: as in training
    fallback: Literal["dense", "none"] | None = None
    device: str = "auto"  # where the network runs: a GPU where there is one; cpu, cuda, cuda:1, ...
    # questions of one pass, for a GPU; with more, the last digits of a score depend on which share it
    batch: Annotated[int, Ge(1)] = 1

    explains = True

    @property
    def channels(self) -> frozenset[Channel]:  # type: ignore[override]
        """A network of mode `entity` searches the graph, too."""
        return frozenset({"text", "graph"}) if _is_entity(_record(self)) else frozenset({"text"})

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the network of these settings reads."""
        record = _record(self)
        return entity_stages(*_links(self, record)) if _is_entity(record) else NODE_STAGES

    @property
    def checkpoints(self) -> tuple[Path, ...]:  # type: ignore[override]
        """The folder of the network."""
        return (_folder(self),)

    def setup(self) -> None:
        """Open what is searched."""
        from gnnrag.gnn.checkpoint import load_checkpoint  # torch: only runs of this retriever pay for it
        from gnnrag.gnn.features import encoder_record
        from gnnrag.gnn.scoring import EntityScorer, Links, make_scorer

        folder = _folder(self)
        checkpoint = load_checkpoint(folder, {"encoder": encoder_record(self.index.embedder)})
        links = Links(*_links(self, _record(self)))
        device = str(device_named(self.device, "retriever.device"))
        self.scorer = make_scorer(self.index, checkpoint, self.passages, links, device)
        self._of_entities = self.scorer if isinstance(self.scorer, EntityScorer) else None

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`; queries are embedded together, and scored one by one or `batch` at a time."""
        if queries:
            self.index.embedder.encode([query.text for query in queries], is_query=True)  # in one go; it is kept
        texts = [query for query in queries if query.channel != "graph"]
        found = iter(self.scorer.score_all([query.text for query in texts], self.batch))
        return [
            self._graph(query) if query.channel == "graph" else self._text(query, *next(found)) for query in queries
        ]

    def _text(self, query: Query, scores: np.ndarray, branch: str) -> Ranking:
        return rank_passages(scores, self.index.ids, query.top_k, _branch(branch))

    def _graph(self, query: Query) -> Ranking:
        """Rank the entities that answer: at least one, and all that reach the threshold; none without a start."""
        scorer = self._of_entities
        assert scorer is not None
        chances, question = scorer.score(query.text)
        chances[list(question.seeds)] = -1.0  # a question does not ask for what it names
        least = scorer.threshold if self.threshold is None else self.threshold
        count = max(int((chances >= least).sum()), 1) if question.seeds else 0
        best = best_positions(chances, min(query.top_k, count)).tolist()
        hits = [self._hit(entity, float(chances[entity]), rank) for rank, entity in enumerate(best, start=1)]
        return rank_graph(hits, query.top_k, _branch(question.branch))

    def _hit(self, entity: int, score: float, rank: int) -> Hit:
        assert self._of_entities is not None
        questions = self._of_entities.questions
        name = questions.graph.entities[entity]
        own = [name] if name in self.index.position else []
        stated = questions.graph.entity_passages[entity][:3].tolist()
        return Hit(name, score, rank, "entity", name, tuple(own or [self.index.ids[p] for p in stated]))

    def explain(self, query: Query, ids: Sequence[str], top_k: int = 3) -> list[Reason]:
        """Return the best paths behind the scores of some hits: passages, or entities of the channel `graph`."""
        out = []
        for id_ in ids:
            found = self.scorer.paths(query.text, where, top_k) if (where := self._explained(query, id_)) >= 0 else []
            out += [Reason(id_, path.steps, path.score) for path in found]
        return out

    def _explained(self, query: Query, id_: str) -> int:
        """Return the passage or entity whose score stands for a hit's, by number; -1 where nothing does."""
        passage = self.index.position.get(id_, -1)
        of = self._of_entities
        if of is None:
            return passage
        entity = of.questions.graph.position.get(id_, -1)
        return of.best_entity(query.text, passage) if entity < 0 <= passage else entity


def _branch(name: str) -> str:
    """Return the branch of a ranking: where nothing that the question names was linked, it is a fallback."""
    if name == "dense_fallback":
        return name
    return f"gnn_{name}" if name in ("exact", "dense_link") else f"gnn_{name}_fallback"


def _folder(config: GFMRetriever) -> Path:
    """Return the folder of the checkpoint. Raises ConfigError where there is none."""
    folder = Path(config.checkpoint) if config.checkpoint else SHIPPED
    if (folder / "config.json").is_file():
        return folder
    if (folder / "best" / "config.json").is_file():  # a training run
        return folder / "best"
    if config.checkpoint:
        advice = folds_advice(Path(config.checkpoint), "gnn") or "give a folder that training wrote"
        raise ConfigError(f"gnn.checkpoint={config.checkpoint!r}: no checkpoint there; {advice}")
    raise ConfigError(
        "retriever=gfm: no checkpoint comes with this installation; train one with training/train_gnn.py and give its "
        "folder as gnn.checkpoint=DIR"
    )


def _record(config: GFMRetriever) -> dict[str, Any]:
    """Return the checkpoint's record, empty where none is given or shipped; ArtefactError where it is no record."""
    if not config.checkpoint and not (SHIPPED / "config.json").is_file():
        return {"network": {}, "facts": {}}
    path = _folder(config) / "config.json"
    try:
        record = read_json(child(path.parent, path.name))
        return {"network": dict(record["network"]), "facts": dict(record["facts"])}
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{path} is no record of a checkpoint ({error}); copy the checkpoint again") from error


def _is_entity(record: dict[str, Any]) -> bool:
    return bool(record["network"].get("mode") == "entity")


def _links(config: GFMRetriever, record: dict[str, Any]) -> tuple[bool, str]:
    """Return whether names are linked by vectors, and the fallback."""
    links = record["network"].get("link_vectors", False) if config.link_vectors is None else config.link_vectors
    return bool(links), config.fallback or record["facts"].get("fallback", "none")
