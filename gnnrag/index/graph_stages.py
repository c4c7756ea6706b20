"""The stages behind entity graphs: what was extracted from each passage, and the graph of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnrag.config import IndexConfig
from gnnrag.errors import ConfigError
from gnnrag.extract.base import make_extractor
from gnnrag.extract.types import Extraction
from gnnrag.files import digest
from gnnrag.graphs.entities import EntityGraph, Triple, build_entity_graph
from gnnrag.graphs.synonyms import Synonyms, find_synonyms
from gnnrag.index.stage_base import Context, Writer, embed_strings, known_records, read_records, write_records
from gnnrag.index.store import map_passages
from gnnrag.text.analyse import PassageText


class ExtractionStage:
    """Entities and triples of each passage."""

    name: ClassVar[str] = "extraction"
    needs: ClassVar[tuple[str, ...]] = ("passages", "text")
    sections: ClassVar[tuple[str, ...]] = ("extract", "writers.triples")

    @staticmethod
    def needs_for(config: IndexConfig) -> tuple[str, ...]:
        """Only the offline extractor reads sentences and phrases."""
        return ("passages", "text") if config.extract.method == "offline" else ("passages",)

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return make_extractor(context.config.extract, lambda: context.jobs).identity

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        extractor = make_extractor(context.config.extract, lambda: context.jobs)
        reads_text = "text" in self.needs_for(context.config)
        texts = context.read("text") if reads_text else [PassageText((), ())] * len(context.passages)
        hashes = [digest(extractor.key(p, text)) for p, text in zip(context.passages, texts, strict=True)]

        def compute(positions: list[int]) -> list[Any]:
            found = extractor.extract([context.passages[i] for i in positions], [texts[i] for i in positions])
            return [None if e is None else e.to_json() for e in found]

        known = known_records(context.store, self.name, settings)
        # What a model wrote is worth keeping often; what rules find, seldom.
        batch = getattr(extractor, "batch_size", 1000)
        values = map_passages(context.store, self.name, settings, hashes, known, compute, batch, context.progress)

        def write(folder: Path) -> dict[str, Any]:
            write_records(folder, hashes, values, settings)
            found = [v for v in values if v is not None]
            return {
                "entities": sum(len(v["entities"]) for v in found),
                "triples": sum(len(v["triples"]) for v in found),
                "malformed triples": sum(v["malformed"] for v in found),
                "passages without a record": len(values) - len(found),
                **getattr(extractor, "record", {}),
            }

        return write

    def load(self, folder: Path) -> list[Extraction]:
        """Return one Extraction per passage; an empty one where nothing is known."""
        return [Extraction() if v is None else Extraction.from_json(v) for _, v in read_records(folder)]


@dataclass(frozen=True)
class EntityKnowledge:
    """An entity graph with the vectors of its strings.

    Attributes:
        graph: the graph.
        entity_vectors: (num_entities, dim) float32 unit rows.
        fact_vectors: (num_facts, dim) float32 unit rows.
    """

    graph: EntityGraph
    entity_vectors: np.ndarray
    fact_vectors: np.ndarray


class EntityGraphStage:
    """The entity graph, and the vectors of entities and facts: those of strings seen before are kept."""

    name: ClassVar[str] = "entity_graph"
    needs: ClassVar[tuple[str, ...]] = ("extraction",)
    sections: ClassVar[tuple[str, ...]] = ("graph",)
    version = 1

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        graph = context.config.graph
        rules = [graph.norm, graph.fact_text, graph.synonym_threshold, graph.synonym_max]
        return [self.version, context.embedder().identity, *rules]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        config = context.config.graph
        graph = build_entity_graph([found.as_triples() for found in context.read("extraction")], config.norm)
        strings = [*graph.entities, *(fact_string(fact, config.fact_text) for fact in graph.facts)]
        old = self._earlier(context)
        vectors, computed = self._embed(context, strings, old)
        known = old["knowledge"].graph if old.get("settings") == settings else None
        found = find_synonyms(
            graph.entities,
            vectors[: graph.num_entities],
            config.synonym_threshold,
            config.synonym_max,
            known and Synonyms(known.entities, known.synonyms, known.similarities),
        )
        graph = replace(graph, synonyms=found.pairs, similarities=found.cosines)

        def write(folder: Path) -> dict[str, Any]:
            np.savez(folder / "graph.npz", **graph.to_arrays())  # type: ignore[arg-type]
            np.save(folder / "vectors.npy", vectors)
            made = {"settings": settings, "embedder": context.embedder().identity}
            names = {"entities": graph.entities, "facts": graph.facts, "strings": strings}
            content = {**made, "num_passages": graph.num_passages, **names}
            (folder / "strings.json").write_text(json.dumps(content, ensure_ascii=False), "utf-8")
            counts = {"entities": graph.num_entities, "facts": len(graph.facts), "synonyms": len(found.cosines)}
            return {**counts, "computed": computed}

        return write

    def load(self, folder: Path) -> EntityKnowledge:
        """Return the graph with its vectors."""
        content = json.loads((folder / "strings.json").read_text("utf-8"))
        entities, facts = tuple(content["entities"]), tuple((h, r, t) for h, r, t in content["facts"])
        with np.load(folder / "graph.npz", allow_pickle=False) as arrays:
            graph = EntityGraph(content["num_passages"], entities, facts, **arrays).check()
        vectors = np.load(folder / "vectors.npy", allow_pickle=False)
        return EntityKnowledge(graph, vectors[: len(entities)], vectors[len(entities) :])

    def _earlier(self, context: Context) -> dict[str, Any]:
        """Return what the artefact that is there was made with, and its `knowledge`; nothing where there is none."""
        if context.store.key(self.name) is None:
            return {}
        folder = context.store.folder(self.name)
        return {**json.loads((folder / "strings.json").read_text("utf-8")), "knowledge": self.load(folder)}

    def _embed(self, context: Context, strings: list[str], old: dict[str, Any]) -> tuple[np.ndarray, int]:
        """Return a row per string, and how many strings were new."""
        identity, known = context.embedder().identity, {}
        if old.get("embedder") == identity:
            rows = [*old["knowledge"].entity_vectors, *old["knowledge"].fact_vectors]
            known = dict(zip(old["strings"], rows, strict=True))
        told, total, done = 0, max(len(strings), 1), 0

        def progress(count: int) -> None:
            nonlocal told, done
            done += count
            told, before = done * len(context.passages) // total, told
            context.progress(told - before)

        def texts(positions: list[int]) -> list[str]:
            return [strings[i] for i in positions]

        vectors = embed_strings(context, self.name, digest(identity), strings, texts, known, progress)
        return vectors, len(set(strings) - known.keys())


def fact_string(fact: Triple, style: str) -> str:
    """Return what is embedded of a fact. Raises ConfigError for an unknown style."""
    if style == "tuple":
        return str(fact)
    if style == "plain":
        return " ".join(fact)
    raise ConfigError(f"index.graph.fact_text={style!r}: allowed are tuple, plain")
