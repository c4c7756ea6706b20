"""One self-contained HTML page that draws a subgraph: no network, no library, and nothing in the data can run.

The data stand in a JSON block whose `<`, `>` and `&` are escaped, the script puts them on the page as text only, and
the page's own content policy allows that script (by its hash) and nothing else: no other script, image or connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from gnnrag.drawing.html import fill, inert
from gnnrag.drawing.layout import EDGE_CHARACTERS, HEIGHT, NODE_CHARACTERS, WIDTH, lay_out
from gnnrag.drawing.subgraph import Subgraph
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.types import Passage

MAX_PASSAGES = 6  # of a node or an edge
MAX_STATEMENTS = 12  # of an edge
_ROLE_NAMES = {"focus": "asked for", "path": "on a path", "neighbour": "neighbour", "second": "second hop"}
_EDGE_WORDS = 3  # of a sentence that are written on an edge
_KINDS = 8  # colours


def render_page(graph: KnowledgeGraph, subgraph: Subgraph, passages: Sequence[Passage]) -> str:
    """Return the page as HTML.

    Args:
        graph: the knowledge graph.
        subgraph: what of it to draw.
        passages: the corpus, in index order.
    """
    data = page_data(graph, subgraph, passages)
    folder = files("gnnrag.drawing")
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
    before, named, after = sentence.partition(tail)
    if not named:
        return " ".join(sentence.split()[:4])
    run = before.rpartition(head)[2] if head else before
    found = run.split()[-_EDGE_WORDS:] or after.partition(head or ".")[0].split()[:_EDGE_WORDS]
    return " ".join(found).strip(" .,;:()-–")


def _cut(text: str, count: int) -> str:
    """Shorten, keeping a count in brackets at the end."""
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
    """Return the names of the colours that are used, in order of colour."""
    is_typed = any(graph.types[n] for n in subgraph.nodes)
    named: dict[str, int] = {}
    for place, kind in sorted(enumerate(kinds), key=lambda row: (row[1] == 0, row[1])):
        name = graph.types[subgraph.nodes[place]] if is_typed else _ROLE_NAMES[subgraph.roles[place]]
        named.setdefault("other or unknown" if kind == 0 else name.replace("|", ", "), kind)
    return named
