"""The rule-based reader: which rule answers a question, spans scored in passages, answers along a chain."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace

from gnnrag.batching import MicroBatcher
from gnnrag.parts import part
from gnnrag.roles.base import Answer, ReaderTask, Role
from gnnrag.roles.offline_reader import comparing as dates
from gnnrag.roles.offline_reader import comparing as places
from gnnrag.roles.offline_reader import question as answer_types
from gnnrag.roles.offline_reader import question as question_form
from gnnrag.roles.offline_reader import relations
from gnnrag.roles.offline_reader.comparing import compare, predicate
from gnnrag.roles.offline_reader.question import AnswerType, ChainForm, Focus, links_from, read_focus, with_style
from gnnrag.roles.offline_reader.quoting import Quoter
from gnnrag.roles.offline_reader.relations import CUES, Finding, Reading, good_name
from gnnrag.roles.offline_reader.spans import (
    DATE_RE,
    NUMBER_RE,
    build_linker,
    fold,
    name_spans,
    readable,
    sentences,
    strip_honorific,
    with_unit,
    words,
)
from gnnrag.session import Session
from gnnrag.text.normalise import COUNTRY_OF, country_mentions
from gnnrag.text.sentences import beginning

_KIND_OF: dict[str, AnswerType] = {
    "birth_date": "date", "death_date": "date", "birth_place": "place", "death_place": "place", "burial": "place",
    "country": "country", "cause": "phrase", "educated": "name", "employer": "name", "award": "name",
}  # fmt: skip
_MEASURE = re.compile(r"\bhow (?:long|old|far|tall|high|deep|wide|heavy|large|big|often)\b", re.IGNORECASE)
_ISO_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
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
    repeat: float = 9.0  # penalty of a span that the question already has: the last choice


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
        is_measure = kind == "number" and bool(_MEASURE.search(question))
        best: Finding | None = None
        for sentence in self._sentences(focus, reading)[:16]:
            for start, end, span in spans_of(kind, sentence.text):
                if is_no_name(span, reading.texts[sentence.passage]):
                    continue
                score = sentence.score + self._span_score(sentence, start, end, span, focus, kind)
                score += self.weights.relation * objects.get((sentence.passage, span), 0.0)
                if best is None or score > best.confidence:
                    text = with_unit(sentence.text, start, end) if is_measure else span
                    best = Finding(text, (sentence.passage,), score, f"span: {kind}")
        if best is None:
            return None
        return replace(best, confidence=min(0.65, max(0.02, 0.05 + best.confidence / 4)))

    def _objects(self, focus: Focus, reading: Reading) -> dict[tuple[int, str], float]:
        if not focus.relation:
            return {}
        scores = {}
        for i, (text, passage) in enumerate(zip(reading.texts, reading.passages, strict=True)):
            for candidate in relations.find(focus.relation, text, passage.title)[:4]:
                scores[i, candidate.text] = candidate.score
        return scores

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
        mentions = country_mentions(text) if kind == "place" else ()
        if mentions:
            return mentions[0][1]
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
        scored = []
        for (i, text), bag in zip(rows, bags, strict=True):
            score = w.overlap * sum(v for word, v in wanted.items() if word in bag) / total
            score += w.passage * sum(v for word, v in wanted.items() if word in whole[i]) / total
            score += w.linked * linked.get(i, 0.0) - w.anchor * (i in focus.mentions)
            scored.append(_Sentence(text, i, score))
        return sorted(scored, key=lambda s: -s.score)

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
        dates = [m.span() for pattern in (DATE_RE, _ISO_DATE) for m in pattern.finditer(sentence)]
        return [
            (m.start(), m.end(), m.group())
            for m in NUMBER_RE.finditer(sentence)
            if not any(start <= m.start() < end for start, end in dates)
        ]
    if kind in ("country", "language"):
        return [(at, at + len(s), s) for at, s, _ in country_mentions(sentence)]
    spans = []
    for start, end, name in name_spans(sentence):
        name = strip_honorific(name).partition(" of the ")[0] if kind == "person" else name
        if good_name(name, "") or (kind == "place" and COUNTRY_OF.get(name) == name):
            spans.append((start, end, name))
    if kind in ("name", "phrase"):
        spans += [(m.start(), m.end(), m.group(1)) for m in re.finditer(r'"([^"]{2,60})"', sentence)]
    return spans


_CONTRACTED = re.compile(r"\w+['’](?:re|ve|ll|d|m|t)", re.IGNORECASE)
_TWICE = re.compile(r"(\w{3,})(?: \w+)? \1\b|\d{1,3} ([^\W\d_]+)$", re.IGNORECASE)


def is_no_name(span: str, text: str) -> bool:
    """Tell whether a span is what lost line breaks make of a heading: `Surgery Surgery`, `2 Testing`; or `You're`.

    The word said twice, or after a number, is one that the text writes small, too; `Duran Duran` is a name.
    """
    if _CONTRACTED.fullmatch(span):
        return True
    said = _TWICE.match(span)
    word = (said.group(1) or said.group(2)) if said else ""
    return bool(word) and word[0].isupper() and bool(re.search(rf"\b{word.lower()}\b", text))


def follow(form: ChainForm, question: str, reading: Reading, search: SpanSearch) -> Finding | None:
    """Answer a chain question, or None where the chain breaks; an attribute no rule can read is searched for."""
    anchor = form.anchor if form.anchor is not None else _anchor(question, reading)
    if anchor is None:
        return None
    best: Finding | None = None
    for rank, path in enumerate(form.paths):
        finding = _follow_path(path, form.attribute, anchor, reading, search)
        if finding is None:
            continue
        weighted = finding.confidence - 0.15 * rank
        if best is None or weighted > best.confidence:
            best = Finding(finding.text, finding.passages, weighted, finding.how)
    return best


def _anchor(question: str, reading: Reading) -> int | None:
    """Return the passage that shares most words with a question none of whose titles is here."""
    wanted = set(words(question))
    scores = [len(wanted & set(words(p.content))) - 0.1 * i for i, p in enumerate(reading.passages)]
    return max(range(len(scores)), key=scores.__getitem__) if scores else None


def _follow_path(
    path: tuple[str, ...], attribute: str, anchor: int, reading: Reading, search: SpanSearch
) -> Finding | None:
    at = anchor
    visited: tuple[int, ...] = (anchor,)
    confidence = 0.9
    hops = path if attribute else path[:-1]
    for relation in hops:
        target, _, score = reading.hop(at, relation, visited)
        if target is None:
            return None
        confidence *= min(1.0, 0.35 + score / 2)
        at = target
        visited = (*visited, at)
    if attribute:
        text = read_attribute(attribute, reading.texts[at], reading.passages[at].title)
        how = f"{'.'.join(path)}.{attribute}"
        if text:
            return Finding(text, visited, confidence, how)
        guess = search.within(attribute, at, reading)
        return Finding(guess, visited, 0.4 * confidence, f"{how}?") if guess else None
    candidates = relations.find(path[-1], reading.texts[at], reading.passages[at].title)
    if not candidates:
        return None
    best = candidates[0]
    return Finding(best.text, visited, confidence * min(1.0, best.score), ".".join(path))


def read_attribute(attribute: str, text: str, title: str) -> str | None:
    """Return the value of one attribute of what a passage is about."""
    if attribute in ("birth_date", "death_date"):
        fact = dates.birth_date(text) if attribute == "birth_date" else dates.death_date(text)
        return fact.text if fact else None
    if attribute in ("birth_place", "death_place"):
        return places.place(text, birth=attribute == "birth_place")
    if attribute == "country":
        return next(iter(places.countries(text)), None)
    if attribute == "cause":
        return _cause(text)
    if attribute == "burial":
        return _place_cue(CUES["burial"], text)
    objects = relations.find(attribute, text, title)
    return objects[0].text if objects else None


def _cause(text: str) -> str | None:
    for sentence in sentences(text):
        match = re.search(
            r"\b(?:died|death)\b[^.;]{0,60}?\b(?:of|from|due to|by|after) (?:an? |the )?((?:[a-z\-']+ ?){1,3})",
            sentence,
        )
        if match:
            return re.split(r" (?:in|at|on|and|while|when|after|that|his|her)\b", match.group(1))[0].strip()
    return None


def _place_cue(cues: tuple[str, ...], text: str) -> str | None:
    for cue in cues:
        match = re.search(cue, text)
        if match:
            place_name = places.place_after(text[match.end() : match.end() + 100])
            if place_name:
                return place_name
    return None


@part("role", "reader.offline")
class OfflineReader(Role[ReaderTask, Answer]):
    """Extracts a short answer from passages by rules, or quotes statements for longer ones; deterministic.

    Its constants were chosen on development questions.
    """

    min_confidence: float = 0.05  # answers less sure are withheld; 0.4 withholds nine in ten that lack their evidence
    min_fit: float = 0.5  # of longer answers: below are 4 in 1,000 questions on the corpus, and 58 of 60 on others
    guess: bool = False  # answer by a prior where a compared thing is not in the passages: yes, the first, the older
    max_residue: int = 1  # content words of a question that a chain may leave unexplained
    max_passages: int = 10  # passages beyond this are not read; of a long answer, too
    weights: SpanWeights = field(default_factory=SpanWeights)  # of the general span search

    def setup(self) -> None:
        self.search = SpanSearch(self.weights)
        self.quoter = Quoter(getattr(self, "index", None), self.min_fit, self.max_passages)
        self._batcher: MicroBatcher[ReaderTask, Answer] = MicroBatcher(self.quoter.answers)

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        task = with_style(task)
        if task.style == "short":
            return self.read(task)
        (answer,) = await self._batcher.results([task])
        return answer

    async def close(self) -> None:
        self._batcher.close()

    def read(self, task: ReaderTask) -> Answer:
        """Return the short answer; its text is empty where nothing in the passages is plausible."""
        passages = task.passages[: self.max_passages]
        if not passages:
            return Answer("", thought="no passages")
        passages = readable(passages)
        linker, texts = build_linker(passages)
        reading = Reading(tuple(passages), tuple(texts), linker)
        finding = self.find(beginning(task.question.text), reading)
        if finding is None:
            return Answer("", thought="nothing plausible")
        withheld = finding.how.startswith(("guess", "proxy")) and not self.guess
        if withheld or finding.confidence < self.min_confidence:
            return Answer("", thought=f"withheld: {finding.how}")
        support = tuple(passages[i].id for i in finding.passages)
        flags = tuple(flag for flag in ("guess", "proxy") if finding.how.startswith(flag))
        return Answer(finding.text, support, round(max(0.0, finding.confidence), 4), finding.how, flags)

    def find(self, question: str, reading: Reading) -> Finding | None:
        """Return what the rules find, however unsure; None where nothing is plausible."""
        comparison = question_form.parse_comparison(question, reading.linker)
        if comparison is not None:
            finding = compare(comparison, reading) or predicate(question, comparison, reading)
            if finding is not None:
                return finding
        chain = question_form.parse_chain(question, reading.linker)
        if chain is not None and len(chain.residue) <= self.max_residue:
            finding = follow(chain, question, reading, self.search)
            if finding is not None:
                return finding
        return self.search.find(question, answer_types.expected_type(question), reading)
