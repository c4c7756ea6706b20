"""A subgraph of a knowledge graph as one HTML page, whose content policy allows its own script (by hash) alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from gnnrag.errors import DataError, nearest
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.index import Index
from gnnrag.pages import fill, inert
from gnnrag.text.normalise import FUNCTION_WORDS, phrase_key, words
from gnnrag.types import Passage

MAX_PASSAGES = 6  # of a node or an edge
MAX_STATEMENTS = 12  # of an edge
_ROLE_NAMES = {"focus": "asked for", "path": "on a path", "neighbour": "neighbour", "second": "second hop"}
_EDGE_WORDS = 3  # of a sentence that are written on an edge
_KINDS = 8  # colours


def render_page(graph: KnowledgeGraph, subgraph: Subgraph, passages: Sequence[Passage]) -> str:
    """Return the page as HTML; `passages` is the corpus, in index order."""
    data = page_data(graph, subgraph, passages)
    folder = files("gnnrag.pages") / "assets"
    script, style = ((folder / name).read_text("utf-8") for name in ("graph.js", "graph.css"))
    template = (folder / "graph.html").read_text("utf-8")
    return fill(template, f"{subgraph.title} · gnnrag", style, script, {"DATA": inert(data)})


def page_data(graph: KnowledgeGraph, subgraph: Subgraph, passages: Sequence[Passage]) -> dict[str, Any]:
    """Return what the page's script reads: places, labels, texts and passages, as JSON data."""
    kinds = _kinds(graph, subgraph)
    labels = [_cut(graph.names[n], NODE_CHARACTERS) for n in subgraph.nodes]
    edge_labels = [_cut(_edge_label(graph, rows), EDGE_CHARACTERS) for rows in subgraph.relations]
    layout = lay_out(labels, subgraph.pairs, edge_labels)
    nodes, edges = [], []
    for place, node in enumerate(subgraph.nodes):
        x, y = layout.nodes[place].round(1).tolist()
        nodes.append({
            "name": graph.names[node], "label": labels[place], "type": graph.types[node].replace("|", ", "),
            "kind": kinds[place], "role": subgraph.roles[place], "degree": int(graph.degrees[node]),
            "description": graph.descriptions[node], "aliases": list(graph.aliases[node]), "x": x, "y": y,
            "passages": _some(passages, graph.entity_passages[node].tolist()),
            "of": len(graph.entity_passages[node]),
        })  # fmt: skip
    for place, ((a, b), rows) in enumerate(zip(subgraph.pairs.tolist(), subgraph.relations, strict=True)):
        x, y = layout.edge_labels[place].round(1).tolist()
        sources = sorted({p for r in rows for p in graph.relation_passages[r].tolist()})
        edges.append({
            "a": a, "b": b, "label": edge_labels[place], "x": x, "y": y, "shown": bool(layout.is_shown[place]),
            "statements": [_statement(graph, r) for r in rows[:MAX_STATEMENTS]], "count": len(rows),
            "passages": _some(passages, sources), "of": len(sources),
        })  # fmt: skip
    legend = [{"kind": i, "name": name} for name, i in _legend(kinds, graph, subgraph).items()]
    used = sorted({p["at"] for item in (*nodes, *edges) for p in item["passages"]})
    return {
        "title": subgraph.title, "width": WIDTH, "height": HEIGHT, "nodes": nodes, "edges": edges, "legend": legend,
        "roles": {role: _ROLE_NAMES[role] for role in _ROLE_NAMES if role in subgraph.roles},
        "passages": {str(i): asdict(passages[i]) for i in used},
    }  # fmt: skip


def _some(passages: Sequence[Passage], chosen: Sequence[int]) -> list[dict[str, int]]:
    """Return places of the first passages; each is embedded once, however many things it says."""
    return [{"at": i} for i in chosen[:MAX_PASSAGES] if i < len(passages)]


def _statement(graph: KnowledgeGraph, relation: int) -> dict[str, str]:
    head, tail = graph.ends[relation].tolist()
    label = graph.labels[relation].replace("_", " ")
    return {"head": graph.names[head], "label": label, "tail": graph.names[tail], "text": graph.texts[relation]}


def _edge_label(graph: KnowledgeGraph, relations: Sequence[int]) -> str:
    """Return what to write on an edge: the label of its strongest relation, or what its sentence says of the two."""
    best = min(relations, key=lambda r: (-float(graph.weights[r]), r))
    label = graph.labels[best].replace("_", " ")
    if not label:
        head, tail = (graph.names[end] for end in graph.ends[best].tolist())
        label = _words_before(graph.texts[best].partition("\n")[0], head, tail)
    return f"{label} (+{len(relations) - 1})" if len(relations) > 1 else label


