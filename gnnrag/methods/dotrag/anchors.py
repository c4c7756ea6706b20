"""From a concept in a question to nodes of the graph: DotRAG's anchors (section 2 of its specification)."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.schema import split_types

TOKEN_OVERLAP = 0.9  # least share of equal words (Jaccard) for two names to be one


def fold_name(text: str) -> str:
    """Return a name without case, accents and extra spaces."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(c for c in parts if not unicodedata.combining(c)).split())


@dataclass(frozen=True, slots=True)
class Anchors:
    """Nodes that a concept stands for, best first, and the rule that found them (`a1` to `a5`, `top`, `none`)."""

    nodes: tuple[int, ...] = ()
    rule: str = "none"


@dataclass(frozen=True, slots=True)
class AnchorRules:
    """Thresholds: cosine `tau`, at most `limit` hits within `margin` of the best, `floor` for a single best one.

    `by_name`: names go before all of them.
    """

    tau: float = 0.6
    floor: float = 0.35
    margin: float = 0.10
    limit: int = 5
    by_name: bool = True


class AnchorFinder:
    """Resolves concepts by name first and by meaning only then, because near names are look-alikes.

    The paper has the meaning alone, and all nodes above `tau` (`method.preset=paper`).

    Args:
        graph: names, aliases and types.
        rules: thresholds of the search by meaning.
    """

    def __init__(self, graph: KnowledgeGraph, rules: AnchorRules | None = None) -> None:
        self.graph, self.rules = graph, rules or AnchorRules()
        self.exact: dict[str, list[int]] = defaultdict(list)
        self.folded: dict[str, list[int]] = defaultdict(list)
        self._with_word: dict[str, list[int]] = defaultdict(list)
        self._words: list[tuple[frozenset[str], int]] = []
        for node, name in enumerate(graph.names):
            for spelling in dict.fromkeys([name, *graph.aliases[node]]):
                self.exact[spelling].append(node)
                key = fold_name(spelling)
                if node not in self.folded[key]:
                    self.folded[key].append(node)
                words = frozenset(key.split())
                for word in words:
                    self._with_word[word].append(len(self._words))
                self._words.append((words, node))

    def find(self, span: str, kind: str, scores: Callable[[], np.ndarray]) -> Anchors:
        """Return the anchors of a named concept: the first rule that finds some decides.

        a1 exact name or alias, all nodes of that name; a2 without case and accents, of the guessed type where one of
        them is; a3 nearly the same words; a4 cosine >= tau, within the margin of the best; a5 the best one above the
        floor.

        Args:
            span: as the question spells it.
            kind: the type guessed for it, or empty.
            scores: computes its cosine with each node, shape (num_entities,); called only where names do not decide.
        """
        named = self._by_name(span, kind) if self.rules.by_name else None
        return named or self._by_meaning(np.asarray(scores(), dtype=np.float64))

    def _by_name(self, span: str, kind: str) -> Anchors | None:
        if found := self.exact.get(" ".join(span.split())):
            return Anchors(tuple(found), "a1")
        if (found := self.folded.get(fold_name(span))) and (typed := self._of_type(found, kind)):
            return Anchors(tuple(typed), "a2")
        found = self._same_words(span)
        return Anchors(tuple(found), "a3") if found else None

    def _of_type(self, nodes: Sequence[int], kind: str) -> list[int]:
        """Keep nodes of a type; a node without any type, or a concept without one, passes."""
        known = [split_types(self.graph.types[node]) for node in nodes]
        return [node for node, types in zip(nodes, known, strict=True) if not kind or not types or kind in types]

    def _same_words(self, span: str) -> list[int]:
        words = frozenset(fold_name(span).split())
        rows = {row for word in words for row in self._with_word.get(word, ())} if words else set()
        found: dict[int, float] = {}
        for row in sorted(rows):
            other, node = self._words[row]
            share = len(words & other) / len(words | other)
            if share >= TOKEN_OVERLAP:
                found[node] = max(share, found.get(node, 0.0))
        best = max(found.values(), default=0.0)
        return [node for node, share in found.items() if share == best]

    def _by_meaning(self, scores: np.ndarray) -> Anchors:
        r = self.rules
        order = np.argsort(-scores, kind="stable")[: r.limit]
        best = float(scores[order[0]]) if len(order) else -1.0
        if best >= r.tau:
            least = max(r.tau, best - r.margin)
            return Anchors(tuple(int(i) for i in order if scores[i] >= least), "a4")
        return Anchors((int(order[0]),), "a5") if len(order) and best >= r.floor else Anchors()


def top_nodes(scores: np.ndarray, count: int) -> Anchors:
    """Return the nodes of a broad topic: the best by cosine, ties by position."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")[:count]
    return Anchors(tuple(int(i) for i in order), "top")
