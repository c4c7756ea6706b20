"""What `ask.py --explain` shows: the paths in the graph that a trained retriever leaned on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import fill, shorten
from typing import Any

from gnnrag.index.index import Index
from gnnrag.session import Session
from gnnrag.types import Prediction, Query

PAD = " " * 6


def explain(retriever: Any, prediction: Prediction, session: Session) -> list[dict[str, Any]]:
    """Return the paths behind each passage that the reader saw, by the query that ranked it best."""
    found = []
    queries = [e for e in session.events if e["event"] == "query" and not e["retriever"]]
    for id_ in prediction.context:
        ranked = [(e["ranking"]["ids"].index(id_), i) for i, e in enumerate(queries) if id_ in e["ranking"]["ids"]]
        if ranked:
            query = Query(queries[min(ranked)[1]]["text"])
            found += [{"query": query.text, **asdict(reason)} for reason in retriever.explain(query, [id_])]
    return found


def reason_lines(reasons: Sequence[dict[str, Any]], index: Index) -> list[str]:
    """Return the paths for a person to read."""
    lines = ["", "Paths behind the evidence (how much the score leans on each)"] if reasons else []
    shown = None
    for reason in reasons:
        if reason["id"] != shown:
            shown = reason["id"]
            lines.append(f"  {index.lookup([shown])[0].title} ({shown}), asked: {reason['query']}")
        path = " -- ".join(shorten(step, 80, placeholder=" ...") for step in reason["steps"])
        lines.append(fill(f"{reason['score']:.3f}  {path}", 110, initial_indent=PAD, subsequent_indent=PAD * 2))
    return lines
