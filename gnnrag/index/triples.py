"""Artefacts of triples: extraction, the entity graph, the knowledge graph, the message graph, and their vectors."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.config import IndexConfig
from gnnrag.errors import ConfigError, DataError, LLMError
from gnnrag.extract import make_extractor
from gnnrag.extract.base import Extraction, Extractor
from gnnrag.extract.rules import is_titled
from gnnrag.graphs.entities import EntityGraph, EntityKnowledge, build_entity_graph
from gnnrag.graphs.folding import fold
from gnnrag.graphs.knowledge import TABLES, KnowledgeGraph, KnowledgeVectors
from gnnrag.graphs.messages import Fact, MessageKnowledge, corpus_graph, fact_graph
from gnnrag.graphs.synonyms import candidate_clusters, find_synonyms, renaming
from gnnrag.index.artefacts import Counts, Work, artefact
from gnnrag.index.corpus import string_vectors
from gnnrag.index.tables import load_arrays
from gnnrag.index.work import Ask
from gnnrag.index_config import ExtractConfig
from gnnrag.io import digest
from gnnrag.roles.writers.base import CurateTask, Extracted, SummaryTask, TriplesTask
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import norm_phrase, phrase_key
from gnnrag.text.sentences import count_words

logger = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------- extraction
_GLEANING = {"openie": 0, "lightrag": 1, "hyper": 2}  # as released


def _gleaning(config: ExtractConfig) -> int:
    """Return how often the model is asked for more."""
    return _GLEANING[config.format] if config.gleaning is None or config.format == "openie" else config.gleaning


def _extractor(index: Any) -> Extractor:
    """Return the extractor; where `extract.terms` is `auto`, terms are read of passages that no titles name."""
    config = index.config.extract
    if config.terms == "auto":
        config = replace(config, terms="off" if is_titled(index.passages) else "on")
    return make_extractor(config)


def _extraction_settings(index: Any) -> Any:
    config = index.config.extract
    if config.method != "prompted":
        return _extractor(index).identity
    asked = [config.format, _gleaning(config), config.types, config.language]
    return ["prompted", *asked, index.tasks.identity("triples")]


def _extraction_row(extracted: Extracted) -> dict[str, Any] | None:
    return None if extracted.extraction is None else extracted.extraction.to_json()


def _load_extraction(index: Any, folder: Path) -> list[Extraction]:
    """Return one Extraction per passage; an empty one where nothing is known."""
    rows = index.table_of("extraction").take(load_arrays(folder / "value", list)).to_pylist()
    return [Extraction() if row is None else Extraction.from_json(json.loads(row)) for row in rows]


@artefact(
    lambda config: ("passages", "text") if config.extract.method == "offline" else ("passages",),
    uses=("extract", "writers.triples"),
    version=3,
    settings=_extraction_settings,
    load=_load_extraction,
)
def extraction(work: Work) -> tuple[list[str], Counts]:
    """Entities and triples of each passage; the value holds their keys in the table."""
    config, passages = work.config.extract, work.index.passages
    if config.method == "prompted":
        keys = [digest([passage.title, passage.text]) for passage in passages]
        types, gleaning = tuple(config.types or ()), _gleaning(config)
        items: Sequence[Any] = [TriplesTask(passage, types, config.language, gleaning) for passage in passages]
        extract: Any = Ask(work.config, "triples", _extraction_row, work.index.tasks)
        batch, max_failed = work.index.tasks.batch("triples", 16), config.max_failed
    else:
        extractor = _extractor(work.index)
        texts = work.read("text") if config.method == "offline" else [PassageText((), ())] * len(passages)
        extractor.read_corpus(passages, texts)
        items, batch, max_failed = list(zip(passages, texts, strict=True)), 1000, 1.0
        keys = [digest(extractor.key(passage, text)) for passage, text in items]

        def extract(pairs: list[Any]) -> list[Any]:
            rows = extractor.extract([passage for passage, _ in pairs], [text for _, text in pairs])
            return [None if row is None else json.dumps(row.to_json()) for row in rows]

    values, _ = work.written("extraction", work.settings, keys, items, extract, batch)

    failed = sum(value is None for value in values)
    if failed > max_failed * len(values):
        raise LLMError(
            f"extraction failed for {failed} of {len(values)} passages: the model refused them, or its replies could "
            "not be read. All others are kept, and the same command asks for these again; another model, more "
            "index.writers.triples.options.max_tokens, or a higher index.extract.max_failed "
            f"(now {max_failed:g}) helps"
        )
    if config.path and failed == len(values):
        shown = ", ".join(repr(p.id) for p in work.index.passages[:3])
        problem = f"holds no record of any passage; the passages are called {shown}, ..."
        raise DataError(config.path, f"{problem} See data/README.md for what a row must hold")
    records = [value for value in values if value is not None]
    parts = ("entities", "triples", "relations", "hyperedges")
    return keys, {
        **{name: sum(len(v.get(name, ())) for v in records) for name in parts},
        "malformed triples": sum(v["malformed"] for v in records),
        "passages without a record": failed,
        **(work.index.tasks.record("triples") if config.method == "prompted" else {}),
    }


# ------------------------------------------------------------------------------------------------------- entity graph
@artefact(("extraction",), kind=EntityKnowledge, uses=("graph", "embedder"), version=8)
def entity_graph(work: Work) -> tuple[EntityKnowledge, Counts]:
    """The entity graph, and the vectors of its strings as float16: those of strings seen before are kept."""
    config, extractions = work.config.graph, work.read("extraction")
    is_sentences = any(passage.is_sentences for passage in extractions)
    graph = build_entity_graph([passage.as_triples() for passage in extractions], config.norm)
    position: dict[str, int] = {}
    # A fact is embedded as its tuple, as released; one whose relation is a sentence without its tail.
    strings = (f"{fact[0]}: {fact[1]}" if is_sentences else str(fact) for fact in graph.facts)
    rows = [position.setdefault(string, len(position)) for string in strings]
    vectors, new = work.embed([*graph.entities, *position])
    names, statements = vectors[: graph.num_entities], vectors[graph.num_entities :]
    pairs, cosines = find_synonyms(graph.entities, names, config.synonym_threshold, config.synonym_max)
    graph = replace(graph, synonyms=pairs, similarities=cosines)
    knowledge = EntityKnowledge(
        graph, names.astype(np.float16), statements.astype(np.float16), np.array(rows, dtype=np.int32), is_sentences
    )
    counts = {"entities": graph.num_entities, "facts": len(rows), "statements": len(position)}
    spelt = {end for passage in extractions for head, _, tail in passage.as_triples() for end in (head, tail)}
    if nameless := sum(not norm_phrase(name, config.norm) for name in spelt):
        counts["names without a normal form"] = nameless
        problem = "of %d names %d have no letter that index.graph.norm=%s keeps; index.graph.norm=unicode keeps all"
        logger.warning(f"index, entity_graph: {problem}", len(spelt), nameless, config.norm)
    return knowledge, {**counts, "synonyms": len(cosines), "computed": new}


# ---------------------------------------------------------------------------------------------------- knowledge graph
def _knowledge_settings(index: Any) -> list[Any]:
    config = index.config.knowledge
    resolving = [index.embedder.identity, index.tasks.identity("curator")] if config.resolve else []
    shortening = [index.tasks.identity("summary")] if config.description_words is not None else []
    return [asdict(config), *resolving, *shortening]


@artefact(
    lambda config: ("extraction",) if config.extract.is_kb else ("extraction", "text"),
    kind=KnowledgeGraph,
    uses=("knowledge", "writers.curator", "writers.summary"),
    version=9,
    settings=_knowledge_settings,
)
def knowledge(work: Work) -> tuple[KnowledgeGraph, Counts]:
    """Entities, relations and hyperedges: a fold over what was extracted from each passage."""
    config, extractions, counts = work.config.knowledge, work.read("extraction"), Counter[str]()
    sentences = None if work.config.extract.is_kb else [text.sentences for text in work.read("text")]
    graph = fold(extractions, None, sentences)
    if config.resolve and graph.num_entities:
        graph, resolved = _resolved(work, graph, extractions, sentences)
        counts.update(resolved)
    if config.description_words is not None:
        graph, shortened = _shortened(work, graph, config.description_words)
        counts.update(shortened)
    sizes = {"entities": graph.num_entities, "relations": graph.num_relations, "hyperedges": len(graph.hyper_texts)}
    return graph, {**sizes, "isolated": int((graph.edges.degrees == 0).sum()), **counts}


def _resolved(
    work: Work, graph: KnowledgeGraph, extractions: Sequence[Extraction], sentences: Any
) -> tuple[KnowledgeGraph, Counts]:
    """Fold the extractions again, with one entity for all the names that the writer `curator` takes for one thing."""
    # A description would make anything of one topic alike.
    texts = [f"{name} ({kind})" if kind else name for name, kind in zip(graph.names, graph.types, strict=True)]
    rows, _ = work.embed(texts)
    clusters = candidate_clusters(graph, rows, work.config.knowledge.resolve_threshold)
    tasks = [
        CurateTask(tuple((graph.names[i], graph.names[i], graph.types[i], graph.descriptions[i]) for i in cluster))
        for cluster in clusters
    ]
    groups, new = _decided(work, "curator", tasks, attrgetter("groups"))
    groups = [group for cluster in groups for group in cluster]
    renamed = renaming(graph, groups)
    merged = sum(len(group) - 1 for group in groups)
    counts = {"merged": merged, "decided": new, **work.index.tasks.record("curator")}
    return fold(extractions, renamed, sentences), counts


def _shortened(work: Work, graph: KnowledgeGraph, words: int) -> tuple[KnowledgeGraph, Counts]:
    """Summarise descriptions of more than `words` words; a relation whose description is its sentence keeps it."""
    subjects = [f"{graph.names[h]} and {graph.names[t]}" for h, t in graph.ends.tolist()]
    said = list(zip(graph.names, graph.descriptions, strict=True))
    said += [(s, text if label else "") for s, label, text in zip(subjects, graph.labels, graph.texts, strict=True)]
    long = [i for i, (_, text) in enumerate(said) if count_words(text) > words]
    if not long:
        return graph, {}
    tasks = [SummaryTask(tuple(said[i][1].split("\n")), max(words // 2, 1), said[i][0]) for i in long]
    texts, (summaries, new) = [*graph.descriptions, *graph.texts], _decided(work, "summary", tasks, attrgetter("text"))
    for i, text in zip(long, summaries, strict=True):
        texts[i] = text or texts[i]
    count = graph.num_entities
    counts = {"summarised": len(long), "decided": new, **work.index.tasks.record("summary")}
    return replace(graph, descriptions=tuple(texts[:count]), texts=tuple(texts[count:])), counts


def _decided(work: Work, writer: str, tasks: Sequence[Any], encode: Callable[[Any], Any]) -> tuple[list[Any], int]:
    """Return a writer's results. Keys hash whole tasks, so that an edited index has the results of a rebuilt one."""
    keys = [digest(asdict(task)) for task in tasks]
    return work.asked(f"knowledge-{writer}", writer, (), keys, tasks, encode, 16)


