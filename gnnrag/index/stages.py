"""What an index is made of: text, graph of the text, titles, BM25, vectors; and the list of all artefacts.

A later retriever adds a class in a file of its own, such as `graph_stages.py`, and its name to `STAGES`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.graphs.hierarchy import HierarchyGraph, build_hierarchy
from gnnrag.graphs.layout import Layout, layout_of
from gnnrag.graphs.titles import TitleTables, build_titles
from gnnrag.index.artefacts import Context, Stage, Writer, get_lines, get_vectors, put_lines
from gnnrag.index.community_stages import CommunityStage, ReportStage, TreeStage
from gnnrag.index.graph_stages import EntityGraphStage, ExtractionStage, KnowledgeStage, KnowledgeVectorStage
from gnnrag.index.message_stages import (
    EntityVectorStage,
    MessageGraphStage,
    PhraseVectorStage,
    RelationVectorStage,
    SentenceVectorStage,
)
from gnnrag.index.nearest import FLAT_UP_TO, write_lists
from gnnrag.text.analyse import PassageText, analyse, resolve_language
from gnnrag.text.subjects import PATH, subjects_of
from gnnrag.types import Passage


class TextStage(Stage):
    """Sentences and phrases of each passage."""

    name, needs, version = "text", ("passages",), 4

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        text = context.config.text
        return [self.version, resolve_language(text.language), text.phrase_rules, text.title_mode]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        text, keys = context.config.text, context.hashes
        language = resolve_language(text.language)

        def read(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
            rows = get_lines(folder / "texts.jsonl") if record["settings"] == settings else []
            return {row[0]: row[1:] for row in rows}

        def compute(positions: list[int]) -> list[Any]:
            rows: Any = analyse(
                [context.passages[i] for i in positions],
                language=language, title_mode=text.title_mode, phrase_rules=text.phrase_rules,
            )  # fmt: skip
            return [[row.sentences, row.phrases] for row in rows]

        known = context.earlier(self.name, read, {})
        values = context.cached(self.name, settings, keys, known, compute, 1000, context.progress)

        def write(folder: Path) -> dict[str, Any]:
            rows = zip(keys, values, strict=True)
            put_lines(folder / "texts.jsonl", (json.dumps([key, *row], ensure_ascii=False) for key, row in rows))
            return {"language": language}

        return write

    def load(self, folder: Path) -> Sequence[PassageText]:
        """Return one PassageText per passage."""
        rows = get_lines(folder / "texts.jsonl")
        return [PassageText(tuple(sentences), tuple(map(tuple, phrases))) for _, sentences, phrases in rows]


class HierarchyStage(Stage):
    """The contextual hierarchy graph of MGranRAG."""

    name, needs, version = "hierarchy", ("text",), 3

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return self.version

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        graph = build_hierarchy(context.read("text"))

        def write(folder: Path) -> dict[str, Any]:
            graph.save(folder)
            sizes = {"sentences": len(graph.sentences), "phrases": len(graph.phrases)}
            return {"nodes": graph.num_nodes, "edges": len(graph.neighbours.values) // 2, **sizes}

        return write

    def load(self, folder: Path) -> HierarchyGraph:
        """See `Stage`."""
        return HierarchyGraph.load(folder)


class TitleStage(Stage):
    """What passages are known by, and where they stand in their documents."""

    name, needs, version = "titles", ("passages", "hierarchy"), 2

    def settings(self, context: Context) -> Any:
        """Titles and ids, which are not in the hierarchy graph, are in the key of the passages."""
        return self.version

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        titles, layout = titles_of(context.passages, context.read("hierarchy")), layout_of(context.passages)

        def write(folder: Path) -> dict[str, Any]:
            titles.save(folder)
            layout.save(folder)
            return {"forms": len(titles.forms)}

        return write

    def load(self, folder: Path) -> tuple[TitleTables, Layout]:
        """See `Stage`."""
        return TitleTables.load(folder), Layout.load(folder)


def titles_of(passages: Sequence[Passage], graph: HierarchyGraph) -> TitleTables:
    """Collect what passages are known by; a path of headings is no title, and a passage without one has subjects."""
    titles = ("" if PATH in p.title else p.title for p in passages)
    subjects = (() if p.title.strip() else subjects_of(p.text) for p in passages)
    return build_titles(graph, titles, subjects)


class LexicalStage(Stage):
    """The BM25 index."""

    name, needs, version = "lexical", ("passages",), 3

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return self.version

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        from gnnrag.index.lexical import BM25

        model = BM25.fit([p.content for p in context.passages])

        def write(folder: Path) -> dict[str, Any]:
            model.save(folder)
            return {"terms": model.num_terms}

        return write

    def load(self, folder: Path) -> Any:
        """Return the BM25 model."""
        from gnnrag.index.lexical import BM25

        return BM25.load(folder)


class EmbeddingStage(Stage):
    """Unit vectors of the passages."""

    name, needs = "embeddings", ("passages",)

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return context.embedder().identity

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""

        def texts(positions: list[int]) -> list[str]:
            return [context.passages[i].content for i in positions]

        vectors, computed = context.embedded(self.name, context.hashes, texts, context.progress)

        def write(folder: Path) -> dict[str, Any]:
            context.put_vectors(folder, context.hashes, vectors)
            if len(vectors) > FLAT_UP_TO:
                write_lists(folder, vectors)
            return {"dim": int(vectors.shape[1]), "computed": computed}

        return write

    def load(self, folder: Path) -> np.ndarray:
        """Return (num_passages, dim) float32."""
        return get_vectors(folder / "vectors.npy")


_ALL: tuple[Stage, ...] = (
    TextStage(), HierarchyStage(), TitleStage(), LexicalStage(), EmbeddingStage(),
    ExtractionStage(), EntityGraphStage(), KnowledgeStage(), KnowledgeVectorStage(),
    PhraseVectorStage(), SentenceVectorStage(), MessageGraphStage(), EntityVectorStage(), RelationVectorStage(),
    TreeStage(), CommunityStage(), ReportStage(),
)  # fmt: skip
STAGES = {stage.name: stage for stage in _ALL}
