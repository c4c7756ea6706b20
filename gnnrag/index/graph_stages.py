"""Stages of triples: extraction, entity graph, knowledge graph, hypergraph and their vectors."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gnnrag import arrays
from gnnrag.arrays import Lists, get_lines, put_lines
from gnnrag.config import IndexConfig
from gnnrag.errors import DataError, LLMError
from gnnrag.extract import make_extractor
from gnnrag.extract.base import Extraction, Extractor
from gnnrag.extract.rules import is_titled
from gnnrag.graphs.entities import EntityGraph, Triple, build_entity_graph
from gnnrag.graphs.folding import fold
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.synonyms import find_synonyms
from gnnrag.index.curation import Curator, curation_settings
from gnnrag.index.stages import VECTORS, Context, Stage, get_vectors, table_of, unit_rows
from gnnrag.index.work import Extract
from gnnrag.io import digest
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import norm_phrase

logger = logging.getLogger(__name__)


class ExtractionStage(Stage):
    """Entities and triples of each passage."""

    name = "extraction"
    needs = ("passages", "text")
    sections = ("extract", "writers.triples")

    def needs_for(self, config: IndexConfig) -> tuple[str, ...]:
        """Only the offline extractor reads sentences and phrases."""
        return ("passages", "text") if config.extract.method == "offline" else ("passages",)

    def settings(self, context: Context) -> Any:
        return _extractor(context).identity

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        extractor = _extractor(context)
        reads_text = "text" in self.needs_for(context.config)
        texts = context.read("text") if reads_text else [PassageText((), ())] * len(context.passages)
        extractor.read_corpus(context.passages, texts)
        keys = [digest(extractor.key(p, text)) for p, text in zip(context.passages, texts, strict=True)]

        def compute(pairs: list[Any]) -> list[Any]:
            rows = extractor.extract([passage for passage, _ in pairs], [text for _, text in pairs])
            return [None if row is None else json.dumps(row.to_json()) for row in rows]

        if context.config.extract.method == "prompted":
            work: Any = Extract(context.config, "triples", Extraction.to_json, context.tasks)
            items: list[Any] = list(context.passages)
        else:
            work, items = compute, list(zip(context.passages, texts, strict=True))
        # What a model wrote is worth keeping often; what rules find, seldom.
        batch = extractor.batch_size
        values = context.computed_json(self.name, context.settings, keys, items, work, batch, progress=context.progress)

        _refuse_failures(values, extractor.max_failed)
        if context.config.extract.path and all(value is None for value in values):
            shown = ", ".join(repr(p.id) for p in context.passages[:3])
            problem = f"holds no record of any passage; the passages are called {shown}, ..."
            raise DataError(context.config.extract.path, f"{problem} See data/README.md for what a row must hold")

        put_lines(folder / "keys.jsonl", keys)
        records = [v for v in values if v is not None]
        return {
            "entities": sum(len(v["entities"]) for v in records),
            "triples": sum(len(v["triples"]) for v in records),
            **{name: n for name in ("relations", "hyperedges") if (n := sum(len(v.get(name, ())) for v in records))},
            "malformed triples": sum(v["malformed"] for v in records),
            "passages without a record": len(values) - len(records),
            **extractor.record,
        }

    def load(self, folder: Path, index: Any) -> list[Extraction]:
        """Return one Extraction per passage; an empty one where nothing is known."""
        rows = table_of(folder, index).take(get_lines(folder / "keys.jsonl")).to_pylist()
        return [Extraction() if row is None else Extraction.from_json(json.loads(row)) for row in rows]


def _extractor(context: Context) -> Extractor:
    """Return the extractor; where `extract.rules` is `auto`, terms are read of passages that no titles name."""
    config = context.config.extract
    if config.terms == "auto":
        config = replace(config, terms="off" if is_titled(context.passages) else "on")
    return make_extractor(config, lambda: context.tasks)


def _refuse_failures(values: Sequence[Any], max_failed: float) -> None:
    """Raise LLMError where too many passages have no result; those that have one are in the journal."""
    failed = sum(value is None for value in values)
    if failed > max_failed * len(values):
        raise LLMError(
            f"extraction failed for {failed} of {len(values)} passages: the model refused them, or its replies could "
            "not be read. All others are kept, and the same command asks for these again; another model, more "
            f"index.writers.triples.options.max_tokens, or a higher index.extract.max_failed (now {max_failed:g}) helps"
        )


@dataclass(frozen=True)
class EntityKnowledge:
    """An entity graph with the vectors of its strings."""

    graph: EntityGraph
    entity_vectors: np.ndarray  # (num_entities, dim) float32 unit rows
    statement_vectors: np.ndarray  # (num_statements, dim) float32 unit rows
    fact_statements: np.ndarray | None = None  # (num_facts,) rows, shared within a sentence and head; None: one each
    is_sentences: bool = False  # relations are sentences (fact_text=statement), not predicates

    @cached_property
    def statement_facts(self) -> Lists:
        """The facts of each statement, ascending."""
        facts = np.arange(len(self.graph.facts))
        of = facts if self.fact_statements is None else self.fact_statements
        return Lists.grouped(of, facts, len(self.statement_vectors))


class EntityGraphStage(Stage):
    """The entity graph, and the vectors of its strings as float16: those of strings seen before are kept."""

    name = "entity_graph"
    needs = ("extraction",)
    sections = ("graph",)
    version = 5

    def settings(self, context: Context) -> Any:
        graph = context.config.graph
        rules = [graph.norm, graph.fact_text, graph.synonym_threshold, graph.synonym_max]
        return [context.index.embedder.identity, *rules]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        config, extractions = context.config.graph, context.read("extraction")
        style = _style(config.fact_text, extractions)
        graph = build_entity_graph([passage.as_triples() for passage in extractions], config.norm)
        position: dict[str, int] = {}
        rows = [position.setdefault(fact_string(fact, style), len(position)) for fact in graph.facts]
        strings = [*graph.entities, *position]
        vectors, computed = context.embed(strings)
        halves = vectors.astype(np.float16)
        names = unit_rows(halves[: graph.num_entities])
        pairs, cosines = find_synonyms(graph.entities, names, config.synonym_threshold, config.synonym_max)
        graph = replace(graph, synonyms=pairs, similarities=cosines)

        arrays.save(folder, "graph", graph)
        arrays.save(folder, "statements", Statements(np.array(rows, dtype=np.int32), style == "statement"))
        np.save(folder / VECTORS, halves)
        counts = {"entities": graph.num_entities, "facts": len(rows), "statements": len(position)}
        spelt = {end for passage in extractions for head, _, tail in passage.as_triples() for end in (head, tail)}
        if nameless := sum(not norm_phrase(name, config.norm) for name in spelt):
            counts["names without a normal form"] = nameless
            problem = "of %d names %d have no letter that index.graph.norm=%s keeps; index.graph.norm=unicode keeps all"
            logger.warning(f"index, stage entity_graph: {problem}", len(spelt), nameless, config.norm)
        return {**counts, "synonyms": len(cosines), "computed": computed}

    def load(self, folder: Path, index: Any) -> EntityKnowledge:
        """Return the graph with its vectors."""
        graph = arrays.load(folder, "graph", EntityGraph)
        graph = replace(graph, facts=[tuple(fact) for fact in graph.facts])  # type: ignore[misc]
        statements, vectors = arrays.load(folder, "statements", Statements), unit_rows(get_vectors(folder / VECTORS))
        names, others = vectors[: graph.num_entities], vectors[graph.num_entities :]
        return EntityKnowledge(graph, names, others, statements.of_facts, statements.is_sentences)


@dataclass(frozen=True)
class Statements:
    """What is embedded of facts."""

    of_facts: np.ndarray  # (num_facts,) int32, the statement of each
    is_sentences: bool


def _style(fact_text: str, extractions: Sequence[Extraction]) -> str:
    """Return how facts are written: as the setting says, or by what the extractor's relations are."""
    if fact_text != "auto":
        return fact_text
    return "statement" if any(passage.is_sentences for passage in extractions) else "tuple"


