"""S1 of DotRAG, neighbourhood selection: the nodes at which searches begin, by name and by meaning."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.methods.dotrag.schema import split_types
from gnnrag.text.normalise import fold

MAX_ANCHORS, MARGIN = 5, 0.1  # at most so many by meaning, none further below the best
FLOOR = 0.35  # least cosine of a single best one that is below `tau`
MAX_NAMED, MAX_TOPICS = 3, 3  # DOTs of named things (the paper: at most 3), and of broad topics
TOPIC_NODES = 5  # anchors of a broad topic
NAIVE_BELOW = 0.2  # best cosine of the question with any node, below which there is no search
CACHE_SIZE = 64  # texts; a row for a large knowledge base is half a megabyte


def fold_name(text: str) -> str:
    """Return a name without case, accents and extra spaces."""
    return " ".join(fold(text).split())


class GraphCosines:
    """Cosines of texts with all nodes and all relations of an index: one matrix-vector product each."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._scores = lru_cache(maxsize=CACHE_SIZE)(
            lambda table, text: index.knowledge_vectors.scores(table, self.vector(text))
        )

    def vector(self, text: str) -> np.ndarray:
        """Return the unit vector of a query. Shape (dim,)."""
        return self._index.embedder.encode([text], is_query=True)[0]

    def nodes(self, *texts: str) -> np.ndarray:
        """Return the best cosine of each node's name and description with any of some texts. Shape (num_entities,)."""
        return np.max([self._scores("entities", text) for text in texts], axis=0)

    def relations(self, *texts: str) -> np.ndarray:
        """Return the best cosine of each relation's statement with any of some texts. Shape (num_relations,)."""
        return np.max([self._scores("relations", text) for text in texts], axis=0)


@dataclass(frozen=True, slots=True)
class ConceptAnchors:
    """A concept, the nodes that it stands for, best first, and the rule that found them (`a1` to `a5`, `top`)."""

    text: str
    nodes: tuple[int, ...] = ()
    rule: str = "none"


def nearest_nodes(text: str, cosines: np.ndarray) -> ConceptAnchors:
    """Return the start of a broad topic: the best nodes by cosine, ties by position."""
    return ConceptAnchors(text, tuple(np.argsort(-cosines, kind="stable")[:TOPIC_NODES].tolist()), "top")


class AnchorFinder:
    """Resolves concepts by name, then by meaning: what is near in meaning is often a look-alike.

    The paper takes all nodes from `tau` on. `settings` are those of `DotRAG`.
    """

    def __init__(self, graph: KnowledgeGraph, settings: Any) -> None:
        self.graph, self.settings = graph, settings
        self._exact: dict[str, list[int]] = defaultdict(list)
        self._folded: dict[str, dict[int, None]] = defaultdict(dict)
        self._words: dict[frozenset[str], dict[int, None]] = defaultdict(dict)
        for node, name in enumerate(graph.names):
            for spelling in dict.fromkeys([name, *graph.aliases[node]]):
                key = fold_name(spelling)
                self._exact[spelling].append(node)
                self._folded[key][node] = None
                self._words[frozenset(key.split())][node] = None

    def choose(self, meaning: GraphCosines, concepts: Any, question: str) -> tuple[list[ConceptAnchors], Counter[str]]:
        """Return the starts, and counts of failures (`concept_unresolved`, `anchorless`, `fallback_naive`).

        Of `concepts` (a `Concepts`), those with the same anchors are one. Broad topics count where the question is not
        specific (`use_anchors`), or where no name is found; without either the nodes nearest to the question do.
        """
        flags, starts = Counter[str](), []
        use_anchors = concepts.use_anchors and bool(concepts.named)
        for concept in [] if self.settings.topics_only and not use_anchors else concepts.named[:MAX_NAMED]:
            text = f"{concept.span}\n{concept.description}" if concept.description else concept.span
            start = self.find(concept.span, concept.type, lambda text=text: meaning.nodes(text))  # type: ignore[misc]
            flags["concept_unresolved"] += not start.nodes
            starts.append(start)
        if not use_anchors or not any(start.nodes for start in starts):
            starts += [nearest_nodes(topic, meaning.nodes(topic)) for topic in concepts.topics[:MAX_TOPICS]]
        starts = [start for start in starts if start.nodes]
        if not starts and self.graph.num_entities:
            cosines = meaning.nodes(question)
            flags["anchorless"] += 1
            if float(np.max(cosines)) >= NAIVE_BELOW:
                starts = [nearest_nodes(question, cosines)]
        flags["fallback_naive"] += not starts
        distinct: dict[tuple[int, ...], ConceptAnchors] = {}
        for start in starts:
            distinct.setdefault(tuple(sorted(start.nodes)), start)
        return list(distinct.values()), +flags

    def find(self, span: str, kind: str, cosines: Callable[[], np.ndarray]) -> ConceptAnchors:
        """Return the anchors of a named concept: the first rule that finds some decides.

        a1 exact name or alias, all nodes of that name; a2 without case and accents, of the guessed type `kind` where
        one of them is; a3 the same words in another order; a4 cosine >= tau, within the margin of the best; a5 the best
        one above the floor. `cosines` (num_entities,) are asked for only where names do not decide.
        """
        s = self.settings
        if s.by_name:
            if nodes := self._exact.get(" ".join(span.split())):
                return ConceptAnchors(span, tuple(nodes), "a1")
            folded = [(node, split_types(self.graph.types[node])) for node in self._folded.get(fold_name(span), ())]
            if same := [node for node, types in folded if not kind or not types or kind in types]:
                return ConceptAnchors(span, tuple(same), "a2")
            if words := self._words.get(frozenset(fold_name(span).split())):
                return ConceptAnchors(span, tuple(words), "a3")
        scores = np.asarray(cosines(), dtype=np.float64)
        order = np.argsort(-scores, kind="stable")
        best = float(scores[order[0]]) if len(order) else -1.0
        if best >= s.tau:
            near = order if s.literal else order[:MAX_ANCHORS]
            least = s.tau if s.literal else max(s.tau, best - MARGIN)
            return ConceptAnchors(span, tuple(near[scores[near] >= least].tolist()), "a4")
        return ConceptAnchors(span, (int(order[0]),), "a5") if best >= FLOOR and not s.literal else ConceptAnchors(span)
