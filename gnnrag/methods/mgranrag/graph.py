"""MGranRAG's evidence memory, the expansion of its graph, and the seeds of its PageRank (eqs. 1 to 4).

Node ids are those of `gnnrag.graphs.hierarchy`: passages, then sentences, then phrases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import sparse

from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.text.normalise import cached, phrase_key

GAIN = {"T": 1.0, "P": 0.5}  # g: how much a label supports a question; a label that is absent counts 0
# f(w) of eq. 4 for a phrase that is named as evidence, only contained in it, or in the question (released code)
NAMED, UNNAMED, ASKED = 3.0, 1.5 / 610, 1.5
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class EvidenceUnit:
    """A sentence that supports the question."""

    node: int  # of the sentence in the graph
    text: str  # with its pronouns resolved
    phrases: tuple[str, ...] = ()  # named as its key phrases, in order
    # question number (0 is the question) to `T`, answers it, or `P`, is a clue to it
    labels: Mapping[int, str] = field(default_factory=dict)
    psi: float = 0.0  # highest `confidence` so far

    @property
    def is_full(self) -> bool:
        """Whether it fully supports any question."""
        return "T" in self.labels.values()


def confidence(labels: Mapping[int, str], num_subquestions: int, norm: str = "supported") -> float:
    """Return psi = g(question) + mean over sub-questions of g (eq. 1), where g is the `GAIN` of a label.

    The mean is over `all` sub-questions (as printed), or those `supported` (as released).
    """
    gains = [GAIN[label] for number, label in labels.items() if number]
    count = num_subquestions if norm == "all" else len(gains)
    return GAIN.get(labels.get(0, ""), 0.0) + (sum(gains) / count if count else 0.0)


def is_kept(labels: Mapping[int, str]) -> bool:
    """Tell whether the released code keeps this evidence: `T` on the question, or `T` or `P` on a sub-question."""
    gains = [GAIN[label] for number, label in labels.items() if number]
    return labels.get(0) == "T" or sum(gains) >= 0.5


@dataclass
class EvidenceMemory:
    """The evidence of a question so far; it only grows."""

    units: dict[int, EvidenceUnit] = field(default_factory=dict)  # by node, in order of arrival
    new: set[int] = field(default_factory=set)  # nodes found, or found again, in the current round
    read_so_far: set[int] = field(default_factory=set)  # positions of passages

    def merge(self, units: Iterable[EvidenceUnit], keywords: str = "union") -> None:
        """Add evidence. A known sentence gets the new text, highest psi, stronger labels, `union` of phrases."""
        self.new = set()
        for unit in units:
            self.new.add(unit.node)
            if old := self.units.get(unit.node):
                phrases = tuple(dict.fromkeys([*old.phrases, *unit.phrases])) if keywords == "union" else unit.phrases
                # the stronger label is the larger text: "T" > "P" > ""
                labels = {n: max(old.labels.get(n, ""), unit.labels.get(n, "")) for n in {**old.labels, **unit.labels}}
                unit = replace(unit, phrases=phrases, labels=labels, psi=max(old.psi, unit.psi))
            self.units[unit.node] = unit

    def ranked(self) -> list[EvidenceUnit]:
        """Return the units by falling confidence, ties by arrival."""
        return sorted(self.units.values(), key=lambda unit: -unit.psi)

    def chosen(self, num_subquestions: int, all_new: bool = False) -> list[EvidenceUnit]:
        """Return the evidence of the augmented query: the best K full units, then the other full ones of this round.

        With `all_new`, as in the paper: the best K of earlier rounds, full or not, then all of this round.
        """
        if all_new:
            before, new = ([u for u in self.ranked() if (u.node in self.new) is is_new] for is_new in (False, True))
            return before[:num_subquestions] + new
        ranked = [unit for unit in self.ranked() if unit.is_full]
        return ranked[:num_subquestions] + [u for u in ranked[num_subquestions:] if u.node in self.new]

    def augment(self, question: str, num_subquestions: int, released: bool = False, all_new: bool = False) -> str:
        """Return the augmented query: the chosen evidence, a line each, then the question.

        As `released` it has other labels, and its first line is empty where there is evidence but none of it is full.
        """
        chosen = self.chosen(num_subquestions, all_new)
        if not released:
            lines = [f"- {n}. ({'; '.join(u.phrases)}) {u.text}" for n, u in enumerate(chosen, start=1)]
            return "\n".join([*lines, question])
        if not self.units:
            return question
        lines = [f"- Knowledge {n}: (Relevant Keywords: {';'.join(u.phrases)}) {u.text}" for n, u in enumerate(chosen)]
        return "\n".join(lines) + f"\n<SEP>Query: {question}"


def same_nodes(phrase: str, hits: Sequence[tuple[int, str, float]], exact: int | None, same: float = 0.9) -> list[int]:
    """Return `exact` and the `hits` (node, text, cosine) that are `phrase` in another spelling, cosine >= `same`.

    A hit that shares no number with the phrase is left out if both have numbers: `1950` is not `1951`.
    """
    nodes = [] if exact is None else [exact]
    numbers = set(_DIGITS.findall(phrase))
    for node, text, cosine in hits:
        others = set(_DIGITS.findall(text))
        if cosine >= same and not (numbers and others and not numbers & others):
            nodes.append(node)
    return list(dict.fromkeys(nodes))


@dataclass
class Overlay:
    """Dynamic expansion: a question's own phrase nodes, numbered after those of the shared graph, and its own edges."""

    num_nodes: int  # of the shared graph
    phrases: list[str] = field(default_factory=list)  # text of the new nodes, in order
    edges: dict[tuple[int, int], None] = field(default_factory=dict)  # new (sentence node, phrase node) pairs, in order

    def node(self, phrase: str) -> int:
        if phrase not in self.phrases:
            self.phrases.append(phrase)
        return self.num_nodes + self.phrases.index(phrase)

    def join(self, sentence: int, phrase: int, neighbours: np.ndarray) -> None:
        """Add an edge unless the shared graph has it; `neighbours` are the node ids next to the sentence there."""
        if phrase not in neighbours:
            self.edges[sentence, phrase] = None

    def degrees(self, shared: np.ndarray) -> np.ndarray:
        """Degrees with the additions. Shape (num_nodes + new nodes,)."""
        ends = np.array(list(self.edges), dtype=np.int64).ravel()
        total = self.num_nodes + len(self.phrases)
        return np.concatenate([shared, np.zeros(len(self.phrases), np.int64)]) + np.bincount(ends, minlength=total)

    def adjacency(self, shared: sparse.csr_array) -> sparse.csr_array:
        """Return the adjacency with the additions, all weights 1."""
        total = self.num_nodes + len(self.phrases)
        if not self.edges:
            return shared
        low, high = np.array(list(self.edges), dtype=np.int64).T
        grown = sparse.csr_array(shared)
        grown.resize((total, total))
        ones = np.ones(2 * len(low))
        more = sparse.csr_array((ones, (np.concatenate([low, high]), np.concatenate([high, low]))), (total, total))
        return grown + more


