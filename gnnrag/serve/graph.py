"""The graph of an index as small neighbourhoods: around a node, or along the passages of an answer.

An index with a knowledge graph has its entities and relations; any other the phrases that its passages share. Nodes are
called `p:ID` (a passage) and `e:NAME` (an entity or a phrase). Entities and passages are positions in the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from gnnrag.errors import DataError
from gnnrag.index.index import Index
from gnnrag.io import well_formed
from gnnrag.text.normalise import COUNTRY_OF, phrase_key

MOST = 60  # nodes of a neighbourhood
_LABEL, _ABOUT = 300, 1000  # characters on an edge, and of what is known of a node


class Phrases:
    def __init__(self, index: Index) -> None:
        self._graph = graph = index.hierarchy
        self.names: Sequence[str] = graph.phrases
        self.keys: Sequence[str] = graph.phrase_keys  # names without case and spelling, to search among
        self.degrees: np.ndarray = graph.degrees[graph.first_phrase :]

    def kind(self, name: int) -> str:
        return "phrase"

    def about(self, name: int) -> str:
        return ""  # nothing is known of a phrase besides its passages

    def passages_of(self, name: int) -> list[int]:
        return self._graph.passages_with(name)

    def names_in(self, passage: int) -> list[int]:
        """Return the entities of a passage: those that join it to others come first, rarest first."""
        names = {int(p) for s in self._graph.passage_sentences[passage] for p in self._graph.sentence_phrases[int(s)]}
        degrees = self.degrees
        return sorted((n for n in names if phrase_key(self.names[n])), key=lambda n: (degrees[n] < 2, degrees[n], n))

    def says(self, name: int, passage: int) -> str:
        """Return the first sentence of a passage that has the phrase."""
        rows = (int(s) for s in self._graph.passage_sentences[passage] if name in self._graph.sentence_phrases[int(s)])
        return next((self._graph.sentences[row] for row in rows), "")

    def related(self, name: int) -> Iterable[tuple[int, int, str]]:
        """Return relations of an entity as head, tail, label: phrases are joined by their passages alone."""
        return ()


class Entities:
    """The knowledge graph; methods as of `Phrases`."""

    def __init__(self, index: Index) -> None:
        self._graph = graph = index.knowledge
        self.names: Sequence[str] = graph.names
        self.keys: Sequence[str] = tuple(map(phrase_key, graph.names))
        self.degrees: np.ndarray = graph.edges.degrees

    def kind(self, name: int) -> str:
        return self._graph.types[name].partition("|")[0] or "entity"

    def about(self, name: int) -> str:
        also = "; ".join(self._graph.aliases[name])
        return " ".join(filter(None, (self._graph.descriptions[name], f"Also: {also}." if also else "")))

    def passages_of(self, name: int) -> list[int]:
        return self._graph.entity_passages[name].tolist()  # type: ignore[no-any-return]

    def names_in(self, passage: int) -> list[int]:
        return sorted(self._graph.passage_entities[passage].tolist(), key=lambda n: (-int(self.degrees[n]), n))

    def says(self, name: int, passage: int) -> str:
        rows = (r for r in self._graph.incident[name].tolist() if passage in self._graph.relation_passages[r])
        return next((self._graph.statement(row) for row in rows), "")

    def related(self, name: int) -> Iterable[tuple[int, int, str]]:
        for row in self._graph.incident[name].tolist():
            head, tail = self._graph.ends[row].tolist()
            yield head, tail, self._graph.labels[row].replace("_", " ") or self._graph.texts[row]


_OPENED: WeakKeyDictionary[Index, Phrases | Entities] = WeakKeyDictionary()


def open_graph(index: Index) -> Phrases | Entities:
    """Return the richest graph that an index has. DataError: it has none."""
    if index not in _OPENED and index.has("knowledge") and index.knowledge.num_entities:
        _OPENED[index] = Entities(index)
    if index not in _OPENED and index.has("hierarchy"):
        _OPENED[index] = Phrases(index)
    if index in _OPENED:
        return _OPENED[index]
    raise DataError(index.root.name, "has no graph; add one: gnnrag index build ... --stages=hierarchy")


class View:
    """A part of the graph: collects nodes and edges up to a limit of nodes."""

    def __init__(self, index: Index, limit: int = MOST) -> None:
        self.index, self.graph, self._limit = index, open_graph(index), max(1, min(limit, MOST))
        self._nodes: dict[str, dict[str, Any]] = {}
        self._edges: dict[tuple[str, str], dict[str, Any]] = {}

    def passage(self, row: int) -> str | None:
        """Add a passage and return its node; None: there is no room."""
        passage = self.index.passages[row]
        label = passage.title or passage.text[:60]
        return self._add(f"p:{passage.id}", label, "passage", len(self.graph.names_in(row)), "")

    def entity(self, name: int) -> str | None:
        """Add an entity and return its node; None: there is no room."""
        degree, about = len(self.graph.passages_of(name)), self.graph.about(name)[:_ABOUT]
        return self._add(f"e:{self.graph.names[name]}", self.graph.names[name], self.graph.kind(name), degree, about)

    def _add(self, id_: str, label: str, kind: str, degree: int, about: str) -> str | None:
        if id_ not in self._nodes:
            if len(self._nodes) >= self._limit:
                return None
            self._nodes[id_] = {"id": id_, "label": label, "type": kind, "degree": degree, "about": about}
        return id_

    def join(self, source: str | None, target: str | None, label: str) -> None:
        """Add an edge between nodes that found room, or another label to the one that is there."""
        if source is not None and target is not None and source != target:
            edge = self._edges.setdefault((source, target), {"source": source, "target": target, "label": ""})
            if label not in edge["label"]:
                edge["label"] = f"{edge['label']}; {label}".removeprefix("; ")[:_LABEL]

    def mention(self, row: int, name: int) -> None:
        """Add a passage, an entity in it, and an edge with the sentence about it, without the passage's title."""
        sentence = " ".join(self.graph.says(name, row).split())
        rest = sentence.removeprefix(" ".join(self.index.passages[row].title.split())).strip()
        self.join(self.passage(row), self.entity(name), rest if rest[:1].isupper() else sentence)

    def to_dict(self) -> dict[str, Any]:
        nodes, edges = list(self._nodes.values()), list(self._edges.values())
        return {"nodes": nodes, "edges": edges, "more": len(nodes) >= self._limit}


