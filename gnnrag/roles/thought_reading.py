"""What the next query is decided from: a question, what was read, and where both lead, taken apart once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.bridges import Bridge, BridgeFinder, OpenQuestion
from gnnrag.session import folded
from gnnrag.text.bounds import beginning
from gnnrag.text.normalise import FUNCTION_WORDS, words

PER_SOURCE, SECOND_SOURCES, PER_SECOND = 8, 4, 4  # bridges of a passage; bridges that are followed; bridges of those
MAX_CLAUSES = 10
_JOINT = r"[,;:?]|\b(?:that|which|who|whose|whom|where|when|and|or)\b"
_FINE = r"[,;:?]|\b(?:that|which|who|whose|whom|where|when|in|of|by|from|with|to|is|was|the|and|or)\b"
# Where a question is cut, and how many neighbouring pieces make a clause.
_CUTS = ((re.compile(_JOINT, re.IGNORECASE), (1, 2)), (re.compile(_FINE, re.IGNORECASE), (3,)))


@dataclass(frozen=True)
class Links:
    """How strongly passages hang together with others: position to score.

    Attributes:
        anchored: with passages about what the question names.
        read: with passages that were read.
        second: with what those lead to.
        ways: number of anchors and passages read that lead there.
    """

    anchored: dict[int, float] = field(default_factory=dict)
    read: dict[int, float] = field(default_factory=dict)
    second: dict[int, float] = field(default_factory=dict)
    ways: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Reading:
    """A task taken apart.

    Attributes:
        question: its question taken apart.
        shown: positions of the passages read, best first.
        clauses: parts of the question that could be questions of their own.
        clause_vectors: (len(clauses), dim) float32.
        clause_cosines: (len(clauses), num_passages) float32.
        lexical: (1 + len(clauses), num_passages) BM25 scores of the question and its clauses.
        earlier_vectors: (len(task.earlier), dim) float32.
        links: strengths of links.
        bridges: out of anchors and passages read, best first, one a passage.
        second: out of the best of those that were not read.
        uncovered: content words of the open part that no passage read has.
        covered: words of the passages read.
    """

    question: OpenQuestion
    shown: tuple[int, ...]
    clauses: tuple[str, ...]
    clause_vectors: np.ndarray
    clause_cosines: np.ndarray
    lexical: np.ndarray
    earlier_vectors: np.ndarray
    links: Links
    bridges: tuple[Bridge, ...]
    second: tuple[Bridge, ...]
    uncovered: tuple[str, ...]
    covered: frozenset[str]


class TaskReader:
    """Takes tasks apart.

    Args:
        index: an opened index.
    """

    stages = ("hierarchy", "embeddings", "lexical")

    def __init__(self, index: Index) -> None:
        self.index, self.finder = index, BridgeFinder(index)

    def __call__(self, task: ThoughtsTask) -> Reading:
        """Return what the task says."""
        index, text = self.index, beginning(task.question.text)
        question, parts = self.finder.read(text), clauses(text)
        shown = tuple(index.position[p.id] for p in task.passages)
        vectors = index.embedder.encode([text, *parts, *task.earlier], is_query=True)[1:]
        of_clauses, earlier = vectors[: len(parts)], vectors[len(parts) :]
        links, bridges, second = self._follow(question, shown)
        covered = frozenset(w for p in task.passages for w in words(p.content))
        return Reading(
            question,
            shown,
            tuple(parts),
            of_clauses,
            np.stack([index.passage_vectors @ v for v in (question.whole, *of_clauses)])[1:],
            index.bm25_scores([text, *parts]),
            earlier,
            links,
            bridges,
            second,
            tuple(w for w in content_words(question.open_part) if w not in covered),
            covered,
        )

    def _follow(
        self, question: OpenQuestion, shown: Sequence[int]
    ) -> tuple[Links, tuple[Bridge, ...], tuple[Bridge, ...]]:
        """Return where anchors and passages read lead, and where that leads."""
        links, anchors = Links(), [a.passage for a in question.anchors]
        found: list[Bridge] = []
        for source in dict.fromkeys([*anchors, *shown]):
            for bridge in self.finder.bridges(question, [source])[:PER_SOURCE]:
                found.append(bridge)
                links.ways[bridge.passage] = links.ways.get(bridge.passage, 0) + 1
                for sources, table in ((anchors, links.anchored), (shown, links.read)):
                    if source in sources:
                        table[bridge.passage] = max(table.get(bridge.passage, 0.0), bridge.score)
        bridges, further = _best(found), list[Bridge]()
        for way in [b for b in bridges if b.passage not in shown][:SECOND_SOURCES]:
            for bridge in self.finder.bridges(question, [way.passage], known=[way.source])[:PER_SECOND]:
                further.append(bridge)
                score = max(links.second.get(bridge.passage, 0.0), way.score * bridge.score)
                links.second[bridge.passage] = score
        return links, bridges, _best(further)


def content_words(text: str) -> list[str]:
    """Return the distinct folded words that say something, in order."""
    return [w for w in dict.fromkeys(words(text)) if w not in FUNCTION_WORDS]


def clauses(text: str) -> list[str]:
    """Return the parts of a question that could be questions of their own, coarse ones first."""
    found: dict[str, None] = {}
    whole = folded(text.strip(" ?"))
    for pattern, widths in _CUTS:
        spans = _pieces(text, pattern)
        for width in widths:
            for first in range(len(spans) - width + 1):
                if len(found) == MAX_CLAUSES:
                    return list(found)
                piece = text[spans[first][0] : spans[first + width - 1][1]].strip(" ,;:?")
                if len(content_words(piece)) >= 2 and folded(piece) != whole:
                    found.setdefault(piece)
    return list(found)


def _pieces(text: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return the spans between cuts that say something; a word that cuts begins the next piece."""
    spans, start = [], 0
    for match in [*pattern.finditer(text), None]:
        end = match.start() if match else len(text)
        if content_words(text[start:end]):
            spans.append((start, end))
        start = end if match is None or match[0][0].isalpha() else match.end()
    return spans


def _best(bridges: Iterable[Bridge]) -> tuple[Bridge, ...]:
    """Return the best bridge to each passage, best first."""
    best: dict[int, Bridge] = {}
    for bridge in sorted(bridges, key=lambda b: (-b.score, b.passage, b.source)):
        best.setdefault(bridge.passage, bridge)
    return tuple(best.values())
