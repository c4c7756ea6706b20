"""A knowledge graph and passages as the index that a page is drawn of, without a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.serve.still import render_page
from gnnrag.types import Passage


class Held:
    """What a page asks of an index."""

    def __init__(self, graph: KnowledgeGraph, passages: Sequence[Passage]) -> None:
        self.knowledge, self.passages = graph, passages
        self.position = {passage.id: row for row, passage in enumerate(passages)}
        self.root = Path("held")

    def has(self, name: str) -> bool:
        return True

    def lookup(self, ids: Iterable[str]) -> tuple[Passage, ...]:
        return tuple(self.passages[self.position[id_]] for id_ in ids)


def page_around(graph: KnowledgeGraph, passages: Sequence[Passage], name: str) -> str:
    """Return the page of an entity."""
    index: Any = Held(graph, passages)
    return render_page(index, name)
