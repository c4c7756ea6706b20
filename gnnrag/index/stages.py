"""All artefacts by name, and those that are made of passages alone.

A new artefact is a class such as those here; it goes into `STAGES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag import arrays
from gnnrag.arrays import get_lines, get_vectors, put_lines
from gnnrag.graphs.hierarchy import HierarchyGraph, build_hierarchy
from gnnrag.graphs.titles import Layout, TitleTables, layout_of, titles_of
from gnnrag.index.artefacts import VECTORS, Context, Stage
from gnnrag.index.community_stages import CommunityStage, ReportStage, TreeStage
from gnnrag.index.graph_stages import EntityGraphStage, ExtractionStage, KnowledgeStage, KnowledgeVectorStage
from gnnrag.index.lexical import BM25
from gnnrag.index.message_stages import (
    EntityVectorStage,
    MessageGraphStage,
    PhraseVectorStage,
    RelationVectorStage,
    SentenceVectorStage,
)
from gnnrag.index.nearest import FLAT_UP_TO, write_lists
from gnnrag.text.analyse import PassageText, analyse, resolve_language


class TextStage(Stage):
    """Sentences and phrases of each passage."""

    name, needs, version = "text", ("passages",), 5

    def settings(self, context: Context) -> Any:
        text = context.config.text
        return [resolve_language(text.language), text.phrase_rules, text.title_mode]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        text, keys = context.config.text, context.hashes
        language = resolve_language(text.language)

        def read(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
            rows = get_lines(folder / "texts.jsonl") if record["settings"] == context.settings else []
            return {row[0]: row[1:] for row in rows}

        def compute(positions: list[int]) -> list[Any]:
            rows: Any = analyse(
                [context.passages[i] for i in positions],
                language=language, title_mode=text.title_mode, phrase_rules=text.phrase_rules,
            )  # fmt: skip
            return [[row.sentences, row.phrases] for row in rows]

        known: dict[str, Any] = context.earlier(self.name, read, {})
        values = context.cached(self.name, context.settings, keys, known, compute, 1000, context.progress)
        put_lines(folder / "texts.jsonl", ([key, *row] for key, row in zip(keys, values, strict=True)))
        return {"language": language}

    def load(self, folder: Path) -> Sequence[PassageText]:
        """Return one PassageText per passage."""
        rows = get_lines(folder / "texts.jsonl")
        return [PassageText(tuple(sentences), tuple(map(tuple, phrases))) for _, sentences, phrases in rows]


class HierarchyStage(Stage):
    """The contextual hierarchy graph of MGranRAG."""

    name, needs, version = "hierarchy", ("text",), 4

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        graph = build_hierarchy(context.read("text"))
        graph.save(folder)
        sizes = {"sentences": len(graph.sentences), "phrases": len(graph.phrases)}
        return {"nodes": graph.num_nodes, "edges": len(graph.neighbours.values) // 2, **sizes}

    def load(self, folder: Path) -> HierarchyGraph:
        return HierarchyGraph.load(folder)


class TitleStage(Stage):
    """What passages are known by, and where they stand in their documents."""

    name, needs, version = "titles", ("passages", "hierarchy"), 3

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        titles = titles_of(context.passages, context.read("hierarchy"))
        arrays.save(folder, "titles", titles)
        arrays.save(folder, "layout", layout_of(context.passages))
        return {"forms": len(titles.forms)}

    def load(self, folder: Path) -> tuple[TitleTables, Layout]:
        return arrays.load(folder, "titles", TitleTables), arrays.load(folder, "layout", Layout)


class LexicalStage(Stage):
    """The BM25 index."""

    name, needs, version = "lexical", ("passages",), 4

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        model = BM25.fit([p.content for p in context.passages])
        model.save(folder)
        return {"terms": model.num_terms}

    def load(self, folder: Path) -> BM25:
        return BM25.load(folder)


class EmbeddingStage(Stage):
    """Unit vectors of the passages."""

    name, needs = "embeddings", ("passages",)

    def settings(self, context: Context) -> Any:
        return context.embedder().identity

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        contents = [passage.content for passage in context.passages]
        vectors, computed = context.embed(self.name, contents, context.progress)
        context.put_vectors(folder, contents, vectors)
        if len(vectors) > FLAT_UP_TO:
            write_lists(folder, vectors)
        return {"dim": int(vectors.shape[1]), "computed": computed}

    def load(self, folder: Path) -> np.ndarray:
        """Return (num_passages, dim) float32."""
        return get_vectors(folder / VECTORS)


_ALL: tuple[Stage, ...] = (
    TextStage(), HierarchyStage(), TitleStage(), LexicalStage(), EmbeddingStage(),
    ExtractionStage(), EntityGraphStage(), KnowledgeStage(), KnowledgeVectorStage(),
    PhraseVectorStage(), SentenceVectorStage(), MessageGraphStage(), EntityVectorStage(), RelationVectorStage(),
    TreeStage(), CommunityStage(), ReportStage(),
)  # fmt: skip
STAGES = {stage.name: stage for stage in _ALL}
