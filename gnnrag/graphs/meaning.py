"""How near each node and relation of a graph is to a text, kept for texts that come again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

CACHE_SIZE = 64  # texts; a row for a large knowledge base is half a megabyte


class Meaning:
    """Cosine of texts with all nodes and all relations: one matrix-vector product each, so batches change nothing.

    Args:
        encode: texts to unit vectors, as queries. Shape (len(texts), dim).
        scores: table (`entities`, `relations`) and vector to cosines, shape (num_items,).
    """

    def __init__(self, encode: Callable[..., np.ndarray], scores: Callable[[Any, np.ndarray], np.ndarray]) -> None:
        self._encode, self._scores = encode, scores
        self._cache: OrderedDict[tuple[str, str], np.ndarray] = OrderedDict()

    def vector(self, text: str) -> np.ndarray:
        """Return the unit vector of a query. Shape (dim,)."""
        return self._encode([text], is_query=True)[0]

    def nodes(self, text: str) -> np.ndarray:
        """Return the cosine of each node's name and description. Shape (num_entities,)."""
        return self._table("entities", text)

    def relations(self, text: str) -> np.ndarray:
        """Return the cosine of each relation's statement. Shape (num_relations,)."""
        return self._table("relations", text)

    def _table(self, table: str, text: str) -> np.ndarray:
        key = (table, text)
        if key not in self._cache:
            self._cache[key] = self._scores(table, self.vector(text))
            while len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return self._cache[key]