@dataclass
class SeedConstants:
    """Constants of the reset, and its `form`.

    - `printed`: equations 2 to 4. Named phrases are divided by their degree, passages by nothing; there are no other
      phrases, and momentum is on passages alone.
    - `released`: as in the released code. Phrases and passages are multiplied by 1 + 1 / (degree + 1). Momentum is on
      all nodes, and halved on sentences that were read and are no evidence. Phrases of the question have weight, too,
      and so have entities that a sentence contains but does not name; that weight overwrites one as named phrase.
    - `repaired`: as `released`, but the weight of a named phrase is never overwritten.
    """

    passage: float = 4.0  # w of passages, sentences and phrases
    sentence: float = 1.5
    phrase: float = 8.0
    alpha_decay: float = 0.01  # alpha of eq. 2, the momentum: weight of the last PageRank
    form: Literal["repaired", "released", "printed"] = "repaired"


@dataclass(frozen=True)
class Seeds:
    """What the reset of one round is made from; see `reset_of`."""

    similarity: Mapping[int, float]  # passage node to cosine with the augmented query
    units: Sequence[EvidenceUnit]  # evidence to weigh
    named: Sequence[Sequence[int]]  # for each unit, the nodes that its phrases are aligned with, in order
    unnamed: Sequence[Sequence[int]]  # for each unit, entity-like phrase nodes of its sentence that it does not name
    asked: Sequence[int]  # phrase nodes of the question
    best: float  # the highest confidence of all evidence
    previous: np.ndarray | None = None  # last PageRank over the shared nodes
    unused: Sequence[int] = ()  # sentence nodes of read passages that are no evidence


def reset_of(seeds: Seeds, degrees: np.ndarray, num_passages: int, c: SeedConstants) -> np.ndarray:
    """Return the reset (personalisation) of PageRank, eqs. 2-4, not normalised. Shape (num_nodes,), float64.

    `degrees` (num_nodes,) are those of the graph with its overlay; nodes below `num_passages` are passages.
    """
    out, printed = np.zeros(len(degrees)), c.form == "printed"
    if seeds.previous is not None:
        n = num_passages if printed else len(seeds.previous)
        out[:n] = c.alpha_decay * seeds.previous[:n]
        if not printed:
            out[list(seeds.unused)] *= 0.5
    idf = 1.0 + 1.0 / (degrees + 1.0)
    for node, cosine in seeds.similarity.items():
        out[node] += c.passage * cosine * (1.0 if printed else idf[node])  # eq. 2, with the momentum above
    for unit in seeds.units:
        out[unit.node] += c.sentence * unit.psi  # eq. 3
    scale = 1.0 / np.maximum(degrees, 1) if printed else idf
    for node, weight in _phrase_features(seeds, c.form).items():
        out[node] += c.phrase * weight * scale[node]  # eq. 4
    return np.where(np.isfinite(out) & (out > 0), out, 0.0)


