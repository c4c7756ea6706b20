"""Stages that embed phrases, sentences, entities and relations, and build the message-passing graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnrag.common.files import digest
from gnnrag.common.tables import Lists
from gnnrag.config import IndexConfig
from gnnrag.errors import ConfigError, DataError
from gnnrag.extract.base import Extraction
from gnnrag.graphs.messages import Fact, Grounding, MentionTable, MessageGraph, corpus_graph, fact_graph
from gnnrag.index.artefacts import Context, Stage, Writer, get_arrays, get_json, get_vectors, put_arrays, put_json
from gnnrag.text.normalise import phrase_key


class StringVectorStage(Stage):
    """A vector per string of another stage; those of strings seen before are kept."""

    name: ClassVar[str]
    what: ClassVar[str]  # what the strings are, for the record
    needs: ClassVar[tuple[str, ...]] = ("hierarchy",)
    sections: ClassVar[tuple[str, ...]] = ()
    version = 1

    def strings(self, context: Context) -> Sequence[str]:
        """Return the strings, in the order of the rows."""
        return getattr(context.read("hierarchy"), self.what)

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return [self.version, context.embedder().identity]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        strings = list(self.strings(context))
        keys, progress = [digest(text) for text in strings], context.progress_of(len(strings))
        vectors, computed = context.embedded(self.name, keys, lambda at: [strings[i] for i in at], progress)

        def write(folder: Path) -> dict[str, Any]:
            context.put_vectors(folder, keys, vectors.astype(np.float16))
            return {self.what: len(strings), "computed": computed}

        return write

    def load(self, folder: Path) -> np.ndarray:
        """Return (number of strings, dim) float32."""
        return get_vectors(folder / "vectors.npy").astype(np.float32)



class PhraseVectorStage(StringVectorStage):
    """A vector per phrase node."""

    name: ClassVar[str] = "phrase_vectors"
    what: ClassVar[str] = "phrases"


class SentenceVectorStage(StringVectorStage):
    """A vector per sentence node."""

    name: ClassVar[str] = "sentence_vectors"
    what: ClassVar[str] = "sentences"


@dataclass(frozen=True)
class MessageKnowledge:
    """A message graph with what its edges rest on."""

    graph: MessageGraph
    grounding: Grounding | None  # mentions behind edges; None for a graph of facts alone
    is_sentences: bool = False  # relations after the structural ones are sentences, not predicates


class MessageGraphStage(Stage):
    """The message graph: structure of a corpus, facts, or both."""

    name: ClassVar[str] = "message_graph"
    needs: ClassVar[tuple[str, ...]] = ("hierarchy", "extraction", "entity_graph")
    sections: ClassVar[tuple[str, ...]] = ("gnn",)
    version = 2

    @staticmethod
    def needs_for(config: IndexConfig) -> tuple[str, ...]:
        """Facts need extraction, synonyms the entity graph, structure the hierarchy graph; see `MessageConfig`."""
        found = ["hierarchy"] if has_structure(config) else []
        found += ["extraction"] if wanted_facts(config) != "none" else []
        return (*found, "entity_graph") if config.gnn.synonyms else (*found, "passages") if not found else tuple(found)

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        config = context.config
        titles = digest([p.title for p in context.passages])  # the hierarchy graph knows no titles
        return [self.version, wanted_facts(config), has_structure(config), config.gnn.synonyms, titles]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        facts, is_sentences = _facts(context)
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

        def write(folder: Path) -> dict[str, Any]:
            put_arrays(folder / "graph.npz", **_arrays(graph, grounding))
            stems = None if grounding is None else grounding.mentions.stems
            content = {"entities": graph.entities, "relations": graph.relations, "stems": stems}
            put_json(folder / "strings.json", {**content, "is_sentences": is_sentences})
            counts = {"entities": graph.num_entities, "passages": graph.num_passages, "sentences": graph.num_sentences}
            return {**counts, "relations": graph.num_relations, "triples": len(graph.triples)}

        return write

    def load(self, folder: Path) -> MessageKnowledge:
        """Return the graph."""
        content, a = get_json(folder / "strings.json"), get_arrays(folder / "graph.npz")
        passages, sentences = a["sizes"].tolist()
        names, relations = content["entities"], content["relations"]
        incidence = Lists(a["entity_indptr"], a["entity_passages"])
        graph = MessageGraph(names, passages, sentences, relations, a["triples"], incidence)
        grounding = None
        if content["stems"] is not None:
            places = (a[name] for name in ("starts", "lengths", "owners", "phrases"))
            mentions = MentionTable(tuple(content["stems"]), Lists(a["stem_indptr"], a["stem_ids"]), *places)
            rests = Lists(a["rest_indptr"], a["rest_mentions"])
            grounding = Grounding(mentions, rests, a["confidence"], a["rarity"])
        return MessageKnowledge(graph.check(), grounding, content["is_sentences"])


class EntityVectorStage(StringVectorStage):
    """A vector per entity of the message graph."""

    name: ClassVar[str] = "entity_vectors"
    what: ClassVar[str] = "entities"
    needs: ClassVar[tuple[str, ...]] = ("message_graph",)

    def strings(self, context: Context) -> Sequence[str]:
        """See `StringVectorStage`."""
        return context.read("message_graph").graph.entities


class RelationVectorStage(StringVectorStage):
    """A vector per relation of the message graph, and per inverse: of `inverse_` + text, or minus a sentence's."""

    name: ClassVar[str] = "relation_vectors"
    what: ClassVar[str] = "relations"
    needs: ClassVar[tuple[str, ...]] = ("message_graph",)

    def strings(self, context: Context) -> Sequence[str]:
        """See `StringVectorStage`; sentences have no inverses of their own."""
        knowledge: MessageKnowledge = context.read("message_graph")
        texts = knowledge.graph.relations
        return texts if knowledge.is_sentences else [*texts, *(f"inverse_{text}" for text in texts)]


