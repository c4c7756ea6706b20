"""The general case: score every span of the expected type by where it stands and what surrounds it."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnrag.roles import relations
from gnnrag.roles.answer_types import AnswerType, head_noun, question_word
from gnnrag.roles.comparing import Finding, Reading
from gnnrag.roles.countries import COUNTRY_OF, country_mentions
from gnnrag.roles.question_form import asked_relation
from gnnrag.roles.relations import good_name
from gnnrag.roles.spans import DATE_RE, NUMBER_RE, STOPWORDS, fold, name_spans, sentences, stem, strip_honorific, words


_WH = frozenset("who whom whose what which when where how why".split())
_KIND_OF: dict[str, AnswerType] = {
    "birth_date": "date", "death_date": "date", "birth_place": "place", "death_place": "place", "burial": "place",
    "country": "country", "cause": "phrase", "educated": "name", "employer": "name", "award": "name",
}  # fmt: skip
_NOT_PERSON = re.compile(
    r"\b(?:of|the|The|Press|Records|University|League|Party|Association|Company|Club|Films?|Award|Album|House|Church|College|"
    r"School|Institute|Group|State|States|TV|Studios?|Entertainment)\b"
)
_BEFORE: dict[str, tuple[str, ...]] = {
    "place": (r"\b(?:in|at|from|near) (?!\d)",),
    "name": (r"\b(?:at|of|from|for|the) ",),
}


@dataclass(frozen=True, slots=True)
class SpanWeights:
    """Weights of the signals; all but `similarity` are lexical."""

    overlap: float = 1.5  # weighted share of the question's words in the sentence
    passage: float = 0.3  # the same, in the passage
    similarity: float = 0.0  # cosine of sentence and question
    anchor: float = 0.2  # penalty of a passage that the question names: the answer is further along
    relation: float = 1.0  # bonus of a span that stands in the relation asked for
    noun: float = 0.3  # bonus of a span that holds the noun asked for (`Dodge County`)
    fit: float = 0.3  # bonus of a span that looks like its type (a place after a preposition, a person of two words)
    near: float = 0.3  # nearness of a number or date to the question's words
    asked: float = 1.0  # penalty of a span that the question already has


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    passage: int
    score: float


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a question says: weights of its words, its folded text, the noun and the relation it asks for."""

    weights: dict[str, float]
    folded: str
    noun: str
    relation: str
    mentions: frozenset[int]


class SpanSearch:
    """Find the best span of a type.

    Args:
        embedder: see `OfflineReader`; None for lexical signals only.
        weights: the weights.
    """

    def __init__(self, embedder: Any, weights: SpanWeights) -> None:
        self.embedder = embedder
        self.weights = weights

    def find(self, question: str, kind: AnswerType, reading: Reading) -> Finding | None:
        """Return the best span of type `kind` for `question`, or None where there is none."""
        if kind == "yes_no":
            return Finding("yes", (0,), 0.15, "yes by default")
        asked = _read_question(question, reading)
        objects = self._objects(asked, reading)
        best: Finding | None = None
        for sentence in self._sentences(question, asked, reading)[:16]:
            for start, end, span in spans_of(kind, sentence.text):
                score = sentence.score + self._span_score(sentence, start, end, span, asked, kind)
                score += self.weights.relation * objects.get((sentence.passage, span), 0.0)
                if best is None or score > best.confidence:
                    best = Finding(span, (sentence.passage,), score, f"span: {kind}")
        if best is None:
            return None
        return Finding(best.text, best.passages, min(1.0, max(0.0, best.confidence / 3)), best.how)

    def _objects(self, asked: _Asked, reading: Reading) -> dict[tuple[int, str], float]:
        if not asked.relation:
            return {}
        found = {}
        for i, (text, passage) in enumerate(zip(reading.texts, reading.passages, strict=True)):
            for candidate in relations.find(asked.relation, text, passage.title)[:4]:
                found[i, candidate.text] = candidate.score
        return found

    def within(self, attribute: str, at: int, reading: Reading) -> str | None:
        """Return the likeliest span for an attribute that the passage does not state in a known way."""
        kind = _KIND_OF.get(attribute, "name")
        text, title = reading.texts[at], fold(reading.passages[at].title)
        asked = set(title.split())
        for pattern in _BEFORE.get(kind, ()):
            for match in re.finditer(pattern, text):
                for start, _, span in spans_of(kind, text[match.end() : match.end() + 80])[:1]:
                    if start < 12 and not set(fold(span).split()) & asked:
                        return span
        found = country_mentions(text) if kind == "place" else ()
        if found:
            return found[0][1]
        return next((s for _, _, s in spans_of(kind, text) if not set(fold(s).split()) & asked), None)

    def _sentences(self, question: str, asked: _Asked, reading: Reading) -> list[_Sentence]:
        rows = [(i, s) for i, text in enumerate(reading.texts) for s in sentences(text)]
        bags = [set(words(s)) for _, s in rows]
        whole = [set(words(p.title)) for p in reading.passages]
        frequency: Counter[str] = Counter()
        for (i, _), bag in zip(rows, bags, strict=True):
            whole[i] |= bag
            frequency.update(bag)
        wanted = {w: v * math.log(1 + len(rows) / (1 + frequency[w])) for w, v in asked.weights.items()}
        total = sum(wanted.values()) or 1.0
        similarity = self._similarity(question, [f"{reading.passages[i].title}. {s}" for i, s in rows])
        w = self.weights
        found = []
        for (i, text), bag, cosine in zip(rows, bags, similarity, strict=True):
            score = w.overlap * sum(v for word, v in wanted.items() if word in bag) / total
            score += w.passage * sum(v for word, v in wanted.items() if word in whole[i]) / total
            score += w.similarity * float(cosine) - w.anchor * (i in asked.mentions)
            found.append(_Sentence(text, i, score))
        return sorted(found, key=lambda s: -s.score)

    def _similarity(self, question: str, texts: list[str]) -> np.ndarray:
        if self.embedder is None or not texts or not self.weights.similarity:
            return np.zeros(len(texts), dtype=np.float32)
        vectors = self.embedder.encode([question, *texts])
        return np.asarray(vectors[1:] @ vectors[0])

    def _span_score(
        self, sentence: _Sentence, start: int, end: int, span: str, asked: _Asked, kind: AnswerType
    ) -> float:
        w, folded = self.weights, fold(span)
        score = -w.asked if f" {folded} " in asked.folded else 0.0
        if asked.noun and asked.noun in fold(sentence.text[max(0, start - 20) : end + 20]):
            score += w.noun * (1.0 if asked.noun in folded else 0.5)
        if kind in ("number", "date", "year"):
            score += w.near * _nearness(sentence.text, start, end, asked.weights)
        return score + self._fit(kind, sentence.text, start, span)

    def _fit(self, kind: AnswerType, sentence: str, start: int, span: str) -> float:
        """Return how well a span looks like its type."""
        before = sentence[max(0, start - 12) : start]
        if kind == "place":
            return self.weights.fit * bool(re.search(r"\b(?:in|at|near|to|from|of|the|is)(?: the)? $", before))
        if kind == "person":
            return self.weights.fit * (1 < len(span.split()) < 5 and not _NOT_PERSON.search(span))
        return 0.0


