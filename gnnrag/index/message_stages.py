"""Stages that embed phrases, sentences, entities and relations, and build the message-passing graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnrag import arrays
from gnnrag.config import IndexConfig
from gnnrag.errors import ConfigError, DataError
from gnnrag.extract.base import Extraction
from gnnrag.graphs.messages import Fact, Grounding, MentionTable, MessageGraph, corpus_graph, fact_graph
from gnnrag.index.stages import Context, Stage, StringVectors
from gnnrag.io import digest
from gnnrag.text.normalise import phrase_key


class PhraseVectorStage(StringVectors):
    """A vector per phrase node."""

    name, needs, what = "phrase_vectors", ("hierarchy",), "phrases"


class SentenceVectorStage(StringVectors):
    """A vector per sentence node."""

    name, needs, what = "sentence_vectors", ("hierarchy",), "sentences"


@dataclass(frozen=True)
class MessageKnowledge:
    """A message graph with what its edges rest on."""

    graph: MessageGraph
    grounding: Grounding | None  # mentions behind edges; None for a graph of facts alone


class MessageGraphStage(Stage):
    """The message graph: structure of a corpus, facts, or both."""

    name = "message_graph"
    needs = ("hierarchy", "extraction", "entity_graph")
    sections = ("gnn",)
    version = 3

    def needs_for(self, config: IndexConfig) -> tuple[str, ...]:
        """Facts need extraction, synonyms the entity graph, structure the hierarchy graph; see `MessageConfig`."""
        needs = ["hierarchy"] if has_structure(config) else []
        needs += ["extraction"] if wanted_facts(config) != "none" else []
        return (*needs, "entity_graph") if config.gnn.synonyms else (*needs, "passages") if not needs else tuple(needs)

    def settings(self, context: Context) -> Any:
        config = context.config
        titles = digest([p.title for p in context.passages])  # the hierarchy graph knows no titles
        return [wanted_facts(config), has_structure(config), config.gnn.synonyms, titles]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        facts = _facts(context)
        similar = _similar(context) if context.config.gnn.synonyms else []
        grounding: Grounding | None = None
        if has_structure(context.config):
            from gnnrag.graphs.titles import TitleMatcher, build_titles

            hierarchy, titles = context.read("hierarchy"), [p.title for p in context.passages]
            matcher = TitleMatcher(hierarchy, build_titles(hierarchy, titles))
            graph, grounding = corpus_graph(hierarchy, titles, matcher, facts, similar)
        else:
            is_kb = context.config.extract.method == "kb"
            graph = fact_graph(facts, str if is_kb else phrase_key, similar)

        arrays.save(folder, "graph", graph)
        if grounding is not None:
            arrays.save(folder, "grounding", grounding)
            arrays.save(folder, "mentions", grounding.mentions)
        counts = {"entities": graph.num_entities, "passages": graph.num_passages, "sentences": graph.num_sentences}
        return {**counts, "relations": graph.num_relations, "triples": len(graph.triples)}

    def load(self, folder: Path, index: Any) -> MessageKnowledge:
        """Return the graph."""
        graph, grounding = arrays.load(folder, "graph", MessageGraph), None
        if (folder / "mentions.npz").is_file():
            mentions = arrays.load(folder, "mentions", MentionTable)
            grounding = arrays.load(folder, "grounding", Grounding, mentions=mentions)
        return MessageKnowledge(graph, grounding)


class EntityVectorStage(StringVectors):
    """A vector per entity of the message graph."""

    name, needs, what = "entity_vectors", ("message_graph",), "entities"

    def strings(self, context: Context) -> Sequence[str]:
        return context.read("message_graph").graph.entities


class RelationVectorStage(StringVectors):
    """A vector per relation of the message graph, and per inverse: of `inverse_` + text."""

    name, needs, what = "relation_vectors", ("message_graph",), "relations"

    def strings(self, context: Context) -> Sequence[str]:
        texts = context.read("message_graph").graph.relations
        return [*texts, *(f"inverse_{text}" for text in texts)]


def wanted_facts(config: IndexConfig) -> str:
    """Return which facts the graph has: `index.gnn.facts`, or where that is `auto`, what the index's triples are.

    Raises ConfigError for triples that rules made: their relations are sentences, of which no two are alike.
    """
    facts, method = config.gnn.facts, config.extract.method
    if facts == "auto":
        return "none" if method == "offline" else "triples"
    if facts == "triples" and method == "offline":
        raise ConfigError(f"index.gnn.facts={facts} does not go with index.extract.method={method}: give none or auto")
    return facts


def has_structure(config: IndexConfig) -> bool:
    """Tell whether passages and sentences are nodes: as `index.gnn.structure` says, but never for a knowledge base."""
    return config.gnn.structure and config.extract.method != "kb"


def _facts(context: Context) -> list[tuple[Fact, ...]]:
    wanted = wanted_facts(context.config)
    if wanted == "none":
        if not has_structure(context.config):
            raise ConfigError("index.gnn.structure=false index.gnn.facts=none: nothing would be in the graph")
        return []
    extractions: list[Extraction] = context.read("extraction")
    facts = [passage.as_triples() for passage in extractions]
    if not any(facts):
        raise DataError(context.index.root, f"no passage has triples; index.gnn.facts={wanted} needs some")
    return facts


def _similar(context: Context) -> list[tuple[str, str]]:
    graph = context.read("entity_graph").graph
    pairs = (graph.synonyms.min(axis=1), graph.synonyms.max(axis=1)) if len(graph.synonyms) else ((), ())
    return [(graph.entities[one], graph.entities[other]) for one, other in zip(*pairs, strict=True)]