def neighbourhood(index: Index, node: str, limit: int = 25) -> dict[str, Any]:
    """Return what is around a node, `p:ID`, `e:NAME` or just a name. DataError: there is no such node."""
    view = View(index, limit)
    kind, _, rest = well_formed(node).partition(":")
    if kind == "p" and rest in index.position:
        row = index.position[rest]
        view.passage(row)
        for name in view.graph.names_in(row):
            view.mention(row, name)
        return view.to_dict()
    names = find(index, rest if kind == "e" else node, 1)
    if not names:
        raise DataError("graph", f"there is nothing called {node[:80]!r}; search for a part of its name")
    view.entity(names[0])
    for head, tail, label in view.graph.related(names[0]):
        view.join(view.entity(head), view.entity(tail), label)
    for row in view.graph.passages_of(names[0]):
        view.mention(row, names[0])
    return view.to_dict()


def answer_graph(index: Index, ids: Sequence[str], question: str) -> dict[str, Any]:
    """Return passages with the names that two of them share, or that the question has; unknown ids are left out."""
    view, asked = View(index), f" {phrase_key(question)} "  # words between blanks
    rows_ = (index.position.get(well_formed(id_)) for id_ in ids)
    names_in = {row: view.graph.names_in(row) for row in rows_ if row is not None}
    for row in names_in:
        view.passage(row)
    for name in dict.fromkeys(name for names in names_in.values() for name in names):
        rows = [row for row, names in names_in.items() if name in names]
        if not _is_common(view.graph.names[name]) and (len(rows) > 1 or f" {view.graph.keys[name]} " in asked):
            for row in rows:
                view.mention(row, name)
    return view.to_dict()


def find(index: Index, text: str, limit: int = 12) -> list[int]:
    """Return entities by name: equal first, then those that begin so, then those that hold it."""
    graph, key = open_graph(index), phrase_key(text) or text.casefold().strip()
    if not key:
        return []
    ranked = [(k != key, not k.startswith(key), len(k), row) for row, k in enumerate(graph.keys) if key in k]
    return [row for *_, row in sorted(ranked)[:limit]]


def titled(index: Index, text: str, limit: int = 6) -> list[int]:
    """Return the passages whose title holds a text, the shortest titles first."""
    key = well_formed(text).casefold().strip()
    ranked = [(len(p.title), row) for row, p in enumerate(index.passages) if key and key in p.title.casefold()]
    return [row for _, row in sorted(ranked)[:limit]]


def busiest(index: Index, limit: int = 12) -> list[int]:
    """Return the entities with the most neighbours, to begin a walk at; names that say little are left out."""
    graph = open_graph(index)
    order = np.argsort(-graph.degrees, kind="stable")[: 20 * limit].tolist()
    return ([row for row in order if not _is_common(graph.names[row])] or order)[:limit]


def _is_common(name: str) -> bool:
    """Tell whether passages share a name by chance: a date, a number, a country or its people."""
    return name[:1].isdigit() or name in COUNTRY_OF
