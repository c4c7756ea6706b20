"""A part of an index's graph as one HTML file: the server's graph view, with what it can show inside it."""

from __future__ import annotations

import html
import re
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from gnnrag.errors import DataError
from gnnrag.index.index import Index
from gnnrag.pages import fill, inert
from gnnrag.run.answers import where
from gnnrag.serve.graph import busiest, find, named_in, surroundings


def render_page(index: Index, entity: str | None = None, question: str | None = None) -> str:
    """Return the page of an entity, of what a question names, or of the entity with the most neighbours.

    Its content policy allows its own script (by hash) alone. DataError: the graph has nothing of that name.
    """
    if question is not None:
        title, names = question, named_in(index, question)
    else:
        names = find(index, entity, 1) if entity is not None else busiest(index, 1)
        title = entity or ""
    if not names:
        raise DataError("--entity", f"the graph has nothing called {title!r}; give a part of a name")
    data = page_data(index, names)
    title = title or data["nodes"][0]["label"]
    about = f"{index.root.resolve().name}: {len(data['nodes'])} names and passages"
    slots = {"DATA": inert(data), "VIEW": _view(), "ABOUT": html.escape(about)}
    return fill(_read("still.html"), title, _read("page.css"), _script(), slots)


def page_data(index: Index, names: list[int]) -> dict[str, Any]:
    """Return what the page's script reads: nodes, edges, the text of passages, and what is drawn first."""
    drawn = surroundings(index, names)
    nodes, edges = drawn["nodes"], drawn["edges"]
    shown = index.lookup([node["id"][2:] for node in nodes if node["type"] == "passage"])
    passages = {p.id: {"id": p.id, "title": p.title, "place": where(p), "parts": [p.text, "", ""]} for p in shown}
    asked = [node["id"] for node in nodes[: len(names)]]
    ends = [edge["source"] for edge in edges if edge["target"] in asked and edge["source"].startswith("p:")]
    path = [*asked, *dict.fromkeys(end for end in ends if ends.count(end) > 1)]
    start = "passages=path" if len(path) > 1 else f"node={quote(asked[0], safe='')}"
    return {"nodes": nodes, "edges": edges, "passages": passages, "path": path, "start": start}


def _read(name: str) -> str:
    return (files("gnnrag.serve") / "page" / name).read_text("utf-8")


def _view() -> str:
    """Return the graph view out of the server's page."""
    match = re.search(r'<section id="view-graph".*?</section>', _read("index.html"), re.S)
    return match[0].replace(" hidden>", ">", 1) if match else ""


@cache
def _script() -> str:
    """Return the modules of the view as one: from a file, a page may load no others."""
    drawing = re.sub(r"export\{(\w+) as default\};?\s*$", r"return{default:\1};", _read("cytoscape.mjs"))
    own = "\n".join(map(_read, ("parts.js", "graph.js", "still.js")))
    own = own.replace('await import("./cytoscape.mjs")', "drawing")
    own = re.sub(r"^import .*;\n|^export (?=async|function|const)", "", own, flags=re.M)
    return f"const drawing = (() => {{{drawing}}})();\n{own}"
