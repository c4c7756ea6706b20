"""The stages of an index. Each one says what it needs and what it depends on; `build.py` does the rest.

A later retriever adds a class in a file of its own, such as `graph_stages.py`, and its name to `STAGES`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnrag.common.files import digest
from gnnrag.common.tables import Lazy, map_lines, put_array
from gnnrag.common.untrusted import parse_json
from gnnrag.graphs.hierarchy import HierarchyGraph, build_hierarchy
from gnnrag.graphs.layout import Layout, layout_of
from gnnrag.graphs.titles import TitleTables, build_titles
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
from gnnrag.index.passages import load_passages, write_places
from gnnrag.index.stage import (
    Context,
    Stage,
    Writer,
    as_texts,
    embed_strings,
    get_json,
    get_vectors,
    known_records,
    put_json,
    put_lines,
    write_records,
)
from gnnrag.index.store import map_passages
from gnnrag.text.analyse import PassageText, analyse, analyser_identity, resolve_language
from gnnrag.text.subjects import PATH, subjects_of
from gnnrag.types import Passage


class PassageStage(Stage):
    """The passages themselves."""

    name: ClassVar[str] = "passages"
    needs: ClassVar[tuple[str, ...]] = ()
    sections: ClassVar[tuple[str, ...]] = ()

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return digest([list(_row(p).values()) for p in context.passages])

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        rows = [json.dumps(_row(p), ensure_ascii=False) for p in context.passages]

        def write(folder: Path) -> dict[str, Any]:
            put_lines(folder / "passages.jsonl", rows)
            write_places(folder, rows, [p.id for p in context.passages])
            return {"passages": len(rows)}

        return write

    def load(self, folder: Path) -> Sequence[Passage]:
        """See `Stage`."""
        return load_passages(folder)


def _row(passage: Passage) -> dict[str, str]:
    """Return what is kept of a passage: a place only where there is one, so that other artefacts stay as they were."""
    row = asdict(passage)
    return row if passage.place else {key: row[key] for key in ("id", "title", "text")}


class TextStage(Stage):
    """Sentences and phrases of each passage."""

    name: ClassVar[str] = "text"
    needs: ClassVar[tuple[str, ...]] = ("passages",)
    sections: ClassVar[tuple[str, ...]] = ()
    version = 2

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        text = context.config.text
        made_by = analyser_identity(resolve_language(text.language))
        return [self.version, made_by, text.phrase_rules, text.title_mode]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        text, hashes = context.config.text, context.hashes
        language = resolve_language(text.language)

        def compute(positions: list[int]) -> list[Any]:
            found = analyse(
                [context.passages[i] for i in positions],
                language=language,
                title_mode=text.title_mode,  # type: ignore[arg-type]
                phrase_rules=text.phrase_rules,  # type: ignore[arg-type]
            )
            return [[t.sentences, t.phrases] for t in found]

        known = known_records(context.store, self.name, settings)
        values = map_passages(context.store, self.name, settings, hashes, known, compute, 1000, context.progress)

        def write(folder: Path) -> dict[str, Any]:
            write_records(folder, hashes, values, settings)
            return {"sentences": sum(len(v[0]) for v in values), "language": analyser_identity(language)}

        return write

    def load(self, folder: Path) -> Sequence[PassageText]:
        """Return one PassageText per passage, a list of few; many are read where they are asked for."""
        lines = map_lines(folder / "records.jsonl")
        texts = Lazy(len(lines), lambda position: _passage_text(lines[position]))
        return list(texts) if len(lines.data) <= _AT_ONCE else texts


_AT_ONCE = 1 << 25  # bytes of sentences and phrases that are kept in memory


def _passage_text(line: str) -> PassageText:
    """Read what a passage was cut into. Raises ValueError where it is damaged."""
    _, (sentences, phrases) = parse_json(line)
    if len(sentences) != len(phrases):
        raise ValueError("a passage has not as many sentences as lists of phrases")
    return PassageText(tuple(as_texts(sentences)), tuple(tuple(as_texts(row)) for row in phrases))


class HierarchyStage(Stage):
    """The contextual hierarchy graph of MGranRAG."""

    name: ClassVar[str] = "hierarchy"
    needs: ClassVar[tuple[str, ...]] = ("text",)
    sections: ClassVar[tuple[str, ...]] = ()
    version = 2

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return self.version

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        graph = build_hierarchy(context.read("text"))

        def write(folder: Path) -> dict[str, Any]:
            graph.save(folder)
            return {"nodes": graph.num_nodes, "edges": len(graph.edges), "phrases": len(graph.phrases)}

        return write

    def load(self, folder: Path) -> Any:
        """Return the HierarchyGraph."""
        return HierarchyGraph.load(folder)


class TitleStage(Stage):
    """What passages are known by, and where they stand in their documents."""

    name: ClassVar[str] = "titles"
    needs: ClassVar[tuple[str, ...]] = ("passages", "hierarchy")
    sections: ClassVar[tuple[str, ...]] = ()
    version = 1

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
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

    name: ClassVar[str] = "lexical"
    needs: ClassVar[tuple[str, ...]] = ("passages",)
    sections: ClassVar[tuple[str, ...]] = ()
    version = 2

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

    name: ClassVar[str] = "embeddings"
    needs: ClassVar[tuple[str, ...]] = ("passages",)
    sections: ClassVar[tuple[str, ...]] = ()

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return context.embedder().identity

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        hashes, known = context.hashes, dict[str, np.ndarray]()
        if context.store.key(self.name):
            known = context.store.load(self.name, lambda folder: self._known(folder, settings))

        def texts(positions: list[int]) -> list[str]:
            return [context.passages[i].content for i in positions]

        vectors = embed_strings(context, self.name, settings, hashes, texts, known, context.progress)

        def write(folder: Path) -> dict[str, Any]:
            put_array(folder / "vectors.npy", vectors)
            put_json(folder / "keys.json", {"settings": settings, "hashes": hashes})
            if len(vectors) > FLAT_UP_TO:
                write_lists(folder, vectors)
            return {"dim": int(vectors.shape[1]), "computed": len(set(hashes) - set(known))}

        return write

    def load(self, folder: Path) -> np.ndarray:
        """Return (num_passages, dim) float32."""
        return get_vectors(folder / "vectors.npy")

    def _known(self, folder: Path, settings: str) -> dict[str, np.ndarray]:
        old = get_json(folder / "keys.json")
        return dict(zip(old["hashes"], self.load(folder), strict=True)) if old["settings"] == settings else {}


_ALL: tuple[Stage, ...] = (
    PassageStage(),
    TextStage(),
    HierarchyStage(),
    TitleStage(),
    LexicalStage(),
    EmbeddingStage(),
    ExtractionStage(),
    EntityGraphStage(),
    KnowledgeStage(),
    KnowledgeVectorStage(),
    PhraseVectorStage(),
    SentenceVectorStage(),
    MessageGraphStage(),
    EntityVectorStage(),
    RelationVectorStage(),
    TreeStage(),
    CommunityStage(),
    ReportStage(),
)
STAGES = {stage.name: stage for stage in _ALL}
