"""An index in memory whose cosines are given as numbers, for retrievers over the knowledge graph."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.parts import set_up
from gnnrag.session import Session
from gnnrag.types import Passage, Query, Ranking
from tests.helpers.parts import Scripted

Cosines = Mapping[str, Mapping[str, float]]  # text to what it is alike, by name, relation id, hyperedge or passage id


class Table:
    """Cosines of what a text is alike; everything else has none."""

    def __init__(self, cosines: Cosines) -> None:
        self.cosines, self.texts = cosines, list(cosines)

    def encode(self, texts: Sequence[str], is_query: bool = False) -> np.ndarray:
        """Return a vector that says which text it is."""
        return np.array([[self.texts.index(text) if text in self.texts else -1.0] for text in texts])

    def row(self, vector: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """Return the cosines of a text and some names."""
        known = self.cosines[self.texts[int(vector[0])]] if vector[0] >= 0 else {}
        return np.array([known.get(name, 0.0) for name in names])


class PassageTable:
    """Multiplies to cosines, as a matrix of passage vectors does."""

    def __init__(self, table: Table, ids: Sequence[str]) -> None:
        self.table, self.ids = table, ids

    def __matmul__(self, vector: np.ndarray) -> np.ndarray:
        return self.table.row(vector, self.ids)


def knowledge_index(graph: KnowledgeGraph, cosines: Cosines) -> Any:
    """Return what such retrievers read of an index; passages are c1, c2, ..."""
    table, ids = Table(cosines), [f"c{i + 1}" for i in range(graph.num_passages)]
    names = {
        "names": graph.names,
        "entities": graph.names,
        "relations": [graph.relation_id(r) for r in range(graph.num_relations)],
        "hyperedges": graph.hyper_texts,
    }
    return SimpleNamespace(
        ids=ids,
        position={id_: i for i, id_ in enumerate(ids)},
        passages=[Passage(id_, "", f"text of {id_}") for id_ in ids],
        knowledge=graph,
        knowledge_vectors=SimpleNamespace(scores=lambda kind, vector: table.row(vector, names[kind])),
        passage_vectors=PassageTable(table, ids),
        embedder=table,
    )


def ask(cls: type, index: Any, role: str, result: Any, query: Query | None = None, **settings: Any) -> Ranking:
    """Return the ranking of a query, `q` if none is given, with a role that answers `result`."""
    retriever = set_up(cls(**settings), index=index, roles={role: Scripted(role, result)})
    (ranking,) = asyncio.run(retriever.retrieve_for([query or Query("q")], Session("s")))
    return ranking
