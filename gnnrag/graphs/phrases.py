"""Named phrases to phrase nodes of the hierarchy graph (MGranRAG's alignment)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from gnnrag.graphs.granular import EvidenceUnit, Overlay, same_nodes
from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.text.normalise import phrase_key

_NEAREST = 10  # hits looked at
_FLOOR = 0.4  # least cosine of a hit


class PhraseAligner:
    """Finds the nodes that are a phrase under this or another spelling.

    Args:
        graph: the hierarchy graph.
        vectors: (num_phrases, dim) unit rows, or None to align by text alone.
        embedder: gives the vectors of named phrases.
        same: least cosine of two spellings of one phrase.
        folds: whether a phrase that is spelt in another case or with other signs is the same; as released it is not.
    """

    def __init__(
        self, graph: HierarchyGraph, vectors: np.ndarray | None, embedder: Any, same: float = 0.9, folds: bool = True
    ) -> None:
        self.graph, self.vectors, self.embedder, self.same, self.folds = graph, vectors, embedder, same, folds
        self.nodes = lru_cache(maxsize=100_000)(self._nodes)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {text: self.graph.first_phrase + i for i, text in enumerate(self.graph.phrases)}

    def _nodes(self, phrase: str) -> tuple[int, ...]:
        """Return the nodes of a phrase."""
        exact, hits = self._position.get(phrase), []
        if exact is None and self.folds and (spelt := self.graph.phrase_nodes.get(phrase_key(phrase))):
            exact = spelt[0]
        if self.vectors is not None and len(self.vectors):
            cosines = self.vectors @ self.embedder.encode([phrase], is_query=True)[0]
            best = np.argsort(-cosines, kind="stable")[:_NEAREST]
            first = self.graph.first_phrase
            hits = [
                (first + i, self.graph.phrases[i], float(cosines[i])) for i in best.tolist() if cosines[i] >= _FLOOR
            ]
        return tuple(same_nodes(phrase, hits, exact, self.same))

    def named(self, units: Sequence[EvidenceUnit], overlay: Overlay, expand: str) -> list[list[int]]:
        """Return the phrase nodes that each unit names; `expand` adds what is missing to the overlay.

        Args:
            units: evidence.
            overlay: the question's additions.
            expand: `off`, `edges` to the nodes there are, or `both`: also new nodes for phrases that have none.
        """
        rows = []
        for unit in units:
            around = self._around(unit.sentence)
            found: list[int] = []
            for phrase in unit.phrases:
                nodes = list(self.nodes(phrase))
                if not nodes and expand == "both":
                    nodes = [overlay.node(phrase)]
                for node in nodes if expand != "off" else ():
                    overlay.join(unit.sentence, node, around)
                found += nodes
            rows.append(list(dict.fromkeys(found)))
        return rows

    def entities_of(self, sentence: int, named: Sequence[int]) -> list[int]:
        """Return the entity-like phrases (with a capital A-Z or a digit) of a sentence that are not named."""
        known, first = set(named), self.graph.first_phrase
        around = self._around(sentence)
        return [
            n for n in around[around >= first].tolist() if n not in known and is_entity(self.graph.phrases[n - first])
        ]

    def asked(self, phrases: Sequence[str], units: Sequence[EvidenceUnit] | None = None) -> list[int]:
        """Return the phrase nodes of a question.

        Args:
            phrases: of the question.
            units: evidence, for the released rule: of the nodes of entity-like phrases those count that no evidence
                names without a capital or digit only, of the others those that none names with one.
        """
        if units is None:
            return list(dict.fromkeys(n for phrase in phrases for n in self.nodes(phrase)))
        upper, every = (
            {n for u in units for p in u.phrases if like(p) for n in self.nodes(p)} for like in (is_entity, bool)
        )
        barred = {True: every - upper, False: upper}
        return list(dict.fromkeys(n for p in phrases for n in self.nodes(p) if n not in barred[is_entity(p)]))

    def _around(self, sentence: int) -> np.ndarray:
        graph = self.graph.adjacency
        return graph.indices[graph.indptr[sentence] : graph.indptr[sentence + 1]]


def is_entity(text: str) -> bool:
    """Tell whether a phrase has a capital A-Z or a digit."""
    return any("A" <= c <= "Z" or c.isdigit() for c in text)