def _words_before(sentence: str, head: str, tail: str) -> str:
    """Return the few words of a sentence before it names `tail`, or after it: `directed by`."""
    one, other = sorted((name.casefold().rstrip("s") for name in (head, tail)), key=len)
    if one and other.endswith(f" {one}"):  # `thyroid cancer`, `cancer`
        return "a kind of"
    before, named, after = sentence.partition(tail)
    if not named:
        return " ".join(sentence.split()[:4])
    run = before.rpartition(head)[2] if head else before
    near = run.split()[-_EDGE_WORDS:] or after.partition(head or ".")[0].split()[:_EDGE_WORDS]
    return " ".join(near).strip(" .,;:()-–")


def _cut(text: str, count: int) -> str:
    text = " ".join(text.split())
    body, bracket, rest = text.rpartition(" (+")
    tail = f"{bracket}{rest}" if bracket else ""
    body = body if bracket else text
    return text if len(text) <= count else body[: count - 1 - len(tail)].rstrip() + "…" + tail


def _kinds(graph: KnowledgeGraph, subgraph: Subgraph) -> list[int]:
    """Return the colour of each node: by type where any is known, else by role; colour 0 is for no type."""
    names = [graph.types[n] for n in subgraph.nodes]
    if not any(names):
        order: Mapping[str, int] = {role: i + 1 for i, role in enumerate(_ROLE_NAMES)}
        return [order[role] for role in subgraph.roles]
    counts = {name: names.count(name) for name in sorted(set(names)) if name}
    ranked = sorted(counts, key=lambda name: (-counts[name], name))[: _KINDS - 1]
    return [ranked.index(name) + 1 if name in ranked else 0 for name in names]


def _legend(kinds: Sequence[int], graph: KnowledgeGraph, subgraph: Subgraph) -> dict[str, int]:
    is_typed = any(graph.types[n] for n in subgraph.nodes)
    named: dict[str, int] = {}
    for place, kind in sorted(enumerate(kinds), key=lambda row: (row[1] == 0, row[1])):
        name = graph.types[subgraph.nodes[place]] if is_typed else _ROLE_NAMES[subgraph.roles[place]]
        named.setdefault("other or unknown" if kind == 0 else name.replace("|", ", "), kind)
    return named


# Which few nodes of a knowledge graph to show: around an entity, or for a question.

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
    if index.store.key("knowledge_vectors") is not None and graph.num_entities:
        scores = index.knowledge_vectors.scores("entities", index.embedder.encode([text], is_query=True)[0])
    if not named:
        if scores is None:
            raise DataError(index.store.root, f"the question {text!r} names no entity of the index; give --entity NAME")
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


# Where nodes and labels of a small graph go: forces, then room for every label. Same graph, same drawing.

WIDTH, HEIGHT = 1180.0, 840.0
NODE_CHARACTERS, EDGE_CHARACTERS = 26, 22  # longer labels are cut
_RADIUS = 11.0  # of a node
_NODE_FONT, _EDGE_FONT = 8.2, 6.6  # width of a character of a label
_NODE_LINE, _EDGE_LINE = 19.0, 14.5  # height of a line
_MARGIN = 12.0
_STEPS = 400
_PLACES = (0.5, 0.44, 0.56, 0.38, 0.62, 0.32, 0.68, 0.26, 0.74, 0.2, 0.8)  # where on an edge its label may stand


@dataclass(frozen=True)
class Layout:
    """Coordinates within WIDTH x HEIGHT: (n, 2) centres of nodes, each with its label below, and (m, 2) of edge labels.

    `is_shown` (m,) says whether an edge's label finds room; the others are to be shown on demand.
    """

    nodes: np.ndarray
    edge_labels: np.ndarray
    is_shown: np.ndarray


