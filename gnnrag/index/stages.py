"""The stages of an index. Each one says what it needs and what it depends on; `build.py` does the rest.

A later retriever adds a class in a file of its own, such as `graph_stages.py`, and its name to `STAGES`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnrag.common.splicing import Kept, splice_keys, splice_texts, spliced_rows
from gnnrag.common.tables import Keys, Lazy, Texts, map_lines, put_array, put_arrays_apart
from gnnrag.common.untrusted import parse_json
from gnnrag.errors import ArtefactError
from gnnrag.graphs.hierarchy import HierarchyGraph, build_hierarchy, splice_hierarchy
from gnnrag.graphs.layout import Layout, layout_of, splice_layout
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
from gnnrag.index.nearest import FLAT_UP_TO, VectorLists, write_lists
from gnnrag.index.passages import load_passages
from gnnrag.index.splice import earlier, remember
from gnnrag.index.stage import (
    Context,
    Stage,
    Writer,
    as_texts,
    embed_strings,
    get_vectors,
    put_bytes,
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

    version = 2

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return [self.version, sha256(context.digests.tobytes()).hexdigest()]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        before = earlier(context, self.name, by_id=True)
        new = range(len(context.passages)) if before is None else before.missing
        passages = [context.passages[i] for i in new] if before else context.passages
        lines = Texts.of(json.dumps(_row(p), ensure_ascii=False) + "\n" for p in passages)
        ids = Keys.of(p.id for p in passages)
        if before:
            rows, new_lines, new_ids = before.rows, lines, list(ids)
            lines = before.read(lambda folder: splice_texts(map_lines(folder / _PASSAGES), new_lines, rows))
            ids = before.read(lambda folder: splice_keys(Keys.load(folder, "ids"), new_ids, rows))

        def write(folder: Path) -> dict[str, Any]:
            put_bytes(folder / _PASSAGES, lines.data)
            put_arrays_apart(folder, starts=lines.starts)
            ids.save(folder, "ids")
            remember(folder, context, by_id=True)
            return {"passages": len(lines)}

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
    version = 3

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        text = context.config.text
        made_by = analyser_identity(resolve_language(text.language))
        return [self.version, made_by, text.phrase_rules, text.title_mode]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        text = context.config.text
        language = resolve_language(text.language)
        before = earlier(context, self.name)
        new = before.missing if before else range(len(context.passages))

        def compute(positions: list[int]) -> list[Any]:
            found = analyse(
                [context.passages[new[i]] for i in positions],
                language=language,
                title_mode=text.title_mode,  # type: ignore[arg-type]
                phrase_rules=text.phrase_rules,  # type: ignore[arg-type]
            )
            return [json.dumps([t.sentences, t.phrases], ensure_ascii=False) + "\n" for t in found]

        context.progress(len(context.passages) - len(new))
        keys = context.keys(new)
        found = map_passages(context.store, self.name, settings, keys, {}, compute, 1000, context.progress)
        lines = Texts.of(found)
        if before:
            lines = before.read(lambda folder: splice_texts(map_lines(folder / _TEXTS), found, before.rows))

        def write(folder: Path) -> dict[str, Any]:
            put_bytes(folder / _TEXTS, lines.data)
            remember(folder, context)
            return {"language": analyser_identity(language)}

        return write

    def load(self, folder: Path) -> Sequence[PassageText]:
        """Return one PassageText per passage, a list of few; many are read where they are asked for."""
        if not (folder / _TEXTS).exists():
            raise ArtefactError(f"{folder} is of an earlier version; bring it up to date: gnnrag index build CONFIG")
        lines = map_lines(folder / _TEXTS)
        texts = Lazy(len(lines), lambda position: _passage_text(lines[position]))
        return list(texts) if len(lines.data) <= _AT_ONCE else texts


_AT_ONCE = 1 << 25  # bytes of sentences and phrases that are kept in memory
_PASSAGES, _TEXTS = "passages.jsonl", "texts.jsonl"


def _passage_text(line: str) -> PassageText:
    """Read what a passage was cut into. Raises ValueError where it is damaged."""
    sentences, phrases = parse_json(line)
    if len(sentences) != len(phrases):
        raise ValueError("a passage has not as many sentences as lists of phrases")
    return PassageText(tuple(as_texts(sentences)), tuple(tuple(as_texts(row)) for row in phrases))


class HierarchyStage(Stage):
    """The contextual hierarchy graph of MGranRAG."""

    name: ClassVar[str] = "hierarchy"
    needs: ClassVar[tuple[str, ...]] = ("text",)
    sections: ClassVar[tuple[str, ...]] = ()
    version = 3

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return self.version

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        before, texts = earlier(context, self.name), context.read("text")
        if before:
            graph = before.read(lambda folder: splice_hierarchy(self.load(folder), before, texts))
        else:
            graph = build_hierarchy(texts)

        def write(folder: Path) -> dict[str, Any]:
            graph.save(folder)
            remember(folder, context)
            sizes = {"sentences": len(graph.sentences), "phrases": len(graph.phrases)}
            return {"nodes": graph.num_nodes, "edges": len(graph.neighbours.values) // 2, **sizes}

        return write

    def load(self, folder: Path) -> Any:
        """Return the HierarchyGraph."""
        return HierarchyGraph.load(folder)


class TitleStage(Stage):
    """What passages are known by, and where they stand in their documents."""

    name: ClassVar[str] = "titles"
    needs: ClassVar[tuple[str, ...]] = ("passages", "hierarchy")
    sections: ClassVar[tuple[str, ...]] = ()
    version = 2

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return self.version

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        passages, graph = context.passages, context.read("hierarchy")
        if before := earlier(context, self.name, by_id=True):
            new = [passages[i] for i in before.missing]
            titles = before.read(lambda folder: titles_of(new, graph, (TitleTables.load(folder), before)))
            layout = before.read(lambda folder: splice_layout(Layout.load(folder), before, passages))
        else:
            titles, layout = titles_of(passages, graph), layout_of(passages)

        def write(folder: Path) -> dict[str, Any]:
            titles.save(folder)
            layout.save(folder)
            remember(folder, context, by_id=True)
            return {"forms": len(titles.forms)}

        return write

    def load(self, folder: Path) -> tuple[TitleTables, Layout]:
        """See `Stage`."""
        return TitleTables.load(folder), Layout.load(folder)


def titles_of(
    passages: Sequence[Passage], graph: HierarchyGraph, before: tuple[TitleTables, Kept] | None = None
) -> TitleTables:
    """Collect what passages are known by; a path of headings is no title, and a passage without one has subjects."""
    titles = ("" if PATH in p.title else p.title for p in passages)
    subjects = (() if p.title.strip() else subjects_of(p.text) for p in passages)
    return build_titles(graph, titles, subjects, before)


class LexicalStage(Stage):
    """The BM25 index."""

    name: ClassVar[str] = "lexical"
    needs: ClassVar[tuple[str, ...]] = ("passages",)
    sections: ClassVar[tuple[str, ...]] = ()
    version = 3

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return self.version

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        from gnnrag.index.lexical import BM25

        def texts(positions: list[int]) -> list[str]:
            return [context.passages[i].content for i in positions]

        before = earlier(context, self.name)
        model = before.read(lambda folder: BM25.load(folder).spliced(texts, before)) if before else None
        model = model or BM25.fit([p.content for p in context.passages])

        def write(folder: Path) -> dict[str, Any]:
            model.save(folder)
            remember(folder, context)
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
        before = earlier(context, self.name)
        new = before.missing if before else range(len(context.passages))

        def texts(positions: list[int]) -> list[str]:
            return [context.passages[new[i]].content for i in positions]

        keys = context.keys(new)
        context.progress(len(context.passages) - len(new))
        vectors = embed_strings(context, self.name, settings, keys, texts, {}, context.progress)
        if before:
            new_rows = vectors
            vectors = before.read(lambda folder: spliced_rows(self.load(folder), new_rows, before.rows))
        has_lists = len(vectors) > FLAT_UP_TO
        lists = before.read(VectorLists.of) if before and has_lists else None
        carried_on = (lists, before) if before and lists else None

        def write(folder: Path) -> dict[str, Any]:
            put_array(folder / "vectors.npy", vectors)
            remember(folder, context)
            if has_lists:
                write_lists(folder, vectors, carried_on)
            return {"dim": int(vectors.shape[1]), "computed": len(set(keys))}

        return write

    def load(self, folder: Path) -> np.ndarray:
        """Return (num_passages, dim) float32."""
        return get_vectors(folder / "vectors.npy")


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
