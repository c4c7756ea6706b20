"""The stages behind the LightRAG family and GraphRAG: the knowledge graph, and the vectors of its texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from gnnrag.common.files import digest
from gnnrag.config import IndexConfig
from gnnrag.errors import ArtefactError
from gnnrag.graphs.folding import TAG, fold
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.curation import Curator, curation_settings
from gnnrag.index.stage import (
    Context,
    Writer,
    as_texts,
    embed_strings,
    get_arrays,
    get_json,
    get_vectors,
    put_array,
    put_arrays,
    put_json,
)

Table = Literal["entities", "names", "relations", "hyperedges"]
_TEXTS = ("names", "types", "descriptions", "labels", "texts", "hyper_texts")
TABLES: tuple[Table, ...] = ("entities", "names", "relations", "hyperedges")


class KnowledgeStage:
    """Entities, relations and hyperedges: a fold over what was extracted from each passage."""

    name: ClassVar[str] = "knowledge"
    needs: ClassVar[tuple[str, ...]] = ("extraction",)
    sections: ClassVar[tuple[str, ...]] = ("knowledge", "writers.curator", "writers.types", "writers.summary")
    version = 3

    @staticmethod
    def needs_for(config: IndexConfig) -> tuple[str, ...]:
        """Sentences are read only where they become hyperedges."""
        reads_text = config.extract.method != "kb" and config.knowledge.hyperedges in ("auto", "sentences")
        return ("extraction", "text") if reads_text else ("extraction",)

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        knowledge = context.config.knowledge
        return [self.version, knowledge.match, knowledge.hyperedges, *curation_settings(context)]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        config, sentences = context.config.knowledge, None
        if "text" in self.needs_for(context.config):
            sentences = [text.sentences for text in context.read("text")]

        def folded(found: Any, renamed: Mapping[str, str], retyped: Mapping[str, str]) -> KnowledgeGraph:
            return fold(found, config.match, config.hyperedges, sentences, renamed, retyped)

        curator = Curator(context, folded)
        graph = curator.run(context.read("extraction"))

        def write(folder: Path) -> dict[str, Any]:
            arrays, strings = graph.to_data()
            put_arrays(folder / "graph.npz", **arrays)
            put_json(folder / "strings.json", strings)
            counts = {"entities": graph.num_entities, "relations": graph.num_relations}
            counts |= {"hyperedges": len(graph.hyper_texts), "isolated": int((graph.degrees == 0).sum())}
            counts |= curator.done.write(folder)
            for writer in ("curator", "types", "summary") if curator.done.decisions else ():
                counts |= context.jobs.record(writer)
            return counts

        return write

    def load(self, folder: Path) -> KnowledgeGraph:
        """Return the graph."""
        strings = get_json(folder / "strings.json")
        as_texts(text for name in _TEXTS for text in strings[name])
        return KnowledgeGraph.from_data(get_arrays(folder / "graph.npz"), strings)


@dataclass(frozen=True)
class KnowledgeVectors:
    """Vectors of the knowledge graph's texts; equal texts share one.

    Attributes:
        matrix: (num_strings, dim) float32 unit rows, stored as float16.
        rows: for each table, the row of each item.
    """

    matrix: np.ndarray
    rows: dict[str, np.ndarray]

    def scores(self, table: Table, vector: np.ndarray) -> np.ndarray:
        """Cosine of a query vector (dim,) and every item of a table. Shape (num_items,), float32.

        Tables: `entities` (name and description), `names`, `relations`, `hyperedges`.
        """
        rows = self.rows[table]
        if not len(rows):
            return np.zeros(0, dtype=np.float32)
        first, last = int(rows.min()), int(rows.max()) + 1
        return (self.matrix[first:last] @ vector)[rows - first]

    def of(self, table: Table, items: np.ndarray) -> np.ndarray:
        """Vectors of items of a table. Shape (len(items), dim), float32."""
        return self.matrix[self.rows[table][items]]


class KnowledgeVectorStage:
    """The vectors of entities, names, relations and hyperedges; those of strings seen before are kept."""

    name: ClassVar[str] = "knowledge_vectors"
    needs: ClassVar[tuple[str, ...]] = ("knowledge",)
    sections: ClassVar[tuple[str, ...]] = ("knowledge",)
    version = 1

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        tagged = ["tagged"] if context.config.knowledge.hyper_tag else []
        return [self.version, context.embedder().identity, *tagged]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        texts = table_texts(context.read("knowledge"), TAG if context.config.knowledge.hyper_tag else "")
        position: dict[str, int] = {}
        rows = {name: [position.setdefault(t, len(position)) for t in texts[name]] for name in TABLES}
        strings = list(position)
        keys = [digest(s) for s in strings]
        known = self._known(context, settings)
        told, total, done = 0, max(len(strings), 1), 0

        def progress(count: int) -> None:
            nonlocal told, done
            done += count
            told, before = done * len(context.passages) // total, told
            context.progress(told - before)

        def chosen(positions: list[int]) -> list[str]:
            return [strings[i] for i in positions]

        vectors = embed_strings(context, self.name, settings, keys, chosen, known, progress).astype(np.float16)

        def write(folder: Path) -> dict[str, Any]:
            put_array(folder / "vectors.npy", vectors)
            arrays = {name: np.array(values, dtype=np.int32) for name, values in rows.items()}
            put_arrays(folder / "rows.npz", **arrays)
            put_json(folder / "keys.json", {"settings": settings, "keys": keys})
            return {"strings": len(strings), "computed": len(set(keys) - known.keys())}

        return write

    def load(self, folder: Path) -> KnowledgeVectors:
        """Return the vectors as float32."""
        matrix, rows = get_vectors(folder / "vectors.npy").astype(np.float32), get_arrays(folder / "rows.npz")
        if any(r.size and r.max() >= len(matrix) for r in rows.values()):
            raise ArtefactError("knowledge vectors: rows and vectors do not belong together; rebuild the index")
        return KnowledgeVectors(matrix, rows)

    def _known(self, context: Context, settings: str) -> dict[str, np.ndarray]:
        """Return the vectors of the artefact that is there by the hash of their strings."""
        if context.store.key(self.name) is None:
            return {}

        def read(folder: Path) -> dict[str, np.ndarray]:
            old = get_json(folder / "keys.json")
            return dict(zip(old["keys"], self.load(folder).matrix, strict=True)) if old["settings"] == settings else {}

        return context.store.load(self.name, read)


def table_texts(graph: KnowledgeGraph, hyper_tag: str = "") -> dict[Table, list[str]]:
    """Return what is embedded of each item.

    An entity: name and description, a line each. A relation: keywords, ends and description (LightRAG); where it has no
    description, head, predicate and tail; where the description is a sentence that joins many, its head and the
    sentence, so that relations of one sentence share a vector. A hyperedge: the tag if any (Q-HG-1), and its sentence.
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
        "hyperedges": [f"{hyper_tag}{text}" for text in graph.hyper_texts],
    }
