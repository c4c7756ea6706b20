"""Which few nodes of a knowledge graph to show: around an entity, or for a question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnnrag.errors import DataError, nearest
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.index import Index
from gnnrag.text.normalise import FUNCTION_WORDS, phrase_key, words

MAX_NODES = 30
_MAX_NAMED = 5  # names of a question that are looked at
_MAX_HOPS = 4  # longest path drawn between two of them
_MAX_WORDS = 10  # longest name looked for
Role = Literal["focus", "path", "neighbour", "second"]


@dataclass(frozen=True)
class Subgraph:
    """A few entities (`nodes`, positions, the most important first) and all relations among them.

    `roles` say why each is there: `focus` (asked for or named), `path` (between two of those), `neighbour` of one of
    these, `second` (a neighbour's neighbour). `pairs` (n, 2) int32 are joined places in `nodes`, the smaller first,
    sorted; `relations` holds those of each pair, ascending.
    """

    title: str
    nodes: tuple[int, ...]
    roles: tuple[Role, ...]
    pairs: np.ndarray
    relations: tuple[tuple[int, ...], ...]


def around_entity(graph: KnowledgeGraph, name: str, limit: int = MAX_NODES) -> Subgraph:
    """Return an entity with the best of its neighbours (two thirds of the places) and of theirs.

    Best: weight of relations to what is chosen, then degree, then position. Raises DataError naming near entities.
    """
    centre = find_entity(graph, name)
    chosen: dict[int, Role] = {centre: "focus"}
    around = _ranked(graph, chosen, graph.neighbours[centre].tolist())
    second = [n for i in around for n in graph.neighbours[i].tolist()]
    is_more = len(set(second) - {centre, *around}) > 0
    share = limit - (limit - 1) // 3 if is_more else limit
    for node in around[: share - 1]:
        chosen[node] = "neighbour"
    beyond = [n for i in chosen for n in graph.neighbours[i].tolist() if n not in chosen and n not in around]
    for node in _ranked(graph, chosen, beyond)[: limit - len(chosen)]:
        chosen[node] = "second"
    for node in around[share - 1 :][: limit - len(chosen)]:
        chosen[node] = "neighbour"
    return _induced(graph, graph.names[centre], chosen)


def for_question(index: Index, text: str, limit: int = MAX_NODES) -> Subgraph:
    """Return what a question names, shortest paths between the names, and the neighbours nearest to the question.

    Nearness is the cosine to the question where the index has `knowledge_vectors`, else as in `around_entity`. A
    question that names nothing starts from the nearest entities. Raises DataError where there are no vectors for that.
    """
    graph = index.knowledge
    named = named_entities(graph, text)[:_MAX_NAMED]
    scores = None
    if index.has("knowledge_vectors") and graph.num_entities:
        scores = index.knowledge_vectors.scores("entities", index.embedder.encode([text], is_query=True)[0])
    if not named:
        if scores is None:
            raise DataError(index.root, f"the question {text!r} names no entity of the index; give --entity NAME")
        named = np.argsort(-scores, kind="stable")[:2].tolist()
    chosen: dict[int, Role] = dict.fromkeys(named, "focus")
    for i, start in enumerate(named):
        for goal in named[i + 1 :]:
            for node in shortest_path(graph, start, goal)[: limit - len(chosen)]:
                chosen.setdefault(node, "path")
    while len(chosen) < limit:
        around = [n for i in chosen for n in graph.neighbours[i].tolist() if n not in chosen]
        if not around:
            break
        best = _ranked(graph, chosen, around)
        if scores is not None:
            best = sorted(best, key=lambda n: (-float(scores[n]), n))
        role: Role = "second" if "neighbour" in chosen.values() else "neighbour"
        chosen |= dict.fromkeys(best[: limit - len(chosen)], role)
    return _induced(graph, text, chosen)


def find_entity(graph: KnowledgeGraph, name: str) -> int:
    """Return the position of an entity by name, spelling or alias. Raises DataError, naming near ones."""
    if name in graph.position:
        return graph.position[name]
    key = phrase_key(name) or name.casefold()
    for i, (own, others) in enumerate(zip(graph.names, graph.aliases, strict=True)):
        if any(key == (phrase_key(spelling) or spelling.casefold()) for spelling in (own, *others)):
            return i
    near = [own for own in graph.names if key in own.casefold()][:5]
    hint = f"Entities like it: {', '.join(near)}" if near else nearest(name, list(graph.names)[:5000])[:300]
    raise DataError("--entity", f"the index has no entity {name!r}. {hint}")


def named_entities(graph: KnowledgeGraph, text: str) -> list[int]:
    """Return the entities that a text names, longest names first, no two overlapping; case and accents are ignored."""
    names: dict[str, int] = {}
    for i, (own, others) in enumerate(zip(graph.names, graph.aliases, strict=True)):
        for spelling in (own, *others):
            names.setdefault(phrase_key(spelling), i)
    tokens = [(word, any(c.isupper() or c.isdigit() for c in raw)) for raw in text.split() for word in words(raw)]
    marked = any(is_marked for _, is_marked in tokens[1:])
    taken = [False] * len(tokens)
    named: dict[int, None] = {}
    for length in range(min(_MAX_WORDS, len(tokens)), 0, -1):
        for start in range(len(tokens) - length + 1):
            span = tokens[start : start + length]
            if any(taken[start : start + length]) or all(word in FUNCTION_WORDS for word, _ in span):
                continue
            if marked and not any(is_marked and word not in FUNCTION_WORDS for word, is_marked in span):
                continue  # where names have capitals, what has none is a common word
            entity = names.get(" ".join(word for word, _ in span))
            if entity is not None:
                named[entity] = None
                taken[start : start + length] = [True] * length
    return list(named)


def shortest_path(graph: KnowledgeGraph, start: int, goal: int) -> list[int]:
    """Return a path of at most four relations with both ends, that of lowest positions on ties; empty without one."""
    before: dict[int, int] = {start: start}
    frontier = [start]
    for _ in range(_MAX_HOPS):
        reached: dict[int, int] = {}
        for node in frontier:
            for other in graph.neighbours[node].tolist():
                if other not in before:
                    reached.setdefault(other, node)
        before |= reached
        if goal in before:
            path = [goal]
            while path[-1] != start:
                path.append(before[path[-1]])
            return path[::-1]
        frontier = sorted(reached)
    return []


def _ranked(graph: KnowledgeGraph, chosen: Iterable[int], candidates: Sequence[int]) -> list[int]:
    """Return the distinct candidates, best first: by weight to what is chosen, then degree, then position.

    Of a chosen entity with many neighbours each counts for less: all hang on a hub.
    """
    ends, of_relation, weights = graph.pairs
    mine = set(chosen)
    rows = []
    for node in dict.fromkeys(candidates):
        if node not in mine:
            pairs = dict.fromkeys(int(of_relation[r]) for r in graph.incident[node].tolist())
            joined = ((p, mine.intersection(ends[p].tolist())) for p in pairs)
            weight = sum(float(weights[p]) / int(graph.degrees[min(near)]) for p, near in joined if near)
            rows.append((-weight, -int(graph.degrees[node]), node))
    return [node for *_, node in sorted(rows)]


def _induced(graph: KnowledgeGraph, title: str, chosen: dict[int, Role]) -> Subgraph:
    place = {node: i for i, node in enumerate(chosen)}
    joined: dict[tuple[int, int], list[int]] = {}
    for node, i in place.items():
        for relation in graph.incident[node].tolist():
            head, tail = (place.get(end, -1) for end in graph.ends[relation].tolist())
            if min(head, tail) >= 0 and i == head:
                joined.setdefault((min(head, tail), max(head, tail)), []).append(relation)
    pairs = sorted(joined)
    return Subgraph(
        title,
        tuple(chosen),
        tuple(chosen.values()),
        np.array(pairs, dtype=np.int32).reshape(-1, 2),
        tuple(tuple(sorted(joined[pair])) for pair in pairs),
    )