def _nearness(sentence: str, start: int, end: int, weights: dict[str, float]) -> float:
    """Return the weighted share of the question's words around a span, each discounted by its distance."""
    best: dict[str, float] = {}
    for match in re.finditer(r"\w+", sentence):
        if start <= match.start() < end:
            continue
        gap = max(start - match.end(), match.start() - end, 0)
        for word in words(match.group()):
            if word in weights:
                best[word] = max(best.get(word, 0.0), weights[word] / (1 + gap / 20))
    return sum(best.values()) / (sum(weights.values()) or 1.0)


def _read_question(question: str, reading: Reading) -> _Asked:
    """Weigh the question's words by their distance to its question word: the last hop is asked for there."""
    tokens = fold(question).split()
    lowered = " ".join(question.lower().split())
    at = len(fold(lowered[: question_word(lowered)]).split())
    mentions = reading.linker.mentions(question)
    named = {i for m in mentions for i in range(m.start, m.end)}
    weights: dict[str, float] = {}
    for i, token in enumerate(tokens):
        if token in STOPWORDS or token in _WH:
            continue
        weight = (0.25 + math.exp(-abs(i - at) / 6)) * (0.3 if i in named else 1.0)
        weights[stem(token)] = max(weights.get(stem(token), 0.0), weight)
    head = " ".join(tokens[max(0, at - 6) : at + 7])
    return _Asked(
        weights, f" {' '.join(tokens)} ", head_noun(question), asked_relation(head), frozenset(m.passage for m in mentions)
    )


def spans_of(kind: AnswerType, sentence: str) -> list[tuple[int, int, str]]:
    """Return (start, end, text) of the spans of a type in a sentence."""
    if kind == "date":
        return [(m.start(), m.end(), m.group()) for m in DATE_RE.finditer(sentence)]
    if kind == "year":
        return [(m.start(), m.end(), m.group()) for m in re.finditer(r"\b[12]\d{3}\b", sentence)]
    if kind == "number":
        dates = [(m.start(), m.end()) for m in DATE_RE.finditer(sentence)]
        return [
            (m.start(), m.end(), m.group())
            for m in NUMBER_RE.finditer(sentence)
            if not any(start <= m.start() < end for start, end in dates)
        ]
    if kind in ("country", "language"):
        return [(at, at + len(s), s) for at, s, _ in country_mentions(sentence)]
    found = []
    for start, end, name in name_spans(sentence):
        name = strip_honorific(name).partition(" of the ")[0] if kind == "person" else name
        if good_name(name, "") or (kind == "place" and COUNTRY_OF.get(name) == name):
            found.append((start, end, name))
    if kind in ("name", "phrase"):
        found += [(m.start(), m.end(), m.group(1)) for m in re.finditer(r'"([^"]{2,60})"', sentence)]
    return found