def fact_string(fact: Triple, style: str) -> str:
    """Return what is embedded of a fact: its tuple, its words (plain), or head and sentence (statement)."""
    if style == "tuple":
        return str(fact)
    return " ".join(fact) if style == "plain" else f"{fact[0]}: {fact[1]}"


Table = Literal["entities", "names", "relations", "hyperedges"]
TABLES: tuple[Table, ...] = ("entities", "names", "relations", "hyperedges")


class KnowledgeStage(Stage):
    """Entities, relations and hyperedges: a fold over what was extracted from each passage."""

    name = "knowledge"
    needs = ("extraction",)
    sections = ("knowledge", "writers.curator", "writers.summary")
    version = 4

    def needs_for(self, config: IndexConfig) -> tuple[str, ...]:
        """Sentences are read only where they become hyperedges."""
        reads_text = config.extract.method != "kb" and config.knowledge.hyperedges in ("auto", "sentences")
        return ("extraction", "text") if reads_text else ("extraction",)

    def settings(self, context: Context) -> Any:
        knowledge = context.config.knowledge
        return [knowledge.match, knowledge.hyperedges, *curation_settings(context)]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        config, sentences = context.config.knowledge, None
        if "text" in self.needs_for(context.config):
            sentences = [text.sentences for text in context.read("text")]

        def folded(extractions: Any, renamed: Mapping[str, str]) -> KnowledgeGraph:
            return fold(extractions, config.match, config.hyperedges, sentences, renamed)

        curator = Curator(context, folded)
        graph = curator.run(context.read("extraction"))

        arrays.save(folder, "graph", graph)
        counts = {"entities": graph.num_entities, "relations": graph.num_relations}
        counts |= {"hyperedges": len(graph.hyper_texts), "isolated": int((graph.degrees == 0).sum())}
        counts |= curator.done.write(folder)
        for writer in ("curator", "summary") if curator.done.decisions else ():
            counts |= context.tasks.record(writer)
        return counts

    def load(self, folder: Path, index: Any) -> KnowledgeGraph:
        """Return the graph."""
        return arrays.load(folder, "graph", KnowledgeGraph)


