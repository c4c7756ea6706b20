"""Small knowledge graphs, and an index over one whose every cosine is set by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.extract.base import Extraction
from gnnrag.graphs.folding import fold
from gnnrag.graphs.knowledge import KnowledgeGraph, KnowledgeVectors
from gnnrag.types import Passage

Triples = Sequence[tuple[str, str, str]]


def knowledge(*passages: Triples, entities: Mapping[int, tuple[str, ...]] | None = None) -> KnowledgeGraph:
    """Fold the triples of each passage into a graph; `entities` adds names to a passage, by its position."""
    more = entities or {}
    found = [Extraction(more.get(i, ()), tuple(triples)) for i, triples in enumerate(passages)]
    return fold(found)


class Embedder:
    """Texts to vectors: the cosines that a text is given with each item. A text without any has none with all."""

    def __init__(self, columns: Mapping[str, int], cosines: Mapping[str, Mapping[str, float]]) -> None:
        self.columns, self.cosines, self.calls = columns, cosines, 0

    def encode(self, texts: Sequence[str], is_query: bool = False) -> np.ndarray:
        """One row for each text; an unknown item raises KeyError."""
        self.calls += 1
        out = np.zeros((len(texts), len(self.columns)), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            for item, cosine in self.cosines.get(text, {}).items():
                row[self.columns[item]] = cosine
        return out


def index_of(graph: KnowledgeGraph, cosines: Mapping[str, Mapping[str, float]]) -> Any:
    """Return an index whose passages are `p0`, `p1`, ...

    Args:
        graph: the knowledge graph.
        cosines: text to item to cosine; items are names of entities, ids of relations, and ids of passages.
    """
    ids = [f"p{i}" for i in range(graph.num_passages)]
    relations = [graph.relation_id(r) for r in range(graph.num_relations)]
    columns = {item: i for i, item in enumerate([*graph.names, *relations, *ids])}
    assert len(columns) == graph.num_entities + graph.num_relations + len(ids), "items need names of their own"
    unit = np.eye(len(columns), dtype=np.float32)
    first, last = graph.num_entities, graph.num_entities + graph.num_relations
    rows = Lists.of([range(first), (), range(first, last), ()])
    return SimpleNamespace(
        ids=ids,
        passages=[Passage(id_, "", f"text of {id_}") for id_ in ids],
        knowledge=graph,
        knowledge_vectors=KnowledgeVectors(unit, rows),
        passage_vectors=unit[last:],
        embedder=Embedder(columns, cosines),
    )
