"""The graph of an index as small neighbourhoods: around a node, or along the passages of an answer.

An index with a knowledge graph has its entities and relations; any other the phrases that its passages share. Nodes are
named `p:ID` (a passage) and `e:NAME` (an entity or a phrase).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from gnnrag.errors import DataError
from gnnrag.extract.entity_types import mentioned_type, named_type
from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.index import Index
from gnnrag.text.normalise import phrase_key

MOST = 60  # nodes of a neighbourhood
_LABEL, _ABOUT = 300, 1000  # characters on an edge, and of what is known of a node
_COMMON = ("date", "number", "nationality")  # what two passages share without having to do with each other
Edge = dict[str, Any]


class Graph(Protocol):
    """What both kinds of graph tell."""

    @property
    def names(self) -> Sequence[str]:
        """The entities."""

    @property
    def keys(self) -> Sequence[str]:
        """Their names without case and spelling, to search among."""

    def kind(self, name: int) -> str:
        """Return the type of an entity."""

    def about(self, name: int) -> str:
        """Return what is known of an entity besides its relations, and its other names."""

    def passages_of(self, name: int) -> list[int]:
        """Return the passages that name an entity."""

    def names_in(self, passage: int) -> list[int]:
        """Return the entities of a passage, those of most use first."""

    def says(self, name: int, passage: int) -> str:
        """Return what a passage says of an entity: a sentence."""

    def related(self, name: int) -> Iterable[tuple[int, int, str]]:
        """Return relations of an entity: head, tail, what they are."""


class Phrases:
    """The hierarchy of passages, sentences and phrases."""

    def __init__(self, graph: HierarchyGraph) -> None:
        self._graph = graph
        self.names: Sequence[str] = graph.phrases
        self.keys: Sequence[str] = graph.phrase_keys

    def kind(self, name: int) -> str:
        """Return the type that a phrase's name tells, or the words before it where it first stands."""
        first = next(iter(self.passages_of(name)), None)
        said = self.says(name, first) if first is not None else ""
        return named_type(self.names[name]) or mentioned_type(self.names[name], said) or "phrase"

    def about(self, name: int) -> str:
        """Return nothing: a phrase is what its passages say."""
        return ""

    def passages_of(self, name: int) -> list[int]:
        """Return the passages that have a phrase."""
        return self._graph.passages_with(name)

    def names_in(self, passage: int) -> list[int]:
        """Return the phrases of a passage, those that join it to others first, the rarest of them."""
        found = {int(p) for s in self._graph.sentences_of(passage) for p in self._graph.phrases_of(int(s))}
        degrees = self._graph.degrees[self._graph.first_phrase :]
        return sorted((n for n in found if phrase_key(self.names[n])), key=lambda n: (degrees[n] < 2, degrees[n], n))

    def says(self, name: int, passage: int) -> str:
        """Return the first sentence of the passage that has the phrase."""
        rows = (int(s) for s in self._graph.sentences_of(passage) if name in self._graph.phrases_of(int(s)))
        return next((self._graph.sentences[row] for row in rows), "")

    def related(self, name: int) -> Iterable[tuple[int, int, str]]:
        """Return nothing: phrases are joined by their passages."""
        return ()