def _phrase_features(seeds: Seeds, form: str) -> dict[int, float]:
    """Return f(w) psi(w) of each phrase node w (eq. 4)."""
    named: dict[int, float] = {}
    unnamed: dict[int, float] = {}
    for unit, of_named, of_unnamed in zip(seeds.units, seeds.named, seeds.unnamed, strict=True):
        for confidences, nodes in ((named, of_named), (unnamed, of_unnamed)):
            for node in nodes:
                confidences[node] = max(confidences.get(node, 0.0), unit.psi)
    features = {node: NAMED * psi for node, psi in named.items()}
    if form == "printed":
        return features
    for node, psi in unnamed.items():
        if form == "released":  # even a named phrase is then almost erased
            features[node] = UNNAMED * (psi + named.get(node, 0.0))
        elif node not in named:
            features[node] = UNNAMED * psi
    for node in dict.fromkeys(seeds.asked):
        if form == "released" or node not in named:
            features[node] = features.get(node, 0.0) + ASKED * seeds.best
    return features


_NEAREST = 10  # nearest phrase nodes compared
_FLOOR = 0.4  # least cosine of a hit; it decides only for a `phrase_same` below 0.4


class PhraseAligner:
    """Aligns a phrase with the phrase nodes that have this text or are another spelling of it (`same_nodes`).

    `vectors` are (num_phrases, dim) unit rows, or None to align by text alone; `same` is the least cosine of two
    spellings of one phrase; with `folds` (not as released) phrases that differ in case or punctuation are the same.
    """

    def __init__(
        self, graph: HierarchyGraph, vectors: np.ndarray | None, embedder: Any, same: float = 0.9, folds: bool = True
    ) -> None:
        self.graph, self.vectors, self.embedder, self.same, self.folds = graph, vectors, embedder, same, folds
        self.nodes = cached(16384)(self._nodes)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {text: self.graph.first_phrase + i for i, text in enumerate(self.graph.phrases)}

    def _nodes(self, phrase: str) -> tuple[int, ...]:
        exact, hits = self._position.get(phrase), []
        if exact is None and self.folds and (spelt := self.graph.phrase_nodes(phrase_key(phrase))):
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
        """Return the nodes each unit names; `expand` adds to the overlay: `off`, `edges`, or `both` (new nodes too)."""
        rows = []
        for unit in units:
            around = self.graph.neighbours[unit.node]
            named_nodes: list[int] = []
            for phrase in unit.phrases:
                nodes = list(self.nodes(phrase))
                if not nodes and expand == "both":
                    nodes = [overlay.node(phrase)]
                for node in nodes if expand != "off" else ():
                    overlay.join(unit.node, node, around)
                named_nodes += nodes
            rows.append(list(dict.fromkeys(named_nodes)))
        return rows

    def entities_of(self, node: int, named: Sequence[int]) -> list[int]:
        """Return the entity-like phrase nodes (`is_entity`) of a sentence's node that are not `named`."""
        known, first = set(named), self.graph.first_phrase
        around = self.graph.neighbours[node]
        return [
            n for n in around[around >= first].tolist() if n not in known and is_entity(self.graph.phrases[n - first])
        ]

    def asked(self, phrases: Sequence[str], units: Sequence[EvidenceUnit] | None = None) -> list[int]:
        """Return the phrase nodes of a question.

        With `units`, by the released rule. Entity-like phrases: drop nodes that evidence names only by other phrases.
        Other phrases: drop nodes that evidence names by an entity-like phrase.
        """
        if units is None:
            return list(dict.fromkeys(n for phrase in phrases for n in self.nodes(phrase)))
        spellings = [phrase for unit in units for phrase in unit.phrases]
        named = {n for phrase in spellings for n in self.nodes(phrase)}
        named_by_entities = {n for phrase in spellings if is_entity(phrase) for n in self.nodes(phrase)}
        dropped = {True: named - named_by_entities, False: named_by_entities}
        return list(dict.fromkeys(n for p in phrases for n in self.nodes(p) if n not in dropped[is_entity(p)]))


def is_entity(text: str) -> bool:
    """Tell whether a phrase has a capital A-Z or a digit."""
    return any("A" <= c <= "Z" or c.isdigit() for c in text)
