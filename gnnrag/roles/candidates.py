"""Many queries that could be asked next: what a trained selector chooses from.

Each is made by a rule from the question and the index: a thing with the words that are asked about it, a part of the
question, a part with what another part was found to stand for, or a sentence that was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.graphs.bridging import stems
from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.bridges import Bridge, BridgeFinder, OpenQuestion
from gnnrag.session import folded
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, phrase_key, words

KINDS = ("anchor", "bridge", "second", "found", "name", "clause", "residue", "swapped", "sentence")
PER_SOURCE, SECOND_SOURCES, PER_SECOND, PER_CLAUSE, NAMES, MAX_WORDS = 8, 4, 4, 3, 8, 12
_BREAK = re.compile(r"[,;:?]|\b(?:that|which|who|whose|whom|where|when|in|of|by|from|with|to|is|was|the|and|or)\b", re.I)
_CLAUSE = re.compile(r"[,;:?]|\b(?:that|which|who|whose|whom|where|when|and|or)\b", re.I)
_CAPITALS = re.compile(r"\b[A-Z][\w’'.-]*(?:\s+(?:of|the|and|de|la|van|von|[A-Z0-9][\w’'.-]*))*")


@dataclass(frozen=True, slots=True)
class ThoughtCandidate:
    """A query that could be asked next.

    Attributes:
        text: the query.
        kind: which rule made it, of `KINDS`.
        target: position of the passage that it is meant to find; -1 for none.
    """

    text: str
    kind: str
    target: int = -1


@dataclass(frozen=True, eq=False)
class Links:
    """How passages hang together with what a question names and what was read: position to strength."""

    anchored: dict[int, float]  # from passages about what the question names
    shown: dict[int, float]  # from passages that were read
    second: dict[int, float]  # from what those lead to
    ways: dict[int, int]  # number of sources that lead there


@dataclass(frozen=True, eq=False)
class Reading:
    """What a decision is made from, taken apart once.

    Attributes:
        question: the question taken apart.
        shown: positions of the passages read.
        clauses: parts of the question.
        clause_cosines: (len(clauses), num_passages).
        lexical: (1 + len(clauses), num_passages) BM25 scores of the question and its parts.
        links: see `Links`.
        uncovered: words of the open part that no passage read has.
        covered: words of all passages read.
    """

    question: OpenQuestion
    shown: tuple[int, ...]
    clauses: tuple[str, ...]
    clause_cosines: np.ndarray
    lexical: np.ndarray
    links: Links
    bridges: tuple[Bridge, ...]
    second: tuple[Bridge, ...]
    uncovered: tuple[str, ...]
    covered: frozenset[str]


class CandidateBuilder:
    """Builds the candidates of a decision: a pure function of index and task.

    Args:
        index: an opened index.
        limit: most candidates.
    """

    stages = ("hierarchy", "embeddings", "lexical")

    def __init__(self, index: Index, limit: int = 60) -> None:
        self.index, self.limit = index, limit
        self.finder = BridgeFinder(index)

    def __call__(self, task: ThoughtsTask) -> list[ThoughtCandidate]:
        """Return distinct queries, none of which was asked before."""
        return self.build(task, self.read(task))

    def read(self, task: ThoughtsTask) -> Reading:
        """Take a task apart."""
        text = task.question.text
        question = self.finder.read(text)
        shown = tuple(self.index.position[p.id] for p in task.passages)
        parts = clauses(text)
        vectors = self.index.embedder.encode([text, *parts], is_query=True)[1:]
        cosines = np.stack([self.index.passage_vectors @ v for v in vectors]) if parts else np.zeros((0, len(self.index.ids)))
        lexical = self.index.bm25_scores([text, *parts])
        anchors = [a.passage for a in question.anchors]
        links = Links({}, {}, {}, {})
        first: dict[int, Bridge] = {}
        for source in dict.fromkeys([*anchors, *shown]):
            for bridge in self.finder.bridges(question, [source])[:PER_SOURCE]:
                for of, table in ((anchors, links.anchored), (shown, links.shown)):
                    if source in of:
                        table[bridge.passage] = max(table.get(bridge.passage, 0.0), bridge.score)
                links.ways[bridge.passage] = links.ways.get(bridge.passage, 0) + 1
                if bridge.passage not in first or bridge.score > first[bridge.passage].score:
                    first[bridge.passage] = bridge
        bridges = sorted(first.values(), key=lambda b: (-b.score, b.passage))
        second: dict[int, Bridge] = {}
        for way in [b for b in bridges if b.passage not in shown][:SECOND_SOURCES]:
            for bridge in self.finder.bridges(question, [way.passage], known=[way.source])[:PER_SECOND]:
                score = way.score * bridge.score
                links.second[bridge.passage] = max(links.second.get(bridge.passage, 0.0), score)
                if bridge.passage not in second or bridge.score > second[bridge.passage].score:
                    second[bridge.passage] = bridge
        covered = frozenset(w for p in task.passages for w in words(p.content))
        open_words = [w for w in words(question.open_part) if w not in FUNCTION_WORDS]
        uncovered = tuple(w for w in open_words if w not in covered)
        return Reading(
            question, shown, tuple(parts), cosines, lexical, links, tuple(bridges),
            tuple(sorted(second.values(), key=lambda b: (-b.score, b.passage))), uncovered, covered,
        )

    def build(self, task: ThoughtsTask, reading: Reading) -> list[ThoughtCandidate]:
        """Return the candidates, given what `read` returned."""
        asked = {folded(q) for q in (task.question.text, *task.earlier)}
        found: dict[str, ThoughtCandidate] = {}
        rows = [list(rule) for rule in (
            self._anchors(reading), self._bridges(reading), self._found(reading), self._names(task, reading),
            self._clauses(reading), self._swapped(task, reading), self._sentences(task, reading),
        )]
        for n in range(max(map(len, rows))):  # by turns, so that the limit cuts the least likely of each rule
            for row in rows:
                if n < len(row) and (key := folded(row[n].text)) not in asked and key:
                    found.setdefault(key, row[n])
        return list(found.values())[: self.limit]

    def _about(self, reading: Reading, passage: int) -> str:
        """Return the title of a passage with the words that it shares with the question."""
        p = self.index.passages[passage]
        title = drop_qualifier(p.title)
        own = set(stems(words(p.text)))
        used = set(words(title))
        shared = [w for w in dict.fromkeys(words(reading.question.open_part)) if w not in FUNCTION_WORDS and w not in used and w[:5] in own]
        return " ".join([title, *shared[:MAX_WORDS]])

    def _anchors(self, reading: Reading) -> Iterator[ThoughtCandidate]:
        for anchor in reading.question.anchors:
            yield ThoughtCandidate(f"{anchor.name} {' '.join(reading.uncovered[:MAX_WORDS])}".strip(), "anchor", anchor.passage)
            yield ThoughtCandidate(f"{anchor.name} {reading.question.open_part}", "anchor", anchor.passage)

    def _bridges(self, reading: Reading) -> Iterator[ThoughtCandidate]:
        for bridge in reading.bridges:
            if bridge.passage not in reading.shown:
                yield ThoughtCandidate(self._about(reading, bridge.passage), "bridge", bridge.passage)
        for bridge in reading.second:
            if bridge.passage not in reading.shown:
                yield ThoughtCandidate(self._about(reading, bridge.passage), "second", bridge.passage)

    def _found(self, reading: Reading) -> Iterator[ThoughtCandidate]:
        rows = [np.argsort(-s, kind="stable")[:PER_CLAUSE].tolist() for s in (*reading.lexical, *reading.clause_cosines)]
        for n in range(PER_CLAUSE):
            for passage in dict.fromkeys(row[n] for row in rows if n < len(row)):
                if passage not in reading.shown:
                    yield ThoughtCandidate(self._about(reading, passage), "found", passage)

    def _names(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        asked = set(words(task.question.text))
        rest = " ".join(reading.uncovered[:MAX_WORDS]) or reading.question.open_part
        for passage in task.passages:
            names = [drop_qualifier(passage.title)] + _CAPITALS.findall(passage.text)
            fresh = [n for n in dict.fromkeys(names) if not set(words(n)) <= asked | FUNCTION_WORDS]
            for name in fresh[: NAMES // 2]:
                yield ThoughtCandidate(f"{name} {rest}", "name")

    def _clauses(self, reading: Reading) -> Iterator[ThoughtCandidate]:
        if reading.uncovered:
            yield ThoughtCandidate(" ".join(reading.uncovered), "residue")
        yield ThoughtCandidate(reading.question.open_part, "residue")
        for clause in reading.clauses:
            yield ThoughtCandidate(clause, "clause")

    def _swapped(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """The question with a bridge's name where the anchor's stood."""
        text = " ".join(words(task.question.text))
        for bridge in reading.bridges[:6]:
            for anchor in reading.question.anchors:
                if f" {anchor.name} " in f" {text} ":
                    yield ThoughtCandidate(f" {text} ".replace(f" {anchor.name} ", f" {bridge.name} ", 1).strip(), "swapped", bridge.passage)
                    break

    def _sentences(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """What was read with what is still asked."""
        graph = self.index.hierarchy
        rest = " ".join(reading.uncovered[:MAX_WORDS])
        for passage in reading.shown[:3]:
            best, score = "", 0
            for sentence in graph.sentences_of(passage).tolist():
                text = graph.sentences[sentence]
                hits = len(reading.question.wanted & set(stems(words(text))))
                if hits > score:
                    best, score = text, hits
            if best:
                yield ThoughtCandidate(f"{best[:200]} {rest}".strip(), "sentence", -1)


def clauses(text: str) -> list[str]:
    """Return parts of a question that could be questions of their own, the finer ones last."""
    out: dict[str, None] = {}
    for pattern in (_CLAUSE, _BREAK):
        spans, start = [], 0
        for match in [*pattern.finditer(text), None]:
            end = match.start() if match else len(text)
            if any(w not in FUNCTION_WORDS for w in words(text[start:end])):
                spans.append((start, end))
            start = match.start() if match and match[0][0].isalpha() else (match.end() if match else end)
        for width in (1, 2) if pattern is _CLAUSE else (3,):
            for i in range(len(spans) - width + 1):
                piece = text[spans[i][0] : spans[i + width - 1][1]].strip(" ,;:?")
                content = [w for w in words(piece) if w not in FUNCTION_WORDS]
                if len(content) >= 2 and folded(piece) != folded(text.strip(" ?")):
                    out.setdefault(piece)
    return list(out)[:10]