@artefact(("knowledge",), kind=KnowledgeVectors, uses=("embedder",), version=2)
def knowledge_vectors(work: Work) -> tuple[KnowledgeVectors, Counts]:
    """The vectors of entities, names, relations and hyperedges; those of strings seen before are kept."""
    texts, position = work.read("knowledge").embedded_texts(), dict[str, int]()
    rows = Lists.of([[position.setdefault(t, len(position)) for t in texts[table]] for table in TABLES])
    vectors, new = work.embed(list(position))
    return KnowledgeVectors(vectors.astype(np.float16), rows), {"strings": len(position), "computed": new}


# ------------------------------------------------------------------------------------------------------ message graph
def _has_structure(config: IndexConfig) -> bool:
    """Tell whether passages and sentences are nodes: as `index.gnn.structure` says, but never for a knowledge base."""
    return config.gnn.structure and not config.extract.is_kb


def _message_inputs(config: IndexConfig) -> list[str]:
    has_facts = config.extract.method != "offline"  # relations that rules made are sentences, no two of them alike
    if not (has_facts or _has_structure(config)):
        raise ConfigError("index.gnn.structure=false needs triples: index.extract.method=offline has only sentences")
    needs = ["hierarchy", "titles"] if _has_structure(config) else ["passages"]
    needs += ["extraction"] if has_facts else []
    return [*needs, "entity_graph"] if config.gnn.synonyms else needs


