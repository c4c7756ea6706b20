"""A part of a knowledge graph as one HTML file: the server's graph view, with what it can show inside it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from gnnrag.common.untrusted import printable
from gnnrag.index.index import Index
from gnnrag.pages import fill, inert
from gnnrag.pages.graph import Subgraph
from gnnrag.run.answers import where
from gnnrag.serve.graph import View

_EACH = 4  # passages of an entity, as long as there is room


def render_page(index: Index, part: Subgraph) -> str:
    """Return the page as HTML; its content policy allows its own script (by hash) alone."""
    about = f"{index.root.resolve().name}: {len(part.nodes)} of {index.knowledge.num_entities:,} entities"
    slots = {"DATA": inert(page_data(index, part)), "VIEW": _view(), "ABOUT": html.escape(printable(about))}
    return fill(_read("still.html"), part.title, _read("page.css"), _script(), slots)


def page_data(index: Index, part: Subgraph) -> dict[str, Any]:
    """Return what the page's script reads: nodes, edges, the text of passages, and what is drawn first."""
    view, graph = View(index), index.knowledge
    ids = [view.entity(node) for node in part.nodes]
    for (one, other), rows in zip(part.pairs.tolist(), part.relations, strict=True):
        said = dict.fromkeys(graph.labels[row].replace("_", " ") or graph.texts[row] for row in rows)
        view.join(ids[one], ids[other], "; ".join(said))
    for node in part.nodes:
        for row in view.graph.passages_of(node)[:_EACH]:
            view.mention(row, node)
    drawn = view.to_dict()
    shown = index.lookup([node["id"][2:] for node in drawn["nodes"] if node["type"] == "passage"])
    told = {
        one.id: {"id": one.id, "title": one.title, "place": where(one), "parts": [one.text, "", ""]} for one in shown
    }
    path = _path(part, ids, drawn["edges"])
    start = "passages=path" if len(path) > 1 else f"node={quote(str(ids[0]), safe='')}"
    return {"nodes": drawn["nodes"], "edges": drawn["edges"], "passages": told, "path": path, "start": start}


def _path(part: Subgraph, ids: Sequence[str | None], edges: Sequence[dict[str, Any]]) -> list[str]:
    """Return what a question names, what lies between, and the passages that tell of two of these; else nothing."""
    asked = {id_ for id_, role in zip(ids, part.roles, strict=True) if role in ("focus", "path") and id_}
    ends = [edge["source"] for edge in edges if edge["target"] in asked and edge["source"].startswith("p:")]
    return [*sorted(asked), *dict.fromkeys(end for end in ends if ends.count(end) > 1)]


def _read(name: str) -> str:
    return (files("gnnrag.serve") / "page" / name).read_text("utf-8")


def _view() -> str:
    """Return the graph view out of the server's page."""
    found = re.search(r'<section id="view-graph".*?</section>', _read("index.html"), re.S)
    return found[0].replace(" hidden>", ">", 1) if found else ""


@cache
def _script() -> str:
    """Return the modules of the view as one: from a file, a page may load no others."""
    drawing = re.sub(r"export\{(\w+) as default\};?\s*$", r"return{default:\1};", _read("cytoscape.mjs"))
    own = "\n".join(map(_read, ("parts.js", "graph.js", "still.js"))).replace(
        'await import("./cytoscape.mjs")', "drawing"
    )
    own = re.sub(r"^import .*;\n|^export (?=async|function|const)", "", own, flags=re.M)
    return f"const drawing = (() => {{{drawing}}})();\n{own}"
