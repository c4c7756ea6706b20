"""The worked trace of `specs/dotrag.md` 13: a graph of ships and ports, an index of exact cosines, and small KBs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.graphs.folding import fold
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.embedder import Embedder
from gnnrag.types import Passage, Question

QUESTION = Question(
    "q", "at which ports did the ships built by Ada Renn's yard first dock?", ("PORT OLAV", "PORT SABLE"),
    extra={"nodes": ["PORT OLAV", "PORT SABLE"], "anchor": "ADA RENN"},
)  # fmt: skip
HERON, YARD = "where did MV Heron first dock?", "which ships did Renn Shipyard build?"
NAMES = {
    "n1": ("ADA RENN", "person"), "n2": ("RENN SHIPYARD", "company"), "n3": ("MV HERON", "ship"),
    "n4": ("MV PLOVER", "ship"), "n5": ("PORT OLAV", "port"), "n6": ("PORT SABLE", "port"), "n7": ("1974", "year"),
    "n8": ("NORTH SEA", "region"), "n9": ("TOMAS RENN", "person"), "n10": ("SALT", "cargo"),
}  # fmt: skip
EDGES = [
    ("n1", "founded", "n2"), ("n2", "built", "n3"), ("n2", "built", "n4"), ("n3", "first docked", "n5"),
    ("n4", "first docked", "n6"), ("n3", "launched", "n7"), ("n4", "launched", "n7"), ("n5", "located in", "n8"),
    ("n6", "located in", "n8"), ("n1", "sibling", "n9"), ("n3", "carries", "n10"), ("n9", "trades", "n10"),
]  # fmt: skip
COSINES = {
    QUESTION.text: {"n2": 0.71, "n3": 0.66, "n9": 0.58, "n5": 0.55, "n4": 0.54, "n6": 0.50},
    HERON: {"n5": 0.74, "n6": 0.61, "n4": 0.49},
    YARD: {"n4": 0.77, "n6": 0.42, "n5": 0.41},
}


def typed_graph(triples: Sequence[tuple[str, str, str]], types: Mapping[str, str]) -> KnowledgeGraph:
    """Return a graph with one passage for each entity, in order of first appearance, that states its triples."""
    around: dict[str, list[tuple[str, str, str]]] = {}
    for triple in triples:
        for name in (triple[0], triple[2]):
            around.setdefault(name, []).append(triple)
    found = [
        Extraction(
            tuple(dict.fromkeys(n for h, _, t in facts for n in (h, t))),
            tuple(facts),
            details=(EntityRecord(name, types[name]),),
            names_are_ids=True,
        )
        for name, facts in around.items()
    ]
    return fold(found)


def trace_graph() -> KnowledgeGraph:
    """Return the graph of the trace; names sort otherwise than their numbers."""
    triples = [(NAMES[h][0], r, NAMES[t][0]) for h, r, t in EDGES]
    return typed_graph(triples, dict(NAMES.values()))


def at(graph: KnowledgeGraph, *numbers: str) -> tuple[int, ...]:
    """Return the positions of n1, n2, ..."""
    return tuple(graph.position[NAMES[n][0]] for n in numbers)


class StubEmbedder(Embedder):
    """Gives each text a direction of its own."""

    identity, dim = "stub", 64

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def encode(self, texts: Sequence[str], is_query: bool = False) -> np.ndarray:
        """See `Embedder`."""
        out = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            row[self.texts.setdefault(text, len(self.texts)) % self.dim] = 1.0
        return out


class StubIndex:
    """An index whose cosines are a table: query text to node name to cosine; everything else is 0.

    Args:
        graph: the knowledge graph.
        cosines: of the queries.
    """

    def __init__(self, graph: KnowledgeGraph, cosines: Mapping[str, Mapping[str, float]]) -> None:
        self.knowledge, self.cosines, self.embedder = graph, cosines, StubEmbedder()
        self.knowledge_vectors = SimpleNamespace(scores=self._scores)
        self.passages = []
        for number in range(graph.num_passages):
            inside = graph.passage_entities[number].tolist()
            self.passages.append(Passage(f"c{number}", "", ", ".join(graph.names[n] for n in inside)))
        self.ids = [p.id for p in self.passages]
        self.position = {id_: i for i, id_ in enumerate(self.ids)}

    def _scores(self, table: str, vector: np.ndarray) -> np.ndarray:
        count = self.knowledge.num_entities if table == "entities" else self.knowledge.num_relations
        scores = np.zeros(count, dtype=np.float32)
        text = list(self.embedder.texts)[int(np.argmax(vector))]
        for name, value in self.cosines.get(text, {}).items() if table == "entities" else ():
            scores[self.knowledge.position[name]] = value
        return scores

    def dense_scores(self, queries: Sequence[str]) -> np.ndarray:
        """Return zeros: what is ranked is ranked by paths."""
        return np.zeros((len(queries), len(self.ids)))

    def lookup(self, ids: Any) -> tuple[Passage, ...]:
        """See `Index`."""
        return tuple(self.passages[self.position[i]] for i in ids)


def trace_index() -> StubIndex:
    """Return the trace's index."""
    table = {text: {NAMES[n][0]: value for n, value in row.items()} for text, row in COSINES.items()}
    return StubIndex(trace_graph(), table)