@artefact(_message_inputs, kind=MessageKnowledge, uses=("gnn",), version=6)
def message_graph(work: Work) -> tuple[MessageKnowledge, Counts]:
    """The message graph: structure of a corpus, facts, or both."""
    facts, similar, grounding = list[tuple[Fact, ...]](), list[tuple[str, str]](), None
    if "extraction" in _message_inputs(work.config):
        facts = [passage.as_triples() for passage in work.read("extraction")]
        if not any(facts):
            raise DataError(work.index.root, "no passage has triples; the graph of facts needs some")
    if work.config.gnn.synonyms:
        alike: EntityGraph = work.read("entity_graph").graph
        similar = [(alike.entities[i], alike.entities[j]) for i, j in np.sort(alike.synonyms, axis=1).tolist()]
    if _has_structure(work.config):
        graph, grounding = corpus_graph(work.read("hierarchy"), work.index.titles, facts, similar)
    else:
        graph = fact_graph(facts, str if work.config.extract.is_kb else phrase_key, similar)
    counts = {"entities": graph.num_entities, "passages": graph.num_passages, "sentences": graph.num_sentences}
    counts |= {"relations": graph.num_relations, "triples": len(graph.triples)}
    return MessageKnowledge(graph, grounding), counts


@artefact(("message_graph",), kind=np.ndarray, uses=("embedder",), version=2)
def entity_vectors(work: Work) -> tuple[np.ndarray, Counts]:
    """A vector per entity of the message graph."""
    return string_vectors(work, work.read("message_graph").graph.entities, "entities")


@artefact(("message_graph",), kind=np.ndarray, uses=("embedder",), version=2)
def relation_vectors(work: Work) -> tuple[np.ndarray, Counts]:
    """A vector per relation of the message graph, and per inverse: of `inverse_` + text."""
    texts = work.read("message_graph").graph.relations
    return string_vectors(work, [*texts, *(f"inverse_{text}" for text in texts)], "relations")