def lay_out(labels: Sequence[str], pairs: np.ndarray, edge_labels: Sequence[str]) -> Layout:
    """Place nodes by forces (Fruchterman and Reingold 1991), push label boxes apart, then place the edges' labels.

    `labels` (n,) are of nodes, the first drawn to the middle; `pairs` is (m, 2), `edge_labels` (m,).
    """
    sizes = _node_boxes(labels)
    nodes = _apart(_by_forces(len(labels), pairs), sizes)
    boxes = np.concatenate([nodes + np.array([0, _NODE_LINE / 2]), sizes], axis=1)
    places, shown = [], []
    taken = [tuple(row) for row in boxes.tolist()]
    for (a, b), text in zip(pairs.tolist(), edge_labels, strict=True):
        width = min(len(text), EDGE_CHARACTERS) * _EDGE_FONT + 6
        options = [(*(nodes[a] + t * (nodes[b] - nodes[a])).tolist(), width, _EDGE_LINE) for t in _PLACES]
        free = [box for box in options if not any(_overlap(box, other) > 0 for other in taken)]
        places.append((free or options)[0][:2])
        shown.append(bool(free))
        taken += free[:1]
    return Layout(nodes, np.array(places).reshape(-1, 2), np.array(shown, dtype=bool))


def _node_boxes(labels: Sequence[str]) -> np.ndarray:
    """Return width and height of each node with the label below it. Shape (n, 2)."""
    widths = [max(2 * _RADIUS, min(len(text), NODE_CHARACTERS) * _NODE_FONT) for text in labels]
    return np.array([(w + _MARGIN, 2 * _RADIUS + _NODE_LINE + _MARGIN) for w in widths]).reshape(-1, 2)


def _by_forces(count: int, pairs: np.ndarray) -> np.ndarray:
    """Return positions from attraction along edges and repulsion between all. Shape (count, 2)."""
    if count < 2:
        return np.array([[WIDTH / 2, HEIGHT / 2]])[:count]
    angles = np.arange(count) * 2.399963  # the golden angle spreads a spiral evenly
    radii = np.sqrt(np.arange(count) / count)
    # The unit square; stretched to the page at the end.
    at = np.stack([0.5 + 0.45 * radii * np.cos(angles), 0.5 + 0.45 * radii * np.sin(angles)], axis=1)
    ideal = 0.85 / np.sqrt(count)
    first, second = pairs.T if len(pairs) else (np.zeros(0, int), np.zeros(0, int))
    for step in range(_STEPS):
        gaps = at[:, None, :] - at[None, :, :]
        distances = np.maximum(np.linalg.norm(gaps, axis=2), 1e-4)
        forces = (gaps * (ideal**2 / distances**2)[:, :, None]).sum(axis=1)
        pulls = gaps[first, second] * (distances[first, second] / ideal)[:, None]
        np.add.at(forces, first, -pulls)
        np.add.at(forces, second, pulls)
        forces += 0.6 * (0.5 - at) * ideal * 3  # parts that nothing joins must not drift away
        forces[0] += 2.0 * (0.5 - at[0]) * ideal * 3
        lengths = np.maximum(np.linalg.norm(forces, axis=1, keepdims=True), 1e-9)
        at += forces / lengths * np.minimum(lengths, 0.1 * (1 - step / _STEPS) ** 1.5 + 0.001)
    low, high = at.min(axis=0), at.max(axis=0)
    room = np.array([WIDTH - 220, HEIGHT - 110])
    return (at - low) / np.maximum(high - low, 1e-9) * room + [110, 45]


def _apart(at: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Push boxes apart along the shorter way until none overlap, staying on the page. Shape (n, 2)."""
    at = at.copy()
    low, high = sizes / 2 + [4, -4], np.array([WIDTH, HEIGHT]) - sizes / 2 - [4, 22]
    for _ in range(600):
        gaps = at[:, None, :] - at[None, :, :]
        needed = (sizes[:, None, :] + sizes[None, :, :]) / 2
        over = needed - np.abs(gaps)
        both = (over > 0).all(axis=2)
        np.fill_diagonal(both, False)
        if not both.any():
            break
        i, j = np.nonzero(np.triu(both))
        axis = (over[i, j, 0] > over[i, j, 1]).astype(int)
        rows = np.arange(len(i))
        # Two in the same place part by their order.
        sign = np.where(gaps[i, j, axis] == 0, -1.0, np.sign(gaps[i, j, axis]))
        move = np.zeros((len(i), 2))
        move[rows, axis] = sign * (over[i, j, axis] / 2 + 0.5)
        np.add.at(at, i, move * 0.6)
        np.add.at(at, j, -move * 0.6)
        at = np.clip(at, low, np.maximum(low, high))
    return at


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    wide = (a[2] + b[2]) / 2 - abs(a[0] - b[0])
    high = (a[3] + b[3]) / 2 - abs(a[1] - b[1])
    return wide * high if wide > 0 and high > 0 else 0.0
