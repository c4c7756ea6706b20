"""The general case: score every span of the expected type by where it stands and what surrounds it."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace

from gnnrag.roles.offline_reader import relations
from gnnrag.roles.offline_reader.question import AnswerType, Focus, links_from, read_focus
from gnnrag.roles.offline_reader.relations import Finding, Reading, good_name
from gnnrag.roles.offline_reader.spans import DATE_RE, NUMBER_RE, fold, name_spans, sentences, strip_honorific, words
from gnnrag.text.normalise import COUNTRY_OF, country_mentions

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


@dataclass
class SpanWeights:
    """Weights of the signals, chosen on development questions."""

    overlap: float = 1.5  # weighted share of the question's words in the sentence
    passage: float = 0.3  # the same, in the passage
    anchor: float = 0.2  # penalty of a passage that the question names: the answer is further along
    linked: float = 0.2  # bonus of a passage whose title a named passage mentions, or that shares another name with it
    relation: float = 1.0  # bonus of a span that stands in the relation asked for
    agent: float = 0.3  # bonus of a span that did what the question asks about
    noun: float = 0.3  # bonus of a span that holds the noun asked for (`Dodge County`)
    fit: float = 0.3  # bonus of a span that looks like its type (a place after a preposition, a person of two words)
    repeat: float = 1.0  # penalty of a span that the question already has


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    passage: int
    score: float


class SpanSearch:
    """Finds the best span of a type.

    Sentence embeddings and the distance of a span to the question's words were tried: both lower EM on development.
    """

    def __init__(self, weights: SpanWeights) -> None:
        self.weights = weights

    def find(self, question: str, kind: AnswerType, reading: Reading) -> Finding | None:
        """Return the best span of type `kind` for `question`, or None where there is none."""
        if kind == "yes_no":
            return Finding("yes", (), 0.15, "guess")
        focus = read_focus(question, reading)
        objects = self._objects(focus, reading)
        best: Finding | None = None
        for sentence in self._sentences(focus, reading)[:16]:
            for start, end, span in spans_of(kind, sentence.text):
                score = sentence.score + self._span_score(sentence, start, end, span, focus, kind)
                score += self.weights.relation * objects.get((sentence.passage, span), 0.0)
                if best is None or score > best.confidence:
                    best = Finding(span, (sentence.passage,), score, f"span: {kind}")
        if best is None:
            return None
        return replace(best, confidence=min(0.65, max(0.02, 0.05 + best.confidence / 4)))

    def _objects(self, focus: Focus, reading: Reading) -> dict[tuple[int, str], float]:
        if not focus.relation:
            return {}
        found = {}
        for i, (text, passage) in enumerate(zip(reading.texts, reading.passages, strict=True)):
            for candidate in relations.find(focus.relation, text, passage.title)[:4]:
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

    def _sentences(self, focus: Focus, reading: Reading) -> list[_Sentence]:
        rows = [(i, s) for i, text in enumerate(reading.texts) for s in sentences(text)]
        bags = [set(words(s)) for _, s in rows]
        whole = [set(words(p.title)) for p in reading.passages]
        frequency: Counter[str] = Counter()
        for (i, _), bag in zip(rows, bags, strict=True):
            whole[i] |= bag
            frequency.update(bag)
        wanted = {w: v * math.log(1 + len(rows) / (1 + frequency[w])) for w, v in focus.weights.items()}
        total = sum(wanted.values()) or 1.0
        w, linked = self.weights, links_from(focus, reading)
        found = []
        for (i, text), bag in zip(rows, bags, strict=True):
            score = w.overlap * sum(v for word, v in wanted.items() if word in bag) / total
            score += w.passage * sum(v for word, v in wanted.items() if word in whole[i]) / total
            score += w.linked * linked.get(i, 0.0) - w.anchor * (i in focus.mentions)
            found.append(_Sentence(text, i, score))
        return sorted(found, key=lambda s: -s.score)

    def _span_score(
        self, sentence: _Sentence, start: int, end: int, span: str, focus: Focus, kind: AnswerType
    ) -> float:
        w, folded = self.weights, fold(span)
        score = -w.repeat if f" {folded} " in focus.folded else 0.0
        if focus.noun and focus.noun in fold(sentence.text[max(0, start - 20) : end + 20]):
            score += w.noun * (1.0 if focus.noun in folded else 0.5)
        if focus.verb and _is_agent(focus.verb, sentence.text, start, end):
            score += w.agent
        return score + self._fit(kind, sentence.text, start, span)

    def _fit(self, kind: AnswerType, sentence: str, start: int, span: str) -> float:
        """Return how well a span looks like its type."""
        before = sentence[max(0, start - 12) : start]
        if kind == "place":
            return self.weights.fit * bool(re.search(r"\b(?:in|at|near|to|from|of|the|is)(?: the)? $", before))
        if kind == "person":
            return self.weights.fit * (1 < len(span.split()) < 5 and not _NOT_PERSON.search(span))
        return 0.0


def _is_agent(verb: str, sentence: str, start: int, end: int) -> bool:
    """Tell whether a span did what the question asks about: `designed by SPAN`, `SPAN designed`."""
    passive = re.search(rf"\b{verb}\w* (?:\w+ ){{0,3}}by (?:[a-z\-]+ ){{0,3}}$", sentence[:start], re.IGNORECASE)
    active = re.match(rf"(?:,[^,]{{1,60}},)? (?:(?!was|were|is|are|been)\w+ )?{verb}", sentence[end:], re.IGNORECASE)
    return bool(passive or active)


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