class Entities:
    """The knowledge graph."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self._graph = graph
        self.names: Sequence[str] = graph.names
        self.keys: Sequence[str] = tuple(map(phrase_key, graph.names))

    def kind(self, name: int) -> str:
        """Return the type that was extracted."""
        return self._graph.types[name].partition("|")[0] or named_type(self.names[name]) or "entity"

    def about(self, name: int) -> str:
        """Return the description that was extracted, and the other spellings."""
        also = "; ".join(self._graph.aliases[name])
        return " ".join(filter(None, (self._graph.descriptions[name], f"Also: {also}." if also else "")))

    def passages_of(self, name: int) -> list[int]:
        """Return the passages that mention an entity."""
        return self._graph.entity_passages[name].tolist()  # type: ignore[no-any-return]

    def names_in(self, passage: int) -> list[int]:
        """Return the entities of a passage, the best joined first."""
        degrees = self._graph.degrees
        return sorted(self._graph.passage_entities[passage].tolist(), key=lambda n: (-int(degrees[n]), n))

    def says(self, name: int, passage: int) -> str:
        """Return the first statement on the entity from this passage."""
        for row in self._graph.incident[name].tolist():
            if passage in self._graph.relation_passages[row]:
                return self._graph.statement(row)
        return ""

    def related(self, name: int) -> Iterable[tuple[int, int, str]]:
        """Return the relations of an entity."""
        for row in self._graph.incident[name].tolist():
            head, tail = self._graph.ends[row].tolist()
            yield head, tail, self._graph.labels[row].replace("_", " ") or self._graph.texts[row]


_OPENED: WeakKeyDictionary[Index, Graph] = WeakKeyDictionary()


def open_graph(index: Index) -> Graph:
    """Return the richest graph that an index has. DataError: it has none."""
    if index not in _OPENED and index.store.key("knowledge") is not None and index.knowledge.num_entities:
        _OPENED[index] = Entities(index.knowledge)
    if index not in _OPENED and index.store.key("hierarchy") is not None:
        _OPENED[index] = Phrases(index.hierarchy)
    if index in _OPENED:
        return _OPENED[index]
    raise DataError(index.store.root.name, "has no graph; add one: gnnrag index build ... index.stages=hierarchy")


class View:
    """Nodes and edges as they are collected, up to a limit."""

    def __init__(self, index: Index, limit: int) -> None:
        self.index, self.graph, self._limit = index, open_graph(index), max(1, min(limit, MOST))
        self._nodes: dict[str, dict[str, Any]] = {}
        self._edges: dict[tuple[str, str], Edge] = {}

    def passage(self, row: int) -> str | None:
        """Add a passage; None: there is no room."""
        passage = self.index.passages[row]
        label = passage.title or passage.text[:60]
        return self._add(f"p:{passage.id}", label, "passage", len(self.graph.names_in(row)), "")

    def entity(self, name: int) -> str | None:
        """Add an entity; None: there is no room."""
        degree = len(self.graph.passages_of(name))
        label, about = self.graph.names[name], self.graph.about(name)[:_ABOUT]
        return self._add(f"e:{label}", label, self.graph.kind(name), degree, about)

    def _add(self, id_: str, label: str, kind: str, degree: int, about: str) -> str | None:
        if id_ not in self._nodes:
            if len(self._nodes) >= self._limit:
                return None
            self._nodes[id_] = {"id": id_, "label": label, "type": kind, "degree": degree, "about": about}
        return id_

    def join(self, one: str | None, other: str | None, label: str) -> None:
        """Add an edge between what found room."""
        if one is not None and other is not None and one != other:
            self._edges.setdefault((one, other), {"source": one, "target": other, "label": label[:_LABEL]})

    def says(self, name: int, row: int) -> str:
        """Return what a passage says of an entity, without a title that stands before the sentence."""
        said, title = (" ".join(text.split()) for text in (self.graph.says(name, row), self.index.passages[row].title))
        rest = said.removeprefix(title).strip()
        return rest if rest[:1].isupper() else said

    def around_passage(self, row: int) -> None:
        """Add a passage with what it names."""
        centre = self.passage(row)
        for name in self.graph.names_in(row):
            self.join(centre, self.entity(name), self.says(name, row))

    def around_entity(self, name: int) -> None:
        """Add an entity with its relations and its passages."""
        centre = self.entity(name)
        for head, tail, label in self.graph.related(name):
            self.join(self.entity(head), self.entity(tail), label)
        for row in self.graph.passages_of(name):
            self.join(self.passage(row), centre, self.says(name, row))

    def along(self, rows: Sequence[int], question: str) -> None:
        """Add passages with what joins them: names that two of them share, and those that the question has."""
        asked = f" {phrase_key(question)} "  # words between blanks
        named = {row: self.graph.names_in(row) for row in rows}
        for row in rows:
            self.passage(row)
        for name in dict.fromkeys(name for names in named.values() for name in names):
            own = [row for row in rows if name in named[row]]
            if self.graph.kind(name) in _COMMON:
                continue
            if len(own) > 1 or f" {self.graph.keys[name]} " in asked:
                for row in own:
                    self.join(self.passage(row), self.entity(name), self.says(name, row))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data; `more` tells of what found no room."""
        nodes, edges = list(self._nodes.values()), list(self._edges.values())
        return {"nodes": nodes, "edges": edges, "more": len(nodes) >= self._limit}


def neighbourhood(index: Index, node: str, limit: int = 25) -> dict[str, Any]:
    """Return what is around a node, `p:ID`, `e:NAME` or just a name. DataError: there is no such node."""
    view = View(index, limit)
    kind, _, rest = node.partition(":")
    if kind == "p" and rest in index.position:
        view.around_passage(index.position[rest])
        return view.to_dict()
    found = find(index, rest if kind == "e" else node, 1)
    if not found:
        raise DataError("graph", f"there is nothing called {node[:80]!r}; search for a part of its name")
    view.around_entity(found[0])
    return view.to_dict()


def answer_graph(index: Index, ids: Sequence[str], question: str) -> dict[str, Any]:
    """Return the passages of an answer and what joins them; ids that the index has not are left out."""
    view = View(index, MOST)
    view.along([index.position[id_] for id_ in ids if id_ in index.position], question)
    return view.to_dict()


def find(index: Index, text: str, limit: int = 12) -> list[int]:
    """Return entities by name: equal first, then those that begin so, then those that hold it; positions."""
    graph, key = open_graph(index), phrase_key(text) or text.casefold().strip()
    if not key:
        return []
    ranked = []
    for row, own in enumerate(graph.keys):
        if key in own:
            ranked.append((own != key, not own.startswith(key), len(own), row))
    return [row for *_, row in sorted(ranked)[:limit]]


def titled(index: Index, text: str, limit: int = 6) -> list[int]:
    """Return the passages whose title holds a text, the shortest titles first; positions."""
    key = text.casefold().strip()
    found = [(len(p.title), row) for row, p in enumerate(index.passages) if key and key in p.title.casefold()]
    return [row for _, row in sorted(found)[:limit]]


def busiest(index: Index, limit: int = 12) -> list[int]:
    """Return the entities that stand in most passages, those that say little left out: where a walk may begin."""
    graph = open_graph(index)
    if isinstance(graph, Phrases):
        tree = index.hierarchy
        counts = tree.degrees[tree.first_phrase :]
    else:
        counts = index.knowledge.degrees
    order = np.argsort(-counts, kind="stable")[: 20 * limit].tolist()
    typed = [row for row in order if graph.kind(row) not in ("phrase", "entity", *_COMMON)]
    return (typed or order)[:limit]
