"""DotRAG's start: which entities a question begins at, by names, by meaning and by bridges between anchors."""

from __future__ import annotations

import unicodedata
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.paths import Neighbourhood, Path, k_shortest_paths
from gnnrag.methods.dotrag.schema import split_types

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
    """Thresholds: cosine `tau`, at most `limit` hits within `margin` of the best, `floor` for a single best one."""

    # `by_name`: names go before all of them.

    tau: float = 0.6
    floor: float = 0.35
    margin: float = 0.10
    limit: int = 5
    by_name: bool = True


class AnchorFinder:
    """Resolves concepts by name, then by meaning, as near names are look-alikes; the paper: all nodes above `tau`."""

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

        a1 exact name or alias, all nodes of that name; a2 without case and accents, of the guessed type `kind` where
        one of them is; a3 nearly the same words; a4 cosine >= tau, within the margin of the best; a5 the best one above
        the floor. `scores` gives cosines (num_entities,) and is called only where names do not decide.
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


CACHE_SIZE = 64  # texts; a row for a large knowledge base is half a megabyte


class SemanticScorer:
    """Cosine of texts with all nodes and all relations: one matrix-vector product each, so batches change nothing.

    `encode`: texts to (len(texts), dim) unit vectors, as queries; `scores`: table (`entities`, `relations`) and vector
    to cosines (num_items,).
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


Sides = tuple[tuple[int, ...], ...]  # anchors of each concept


def touches(path: Path, sides: Sides) -> bool:
    """Tell whether a path passes an anchor of every concept."""
    return all(not set(side).isdisjoint(path) for side in sides)


def far_anchors(sides: Sides, seen: set[int]) -> list[int]:
    """Return the anchors of all concepts but the first that were no destination yet: where paths between them end."""
    return [node for side in sides[1:] for node in side if node not in seen and node not in sides[0]]


def bridging_paths(
    near: Neighbourhood, sides: Sides, target: int, count: int, score: Callable[[Path], float]
) -> list[Path]:
    """Return the shortest loopless paths to a target that touch both concepts, shortest first.

    They start at an anchor of one concept and pass one of the other, or end there, within the reach of the
    neighbourhood grown from both. `count` is for each pair of anchors, and for each half of a path; `score` orders
    paths of equal length, higher first.
    """

    def shortest(start: int, end: int) -> list[Path]:
        return [] if start == end else list(
            k_shortest_paths(near.adjacency, near.labels(start), end, count, score=score)
        )  # fmt: skip

    def joined() -> Iterator[Path]:
        for here, there in (sides, sides[::-1]):
            for first in here:
                for second in there:
                    halves = [(second,)] if second == target else shortest(second, target)
                    for path in shortest(first, second) if halves else ():
                        for half in halves:
                            whole = (*path, *half[1:])
                            if len(set(whole)) == len(whole) <= near.hops + 1:
                                yield whole

    return sorted(dict.fromkeys(joined()), key=lambda path: (len(path), -score(path), path))


NAIVE_BELOW = 0.2  # best cosine of the question with any node


@dataclass
class StartConfig:
    """Settings of concepts, anchors and the size of a DOT; the paper gives `hops` and says that there is a `tau`."""

    hops: int = 3  # h_max
    tau: float = 0.6  # least cosine of an anchor that is found by meaning
    floor: float = 0.35  # least cosine of a single best one
    margin: float = 0.1  # hits further below the best are dropped
    max_anchors: int = 5  # of a concept, by meaning
    topic_nodes: int = 5  # anchors of a broad topic
    max_named: int = 3  # DOTs of named things
    max_topics: int = 3  # DOTs of broad topics
    topics_only: bool = False  # a broad question starts from its topics alone, as the paper's prompt has it
    max_nodes: int = 5000  # size guard of a DOT
    hub_degree: int = 500  # nodes with more neighbours are hubs
    by_name: bool = True  # anchors by name before meaning; False: by cosine alone, as in the paper
    use_filter: bool = True  # False: all types may appear (ablation)
    widen_filter: bool = True  # types that a walk to the answer's, or any neighbour of the anchors, needs are added
    terminal_only: bool = True  # False: answers' types are expanded like any other (ablation)
    bridging: bool = False  # a further DOT whose paths touch the anchors of the first two concepts


@dataclass(frozen=True, slots=True)
class Start:
    """A concept and what it stands for."""

    text: str
    anchors: Anchors
    sides: Sides = ()  # of a bridging one: the anchors of each of its concepts


class AnchorSelector:
    """Chooses the starts of a question."""

    def __init__(self, graph: KnowledgeGraph, meaning: SemanticScorer, config: StartConfig) -> None:
        self.graph, self.meaning, c = graph, meaning, config
        self.config = config
        self.finder = AnchorFinder(graph, AnchorRules(c.tau, c.floor, c.margin, c.max_anchors, c.by_name))

    def choose(
        self, named: Sequence[tuple[str, str, str]], topics: Sequence[str], question: str, use_anchors: bool
    ) -> tuple[list[Start], Counter[str]]:
        """Return the starts, and what went wrong on the way (`concept_unresolved`, `anchorless`, `fallback_naive`).

        `named` has span, type and description of each concept; those with the same anchors are one. Broad topics count
        where the question is not specific (`use_anchors`), or where no name is found; without either the nodes nearest
        to the question do.
        """
        c, flags = self.config, Counter[str]()
        names = [] if c.topics_only and not use_anchors else list(named)[: c.max_named]
        starts = []
        for span, kind, description in names:
            text = f"{span}\n{description}" if description else span
            anchors = self.finder.find(span, kind, lambda text=text: self.meaning.nodes(text))  # type: ignore[misc]
            flags["concept_unresolved"] += not anchors.nodes
            starts.append(Start(span, anchors))
        if not use_anchors or not any(start.anchors.nodes for start in starts):
            starts += [Start(t, top_nodes(self.meaning.nodes(t), c.topic_nodes)) for t in list(topics)[: c.max_topics]]
        starts = [start for start in starts if start.anchors.nodes]
        if not starts and self.graph.num_entities:
            cosines = self.meaning.nodes(question)
            flags["anchorless"] += 1
            if float(np.max(cosines)) >= NAIVE_BELOW:
                starts = [Start(question, top_nodes(cosines, c.topic_nodes))]
        flags["fallback_naive"] += not starts
        first = {tuple(sorted(start.anchors.nodes)): start for start in reversed(starts)}
        return [start for start in starts if first[tuple(sorted(start.anchors.nodes))] is start], +flags

    def split_hubs(self, starts: Sequence[Start]) -> tuple[list[Start], tuple[tuple[int, ...], ...]]:
        """Return the starts to search from, and for each concept the hubs that a path's end must touch instead."""
        # Next to another concept, a hub (a genre, a year) is better used as a condition on what that one leads to.
        degree = self.graph.adjacency.degree
        hubs = [s for s in starts if all(degree[a] > self.config.hub_degree for a in s.anchors.nodes)]
        if not hubs or len(hubs) == len(starts):
            return list(starts), ()
        return [s for s in starts if s not in hubs], tuple(tuple(s.anchors.nodes) for s in hubs)

    def with_bridge(self, starts: Sequence[Start]) -> list[Start]:
        """Return the starts, and behind them, where the settings say so and two are there, the one that joins them."""
        if not self.config.bridging or len(starts) < 2:
            return list(starts)
        first, second = starts[:2]
        nodes = tuple(dict.fromkeys([*first.anchors.nodes, *second.anchors.nodes]))
        sides = (tuple(first.anchors.nodes), tuple(second.anchors.nodes))
        return [*starts, Start(f"{first.text} and {second.text}", Anchors(nodes, "bridge"), sides)]
