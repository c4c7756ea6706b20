"""Artefacts of the passages: sentences and phrases, their graph, titles, BM25, vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gnnrag.arrays import Rows
from gnnrag.graphs.hierarchy import TEXT, HierarchyGraph, hierarchy_of
from gnnrag.graphs.titles import NAMES, Titles, layout_of, title_tables
from gnnrag.index.artefacts import Counts, Work, artefact
from gnnrag.index.lexical import Lexical
from gnnrag.index.nearest import FLAT_UP_TO, index_vectors
from gnnrag.index.tables import without_nulls
from gnnrag.index.work import Analyse
from gnnrag.text.analyse import PassageText


def _load_text(index: Any, folder: Path) -> Sequence[PassageText]:
    def make(row: dict[str, Any]) -> PassageText:
        return PassageText(tuple(row["sentences"]), tuple(map(tuple, row["phrases"])))

    return Rows([_of_text(index, "value")], make)


def _of_text(index: Any, part: str) -> Any:
    return without_nulls(index.table_of("text").take(index.table.keys, part))


@artefact(("passages",), uses=("text",), version=10, load=_load_text)
def text(work: Work) -> tuple[None, Counts]:
    """Sentences and phrases of each passage, with the keys of its phrases, and its names."""
    kind = pa.struct([*TEXT, ("names", NAMES)])
    work.computed("text", work.settings, work.keys, work.index.passages, Analyse(work.config.text), 1000, kind)
    return None, {}


@artefact(("text",), kind=HierarchyGraph, version=8)
def hierarchy(work: Work) -> tuple[HierarchyGraph, Counts]:
    """The contextual hierarchy graph of MGranRAG."""
    graph = hierarchy_of(lambda part: _of_text(work.index, f"value.{part}"))
    counts = {"nodes": graph.num_nodes, "edges": len(graph.neighbours.values) // 2}
    return graph, {**counts, "sentences": len(graph.sentences), "phrases": len(graph.phrases)}


@artefact(("passages", "text", "hierarchy"), kind=Titles, version=5)
def titles(work: Work) -> tuple[Titles, Counts]:
    """Titles and other names of passages, and their places in documents."""
    tables = title_tables(work.read("hierarchy"), _of_text(work.index, "value.names"))
    spelt = work.index.table.rows["title"].to_pylist()
    return Titles(tables, layout_of(work.index.ids, spelt)), {"forms": len(tables.forms)}


def _load_lexical(index: Any, folder: Path) -> Lexical:
    with index.locked():
        return Lexical(index.table.with_bm25(index.config.lexical.language))


@artefact(("passages",), uses=("lexical",), version=7, load=_load_lexical)
def lexical(work: Work) -> tuple[None, Counts]:
    """The BM25 index of the table of passages."""
    work.index.table.with_bm25(work.config.lexical.language)
    return None, {"passages": len(work.index.passages)}


@artefact(("passages",), kind=np.ndarray, uses=("embedder",), version=4)
def embeddings(work: Work) -> tuple[np.ndarray, Counts]:
    """Unit vectors of the passages, (num_passages, dim) float32."""
    table, new = work.embedded("embeddings", work.keys, work.index.passages)
    if len(work.index.passages) > FLAT_UP_TO:
        index_vectors(table.uri)
    return table.vectors(work.keys), {"dim": table.dim, "computed": new}


def string_vectors(work: Work, strings: Sequence[str], name: str) -> tuple[np.ndarray, Counts]:
    """Return the vectors of strings, (len(strings), dim) float16; the record counts the strings under `name`."""
    vectors, new = work.embed(strings)
    return vectors.astype(np.float16), {name: len(vectors), "computed": new}


@artefact(("hierarchy",), kind=np.ndarray, uses=("embedder",), version=2)
def phrase_vectors(work: Work) -> tuple[np.ndarray, Counts]:
    """A vector per phrase node."""
    return string_vectors(work, work.read("hierarchy").phrases, "phrases")


@artefact(("hierarchy",), kind=np.ndarray, uses=("embedder",), version=2)
def sentence_vectors(work: Work) -> tuple[np.ndarray, Counts]:
    """A vector per sentence node."""
    return string_vectors(work, work.read("hierarchy").sentences, "sentences")