def wanted_facts(config: IndexConfig) -> str:
    """Return which facts the graph has: `index.gnn.facts`, or where that is `auto`, what the index's triples are.

    Raises ConfigError for an unknown value, or sentences where triples come from a file or a model.
    """
    facts, method = config.gnn.facts, config.extract.method
    if facts == "auto":
        return "none" if method == "offline" else "triples"
    if (facts == "sentences") != (method == "offline") and facts != "none":
        fix = "auto" if method != "offline" else "sentences"
        raise ConfigError(f"index.gnn.facts={facts} does not go with index.extract.method={method}: give {fix} or none")
    return facts


def has_structure(config: IndexConfig) -> bool:
    """Tell whether passages and sentences are nodes: as `index.gnn.structure` says, but never for a knowledge base."""
    return config.gnn.structure and config.extract.method != "kb"


def _facts(context: Context) -> tuple[list[tuple[Fact, ...]], bool]:
    wanted = wanted_facts(context.config)
    if wanted == "none":
        if not has_structure(context.config):
            raise ConfigError("index.gnn.structure=false index.gnn.facts=none: nothing would be in the graph")
        return [], False
    found: list[Extraction] = context.read("extraction")
    facts = [passage.as_triples() for passage in found]
    if not any(facts):
        raise DataError(context.root, f"no passage has triples; index.gnn.facts={wanted} needs some")
    return facts, any(passage.is_sentences for passage in found)


def _similar(context: Context) -> list[tuple[str, str]]:
    graph = context.read("entity_graph").graph
    pairs = (graph.synonyms.min(axis=1), graph.synonyms.max(axis=1)) if len(graph.synonyms) else ((), ())
    return [(graph.entities[one], graph.entities[other]) for one, other in zip(*pairs, strict=True)]


def _arrays(graph: MessageGraph, grounding: Grounding | None) -> dict[str, np.ndarray]:
    arrays = {
        "sizes": np.array([graph.num_passages, graph.num_sentences], dtype=np.int64),
        "triples": graph.triples,
        "entity_indptr": graph.entity_passages.indptr,
        "entity_passages": graph.entity_passages.values,
    }
    if grounding is None:
        return arrays
    mentions, rests = grounding.mentions, grounding.triple_mentions
    return {
        **arrays,
        "stem_indptr": mentions.sentence_stems.indptr,
        "stem_ids": mentions.sentence_stems.values,
        "rest_indptr": rests.indptr,
        "rest_mentions": rests.values,
        "confidence": grounding.confidence,
        "rarity": grounding.rarity,
        **{name: getattr(mentions, name) for name in ("starts", "lengths", "owners", "phrases")},
    }
