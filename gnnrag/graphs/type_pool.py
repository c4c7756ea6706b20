"""The entity types of a knowledge graph, and which of them a model or a rule means."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph


class TypePool:
    """Types and the entities that have them; an entity of several types has each.

    Args:
        graph: the knowledge graph.
        encode: texts to unit vectors.

    Attributes:
        names: the types, sorted.
    """

    def __init__(self, graph: KnowledgeGraph, encode: Callable[[Sequence[str]], np.ndarray]) -> None:
        self._members: dict[str, list[int]] = {}
        for entity, kinds in enumerate(graph.types):
            for kind in kinds.split("|") if kinds else ():
                self._members.setdefault(kind, []).append(entity)
        self.names = tuple(sorted(self._members))
        self._folded = {kind.casefold(): kind for kind in self.names}
        self._encode = encode
        self._vectors: dict[str, np.ndarray] = {}

    def entities(self, kinds: Sequence[str]) -> list[int]:
        """Return the entities of some types, each once, in order of types."""
        return list(dict.fromkeys(entity for kind in kinds for entity in self._members[kind]))

    def equal(self, asked: Sequence[str]) -> list[str]:
        """Return the types that are asked for in upper case, as MiniRAG's released code stores and compares them."""
        return [kind for kind in self.names if kind.upper() in asked]

    def nearest(self, asked: Sequence[str]) -> list[str]:
        """Return the types that equal what is asked for but for case; for what equals none, the one nearest to it."""
        found = [self._folded.get(" ".join(kind.split()).casefold()) or self._alike(kind) for kind in asked]
        return [kind for kind in dict.fromkeys(found) if kind]

    def _alike(self, kind: str) -> str:
        if not self.names or not kind.strip():
            return ""
        if new := [name for name in dict.fromkeys((kind, *self.names)) if name not in self._vectors]:
            self._vectors.update(zip(new, self._encode(new), strict=True))
        vector = self._vectors[kind]
        if kind not in self._members:
            del self._vectors[kind]  # whatever models write must not pile up
        return max(self.names, key=lambda name: float(self._vectors[name] @ vector))