@dataclass(frozen=True)
class KnowledgeVectors:
    """Vectors of the knowledge graph's texts; equal texts share one."""

    matrix: np.ndarray  # (num_strings, dim) float32 unit rows, stored as float16
    rows: dict[str, np.ndarray]  # for each table, the row of each item

    def scores(self, table: Table, vector: np.ndarray) -> np.ndarray:
        """Cosine of a query vector (dim,) and every item of a table. Shape (num_items,), float32."""
        rows = self.rows[table]
        if not len(rows):
            return np.zeros(0, dtype=np.float32)
        first, last = int(rows.min()), int(rows.max()) + 1
        return (self.matrix[first:last] @ vector)[rows - first]

    def of(self, table: Table, items: np.ndarray) -> np.ndarray:
        """Vectors of items of a table. Shape (len(items), dim), float32."""
        return self.matrix[self.rows[table][items]]


class KnowledgeVectorStage(Stage):
    """The vectors of entities, names, relations and hyperedges; those of strings seen before are kept."""

    name = "knowledge_vectors"
    needs = ("knowledge",)
    sections = ("knowledge",)
    version = 1

    def settings(self, context: Context) -> Any:
        return [context.index.embedder.identity]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        texts = table_texts(context.read("knowledge"))
        position: dict[str, int] = {}
        rows = {name: [position.setdefault(t, len(position)) for t in texts[name]] for name in TABLES}
        strings = list(position)
        vectors, computed = context.embed(strings)

        np.save(folder / VECTORS, vectors.astype(np.float16))
        of_tables: dict[str, Any] = {name: np.array(values, dtype=np.int32) for name, values in rows.items()}
        np.savez(folder / "rows.npz", **of_tables)
        return {"strings": len(strings), "computed": computed}

    def load(self, folder: Path, index: Any) -> KnowledgeVectors:
        """Return the vectors as float32."""
        with np.load(folder / "rows.npz") as rows:
            return KnowledgeVectors(get_vectors(folder / VECTORS).astype(np.float32), dict(rows))


def table_texts(graph: KnowledgeGraph) -> dict[Table, list[str]]:
    """Return what is embedded of each item.

    An entity: name and description, a line each. A relation: keywords, ends and description (LightRAG); where it has no
    description, head, predicate and tail; where the description is a sentence that joins many, its head and the
    sentence, so that relations of one sentence share a vector. A hyperedge: its sentence.
    """
    relations = []
    for i, (head, tail) in enumerate(graph.ends.tolist()):
        label, text = graph.labels[i], graph.texts[i]
        if label and text:
            relations.append(f"{label}\n{graph.names[head]}\n{graph.names[tail]}\n{text}")
        else:
            relations.append(f"{graph.names[head]}\n{text}" if text else graph.statement(i))
    described = zip(graph.names, graph.descriptions, strict=True)
    return {
        "entities": [f"{name}\n{text}" if text else name for name, text in described],
        "names": list(graph.names),
        "relations": relations,
        "hyperedges": list(graph.hyper_texts),
    }
