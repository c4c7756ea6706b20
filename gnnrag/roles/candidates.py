"""Candidate queries, made by rules from the question and what was retrieved, with their features."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gnnrag.graphs.linking import stems
from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.bridges import Bridge, BridgeFinder, OpenQuestion
from gnnrag.session import normalised
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, words
from gnnrag.text.sentences import beginning

PER_SOURCE, SECOND_SOURCES, PER_SECOND = 8, 4, 4  # bridges of a passage; bridges that are followed; bridges of those
MAX_CLAUSES = 10
_JOINT = r"[,;:?]|\b(?:that|which|who|whose|whom|where|when|and|or)\b"
_FINE = r"[,;:?]|\b(?:that|which|who|whose|whom|where|when|in|of|by|from|with|to|is|was|the|and|or)\b"
# Where a question is cut, and how many neighbouring pieces make a clause.
_CUTS = ((re.compile(_JOINT, re.IGNORECASE), (1, 2)), (re.compile(_FINE, re.IGNORECASE), (3,)))


@dataclass(frozen=True)
class Links:
    """How strongly passages hang together with others: position to score."""

    anchored: dict[int, float] = field(default_factory=dict)  # with passages about what the question names
    read: dict[int, float] = field(default_factory=dict)  # with passages that were read
    second: dict[int, float] = field(default_factory=dict)  # with what those lead to
    ways: dict[int, int] = field(default_factory=dict)  # number of anchors and passages read that lead there


@dataclass(frozen=True, eq=False)
class Reading:
    """A task taken apart."""

    question: OpenQuestion
    shown: tuple[int, ...]  # positions of the passages read, best first
    clauses: tuple[str, ...]  # parts of the question that could be questions of their own
    clause_vectors: np.ndarray  # (len(clauses), dim) float32
    clause_cosines: np.ndarray  # (len(clauses), num_passages) float32
    lexical: np.ndarray  # (1 + len(clauses), num_passages) BM25 scores of the question and its clauses
    earlier_vectors: np.ndarray  # (len(task.earlier), dim) float32
    links: Links
    bridges: tuple[Bridge, ...]  # out of anchors and passages read, best first, one a passage
    second: tuple[Bridge, ...]  # out of the best of those that were not read
    uncovered: tuple[str, ...]  # content words of the open part that no passage read has
    covered: frozenset[str]  # words of the passages read


class TaskReader:
    """Takes tasks apart."""

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
    whole = normalised(text.strip(" ?"))
    for pattern, widths in _CUTS:
        spans = _pieces(text, pattern)
        for width in widths:
            for first in range(len(spans) - width + 1):
                if len(found) == MAX_CLAUSES:
                    return list(found)
                piece = text[spans[first][0] : spans[first + width - 1][1]].strip(" ,;:?")
                if len(content_words(piece)) >= 2 and normalised(piece) != whole:
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


HIT = (
    "cosine", "open_cosine", "rank", "log_rank", "place", "shown", "lexical", "lexical_rank", "clause_cosine",
    "clause_rank", "clause_lexical", "link_anchor", "link_read", "link_second", "ways", "is_anchor", "asked_before",
    "votes", "coverage", "news", "title_asked", "title_read",
)  # fmt: skip


class HitDescriber:
    """Describes passages, given what is asked and was read."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._words: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
        self._rarity: dict[str, float] = {}

    def __call__(
        self, task: ThoughtsTask, reading: Reading, needed: np.ndarray, of_question: np.ndarray, votes: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """Return columns, one value for each of the passages `needed`."""
        links, question, shown = reading.links, reading.question, reading.shown
        places = {p: 1 / (1 + i) for i, p in enumerate(shown)}
        anchors = {a.passage for a in question.anchors}
        earlier = {int((self.index.passage_vectors @ v).argmax()) for v in reading.earlier_vectors}
        ranks, lexical = 1.0 / _ranks(of_question), _scaled(reading.lexical[:1])[0]
        of_clauses, clause_words = reading.clause_cosines, _scaled(reading.lexical[1:])
        rows = needed.tolist()

        def looked_up(table: Mapping[int, float]) -> np.ndarray:
            return np.array([table.get(p, 0.0) for p in rows])

        return {
            "cosine": of_question[needed],
            "open_cosine": np.array([self.index.passage_vectors[p] @ question.open_vector for p in rows]),
            "rank": ranks[needed],
            "log_rank": -np.log(ranks[needed]) / 8,
            "place": looked_up(places),
            "shown": np.isin(needed, shown),
            "lexical": lexical[needed],
            "lexical_rank": 1 / _ranks(reading.lexical[0])[needed],
            "clause_cosine": of_clauses[:, needed].max(axis=0, initial=0.0),
            "clause_rank": np.max([np.zeros(len(rows)), *(1 / _ranks(row)[needed] for row in of_clauses)], axis=0),
            "clause_lexical": clause_words[:, needed].max(axis=0, initial=0.0),
            "link_anchor": looked_up(links.anchored),
            "link_read": looked_up(links.read),
            "link_second": looked_up(links.second),
            "ways": looked_up(links.ways) / 3,
            "is_anchor": np.isin(needed, list(anchors)),
            "asked_before": np.isin(needed, list(earlier)),
            "votes": np.minimum(votes[needed], 10) / 10,
            **self._overlaps(task, reading, rows),
        }

    def _overlaps(self, task: ThoughtsTask, reading: Reading, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """Return which of the words asked for the passages have, and how their titles were met."""
        asked = content_words(reading.question.open_part)
        weights = {stem: self._rare(word) for word, stem in zip(asked, stems(asked), strict=True)}
        total = sum(weights.values()) or 1.0
        known, named = set(stems(sorted(reading.covered))), set(words(task.question.text))
        read = " ".join(w for p in task.passages for w in ("", *words(p.content), ""))
        found: dict[str, list[float]] = {name: [] for name in ("coverage", "news", "title_asked", "title_read")}
        for p in rows:
            own, title = self._words_of(p)
            shared = [stem for stem in weights if stem in own]
            found["coverage"].append(sum(weights[s] for s in shared) / total)
            found["news"].append(sum(weights[s] for s in shared if s not in known) / total)
            found["title_asked"].append(len(title & named) / max(len(title), 1))
            name = " ".join(words(drop_qualifier(self.index.passages[p].title)))
            found["title_read"].append(float(bool(name) and f" {name} " in f" {read} "))
        return {name: np.array(values) for name, values in found.items()}

    def _words_of(self, passage: int) -> tuple[frozenset[str], frozenset[str]]:
        """Return the stems of a passage, and the words of its title."""
        if passage not in self._words:
            found = self.index.passages[passage]
            title = frozenset(words(drop_qualifier(found.title))) - FUNCTION_WORDS
            self._words[passage] = frozenset(stems(words(found.content))), title
        return self._words[passage]

    def _rare(self, word: str) -> float:
        if word not in self._rarity:
            count = int((self.index.bm25_scores([word])[0] > 0).sum())
            self._rarity[word] = float(np.log1p(len(self.index.ids) / (1 + count)))
        return self._rarity[word]


def _scaled(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(rows.max(axis=1, keepdims=True, initial=0.0), 1e-9)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the 1-based rank of each score, ties by position."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks


KINDS = ("anchor", "bridge", "second", "found", "name", "clause", "residue", "swapped", "sentence")
PER_CLAUSE, PER_PASSAGE, SWAPPED, SENTENCES = 3, 4, 6, 3  # of each kind
MAX_WORDS, MAX_CHARACTERS = 12, 200  # of the question that a query carries; of a sentence
_NAME = re.compile(r"\b[A-Z][\w’'.-]*(?:\s+(?:of|the|and|de|la|van|von|[A-Z0-9][\w’'.-]*))*")


@dataclass(frozen=True, slots=True)
class ThoughtCandidate:
    """A query that could be asked next, its rule (of `KINDS`), and the passage it is meant to find; -1 for none."""

    text: str
    kind: str
    target: int = -1


class CandidateBuilder:
    """Builds at most `limit` candidates of a decision: a pure function of index and task."""

    stages = TaskReader.stages

    def __init__(self, index: Index, limit: int = 60) -> None:
        self.index, self.limit, self.read = index, limit, TaskReader(index)

    def __call__(self, task: ThoughtsTask) -> list[ThoughtCandidate]:
        """Return distinct queries, none of which was asked before."""
        return self.build(task, self.read(task))

    def build(self, task: ThoughtsTask, reading: Reading) -> list[ThoughtCandidate]:
        """Return the candidates, given what `read` returned."""
        rules = (self._anchors, self._bridges, self._found, self._names, self._clauses, self._swapped, self._sentences)
        rows = [list(rule(task, reading)) for rule in rules]
        asked = {"", normalised(task.question.text), *map(normalised, task.earlier)}
        found: dict[str, ThoughtCandidate] = {}
        for turn in range(max(map(len, rows))):  # by turns, so that the limit cuts the least likely of each rule
            for row in rows:
                if turn < len(row) and (key := normalised(row[turn].text)) not in asked:
                    found.setdefault(key, row[turn])
        return list(found.values())[: self.limit]

    def _anchors(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """What the question names, with what is asked of it."""
        rest = " ".join(reading.uncovered[:MAX_WORDS])
        for anchor in reading.question.anchors:
            yield ThoughtCandidate(f"{anchor.name} {rest}".strip(), "anchor", anchor.passage)
            yield ThoughtCandidate(f"{anchor.name} {reading.question.open_part}", "anchor", anchor.passage)

    def _bridges(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """What anchors and passages lead to, then what that leads to."""
        for kind, bridges in (("bridge", reading.bridges), ("second", reading.second)):
            for bridge in bridges:
                if bridge.passage not in reading.shown:
                    yield ThoughtCandidate(self._about(reading, bridge.passage), kind, bridge.passage)

    def _found(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """The titles that the question's words, or a part of it, find."""
        rows = [
            np.argsort(-s, kind="stable")[:PER_CLAUSE].tolist() for s in (*reading.lexical, *reading.clause_cosines)
        ]
        for turn in range(PER_CLAUSE):
            for passage in dict.fromkeys(row[turn] for row in rows if turn < len(row)):
                if passage not in reading.shown:
                    yield ThoughtCandidate(self._about(reading, passage), "found", passage)

    def _names(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """The names in the passages read, with what no passage says yet."""
        known = {*words(task.question.text), *FUNCTION_WORDS}
        rest = " ".join(reading.uncovered[:MAX_WORDS]) or reading.question.open_part
        for passage in task.passages:
            names = dict.fromkeys([drop_qualifier(passage.title), *_NAME.findall(passage.text)])
            fresh = [name for name in names if not set(words(name)) <= known]
            for name in fresh[:PER_PASSAGE]:
                yield ThoughtCandidate(f"{name} {rest}", "name")

    def _clauses(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        yield ThoughtCandidate(" ".join(reading.uncovered), "residue")
        yield ThoughtCandidate(reading.question.open_part, "residue")
        for clause in reading.clauses:
            yield ThoughtCandidate(clause, "clause")

    def _swapped(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """The question with a bridge's name where an anchor's stood."""
        text = f" {' '.join(words(task.question.text))} "
        for bridge in reading.bridges[:SWAPPED]:
            named = (a.name for a in reading.question.anchors if f" {a.name} " in text)
            if anchor := next(named, None):
                swapped = text.replace(f" {anchor} ", f" {bridge.name} ", 1).strip()
                yield ThoughtCandidate(swapped, "swapped", bridge.passage)

    def _sentences(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """The sentence of each passage that is likest the question, with what no passage says yet."""
        graph, rest = self.index.hierarchy, " ".join(reading.uncovered[:MAX_WORDS])
        for passage in reading.shown[:SENTENCES]:
            texts = [graph.sentences[s] for s in graph.sentences_of(passage).tolist()]
            hits = [len(reading.question.wanted & set(stems(words(text)))) for text in texts]
            if any(hits):
                yield ThoughtCandidate(f"{texts[int(np.argmax(hits))][:MAX_CHARACTERS]} {rest}".strip(), "sentence")

    def _about(self, reading: Reading, passage: int) -> str:
        """Return the title of a passage with the words that it shares with the question."""
        found = self.index.passages[passage]
        title, own = drop_qualifier(found.title), set(stems(words(found.text)))
        named = set(words(title))
        asked = content_words(reading.question.open_part)
        shared = [w for w, stem in zip(asked, stems(asked), strict=True) if stem in own and w not in named]
        return " ".join([title, *shared[:MAX_WORDS]])
