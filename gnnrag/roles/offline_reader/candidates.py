"""Candidate answers of a question and their features; the weights are learned (`gnnrag.roles.tuned.reader`)."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

import numpy as np

from gnnrag.metrics.answer import f1, normalise_answer
from gnnrag.roles.offline_reader import relations
from gnnrag.roles.offline_reader.question import (
    AnswerType,
    Focus,
    expected_type,
    links_from,
    parse_comparison,
    question_word,
    read_focus,
)
from gnnrag.roles.offline_reader.relations import Finding, Reading
from gnnrag.roles.offline_reader.spans import (
    DATE_RE,
    MONTHS,
    NUMBER_RE,
    STOPWORDS,
    UPPER,
    fold,
    name_spans,
    sentences,
    stem,
    strip_honorific,
    without_parentheses,
)
from gnnrag.text.normalise import country_mentions
from gnnrag.text.phrases import rule_phrases

KINDS = (
    "name",
    "place",
    "date",
    "year",
    "number",
    "country",
    "quoted",
    "title",
    "phrase",
    "option",
    "yes",
    "no",
    "rule",
    "span",
)
# Answers that are words rather than names are looked for where a question may want them.
WORDY: frozenset[AnswerType] = frozenset(("phrase", "name", "place", "person", "date"))
_MONTH = "|".join(MONTHS)
_YEAR = re.compile(r"(?<![\d,.])[12]\d{3}(?![\d,]\d|\d)")
_DAY = re.compile(rf"\b(?:{_MONTH}) \d{{1,2}}\b(?!,? \d)|\b\d{{1,2}} (?:{_MONTH})\b(?! \d)")
_SHORT_DATE = re.compile(r"\b(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\. \d{1,2}, \d{4}\b")
_PART = re.compile(r", | of (?:the )?| and | the ")
_SIDE = re.compile(r"\b(?:(?:north|south|east|west)(?:-?(?:east|west))?(?:ern)?|central|near|upper|lower) $")
_NUMBER = re.compile(
    r"(?<![\w.,])(?:(?:about|around|over|approximately|nearly) )?[$£€]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:st|nd|rd|th)?"
    r"(?:%| percent| (?:m|b|tr)illion| thousand)?"
)
_UNIT = re.compile(r" ?(?:a\.m\.|p\.m\.|[AP]M\b|[a-z]+\b)")
_PLACE = re.compile(rf"[{UPPER}][\w'’\-]*(?: [{UPPER}][\w'’\-]*)*, [{UPPER}][\w'’\-]*(?: [{UPPER}][\w'’\-]*)*")
_QUOTED = re.compile(r"\"([^\"]{2,60})\"")
_WORD = re.compile(r"[a-z][a-z\-]+")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A span that could be the answer."""

    text: str  # the answer as it would be given
    kind: str  # one of `KINDS`
    passage: int = -1  # its number; -1 where it stands in none (yes, no, a choice of the question)
    start: int = 0  # characters in the passage's cleaned text; start and end of a title are 0
    end: int = 0
    sentence: int = -1  # its number in the passage; -1 outside of the text

    @property
    def key(self) -> str:
        """What makes two candidates one answer."""
        return normalise_answer(self.text)


def candidates_of(question: str, reading: Reading, rule: Finding | None = None, limit: int = 400) -> list[Candidate]:
    """Return candidates in reading order with distinct (passage, start, text), none empty once normalised.

    What the rules answer is one, too. At most `limit` are of one passage; wordy phrases come last.
    """
    wanted = expected_type(question)
    candidates: list[Candidate] = []
    if wanted == "yes_no":
        candidates += [Candidate("yes", "yes"), Candidate("no", "no")]
    comparison = parse_comparison(question, reading.linker)
    if comparison is not None and not comparison.yes_no:
        candidates += [Candidate(name.strip(" ,"), "option") for name in comparison.names]
    if rule is not None and rule.text:
        place = rule.passages[-1] if rule.passages else -1
        at = reading.texts[place].find(rule.text) if place >= 0 else -1
        end = at + len(rule.text) if at >= 0 else 0
        candidates.append(Candidate(rule.text, "rule", place, max(at, 0), end, 0 if at >= 0 else -1))
    for i, (text, passage) in enumerate(zip(reading.texts, reading.passages, strict=True)):
        mine = [Candidate(without_parentheses(passage.title), "title", i)]
        mine += [Candidate(t, k, i, s, e, n) for t, k, s, e, n in spans_in(text, wanted in WORDY)]
        candidates += mine[:limit]
    kept: dict[tuple[int, int, str], Candidate] = {}
    for one in candidates:
        if one.key or one.kind in ("yes", "no"):
            kept.setdefault((one.passage, one.start, one.text), one)
    return list(kept.values())


@lru_cache(maxsize=4096)
def spans_in(text: str, wordy: bool) -> tuple[tuple[str, str, int, int, int], ...]:
    """Return (answer, kind, start, end, sentence) of the spans of a passage, distinct in start and answer."""
    spans: dict[tuple[int, str], tuple[str, str, int, int, int]] = {}
    words: list[tuple[str, str, int, int, int]] = []
    at = 0
    for number, sentence in enumerate(sentences(text)):
        at = text.index(sentence, at)
        for start, answer, kind in _in_sentence(sentence):
            row = (answer, kind, at + start, at + start + len(answer), number)
            spans.setdefault((row[2], answer), row)
        if wordy:
            words += [(a, "phrase", at + s, at + s + len(a), number) for s, a in _wordy(sentence)]
        at += len(sentence)
    return (*spans.values(), *(row for row in words if (row[2], row[0]) not in spans))


def _in_sentence(sentence: str) -> Iterator[tuple[int, str, str]]:
    """Yield (start, answer, kind); the first kind of an answer counts."""
    dates = [m.span() for m in DATE_RE.finditer(sentence)]
    for pattern, kind in ((DATE_RE, "date"), (_SHORT_DATE, "date"), (_DAY, "date"), (_YEAR, "year")):
        for match in pattern.finditer(sentence):
            is_year = match.group().isdigit()
            yield match.start(), match.group(), "year" if is_year else kind
    yield from _numbers(sentence, dates)
    for start, name, _ in country_mentions(sentence):
        yield start, name, "country"
    names = [(start, name) for start, _, name in name_spans(sentence)]
    phrases = [p for p in rule_phrases(sentence) if not p[0].isdigit()]
    names += [(start, p) for p in phrases if (start := sentence.find(p)) >= 0]
    for start, name in names:
        yield start, name, "name"
        bare = strip_honorific(name)
        if bare != name and name.endswith(bare):
            yield start + len(name) - len(bare), bare, "name"
        if side := _SIDE.search(sentence[:start]):
            yield side.start(), sentence[side.start() : start] + name, "place"
    for start, name in names:
        yield from _parts(start, name)
    for match in _PLACE.finditer(sentence):
        yield match.start(), match.group(), "place"
    for match in _QUOTED.finditer(sentence):
        yield match.start(1), match.group(1), "quoted"


def _parts(start: int, name: str) -> Iterator[tuple[int, str, str]]:
    """Yield the pieces of a name that stand for it now and then: `Emma` of `Emma of Normandy`."""
    at = 0
    pieces = [*_PART.finditer(name), None]
    for match in pieces if len(pieces) > 1 else []:
        end = match.start() if match else len(name)
        if end - at > 1:
            yield start + at, name[at:end], "name"
        at = match.end() if match else end


def _numbers(sentence: str, dates: list[tuple[int, int]]) -> Iterator[tuple[int, str, str]]:
    for pattern in (_NUMBER, NUMBER_RE):
        for match in pattern.finditer(sentence):
            if any(start <= match.start() < end for start, end in dates):
                continue
            answer = match.group()
            yield match.start(), answer, "number"
            unit = _UNIT.match(sentence, match.end())
            if unit:
                yield match.start(), answer + unit.group(), "number"
            bare = re.sub(r"^(?:about|around|over|approximately|nearly) ", "", answer)
            if bare != answer:
                yield match.start() + len(answer) - len(bare), bare, "number"


def _wordy(sentence: str) -> Iterator[tuple[int, str]]:
    """Yield the runs of one to three plain words without a function word among them."""
    matches = [m for m in _WORD.finditer(sentence) if not sentence[m.start() - 1 : m.start()].isalnum()]
    for i, first in enumerate(matches):
        end = first.end()
        for j in range(i, min(i + 3, len(matches))):
            if matches[j].group() in STOPWORDS or (j > i and sentence[end : matches[j].start()] != " "):
                break
            end = matches[j].end()
            yield first.start(), sentence[first.start() : end]


TYPES: tuple[str, ...] = get_args(AnswerType)
_FITS: dict[str, tuple[str, ...]] = {
    "person": ("name",),
    "place": ("name", "place", "country"),
    "date": ("date", "year"),
    "year": ("year",),
    "number": ("number",),
    "country": ("country", "name"),
    "language": ("country", "name"),
    "yes_no": ("yes", "no"),
    "name": ("name", "quoted", "title"),
    "phrase": ("phrase", "name", "number", "quoted"),
}
_RULES = ("compare", "chain", "span", "other")
_NUMERIC_WORDS = """
passage_rank passage_overlap passage_head passage_anchor passage_linked title_overlap sentence_overlap sentence_head
sentence_best sentence_number near_overlap near_head distance before_overlap after_overlap verb_near noun_near
noun_inside agent preposition bracket length capitals in_question is_title is_anchor_title passages_with occurrences
relation relation_here fits starts_sentence after_comma rule_same rule_f1 rule_confidence rule_inside
overlap_all part_of_longer first_of_key other_words
"""
_NUMERIC = _NUMERIC_WORDS.split()
FEATURES: tuple[str, ...] = (
    *_NUMERIC,
    *(f"kind_{k}" for k in KINDS),
    *(f"type_{t}" for t in TYPES),
    *(f"rule_{r}" for r in _RULES),
    *(f"same_{r}" for r in _RULES),
)
_AT = {name: i for i, name in enumerate(FEATURES)}
_NEAR = 8  # words on each side that surround a candidate
_TOKEN = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a question weighs: its words, and those next to its question word."""

    focus: Focus
    kind: AnswerType
    weights: Mapping[str, float]
    head: Mapping[str, float]
    objects: Mapping[tuple[int, str], float]

    def share(self, bag: set[str], of_head: bool = False) -> float:
        """Return the weighted share of the question's words in a bag, in [0, 1]."""
        weights = self.head if of_head else self.weights
        return sum(v for w, v in weights.items() if w in bag) / (sum(weights.values()) or 1.0)


def rule_kind(rule: Finding | None) -> str:
    """Return by which kind of rule an answer was found, or nothing."""
    if rule is None:
        return ""
    if rule.how.startswith("span"):
        return "span"
    return "other" if rule.how.startswith(("guess", "proxy")) else "chain" if rule.passages[1:] else "compare"


def _ask(question: str, reading: Reading) -> _Asked:
    focus = read_focus(question, reading)
    rows = [set(_stems(s)) for text in reading.texts for s in sentences(text)]
    frequency = Counter(w for bag in rows for w in bag)
    weights = {w: v * math.log(1 + len(rows) / (1 + frequency[w])) for w, v in focus.weights.items()}
    lowered = " ".join(question.lower().split())
    at = len(fold(lowered[: question_word(lowered)]).split())
    tokens = fold(question).split()[max(0, at - 2) : at + 7]
    head = {stem(t): weights[stem(t)] for t in tokens if stem(t) in weights}
    objects: dict[tuple[int, str], float] = {}
    for i, (text, passage) in enumerate(zip(reading.texts, reading.passages, strict=True)):
        for candidate in relations.find(focus.relation, text, passage.title)[:4] if focus.relation else ():
            objects[i, candidate.text] = candidate.score
    return _Asked(focus, expected_type(question), weights, head, objects)


class CandidateTable:
    """Counts over all candidates and passages of a question, and the features of candidates from them."""

    def __init__(
        self, question: str, reading: Reading, candidates: Sequence[Candidate], rule: Finding | None = None
    ) -> None:
        self.asked, self.reading, self.rule = _ask(question, reading), reading, rule
        self.words = [list(_words(text)) for text in reading.texts]
        self.linked = links_from(self.asked.focus, reading)
        self.passages = [self._passage(i) for i in range(len(reading.texts))]
        self.sentences = {
            (i, n): self._sentence(s) for i, t in enumerate(reading.texts) for n, s in enumerate(sentences(t))
        }
        self.best = max((v["sentence_overlap"] for v in self.sentences.values()), default=0.0)
        self.keys = Counter(c.key for c in candidates)
        self.where: dict[str, set[int]] = defaultdict(set)
        self.longest: dict[tuple[int, int], int] = {}
        self.first: dict[str, Candidate] = {}
        for one in candidates:
            self.where[one.key].add(one.passage)
            self.first.setdefault(one.key, one)
            place = (one.passage, one.start)
            self.longest[place] = max(self.longest.get(place, 0), one.end)
        self.titles = {bare: i for i, bare in reversed(list(enumerate(reading.linker.bare)))}

    def features(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """Return each candidate's features, about in [0, 1]. Shape (len(candidates), len(FEATURES)), float32.

        They need not be among those that were counted.
        """
        out = np.zeros((len(candidates), len(FEATURES)), np.float32)
        named, rule = rule_kind(self.rule), self.rule
        for row, one in zip(out, candidates, strict=True):
            values = self._of(one)
            values |= {"kind_" + one.kind: 1.0, "type_" + self.asked.kind: 1.0}
            if rule is not None:
                same = float(one.key == Candidate(rule.text, "rule").key)
                values |= {"rule_same": same, "rule_f1": f1(one.text, [rule.text]), "rule_" + named: 1.0}
                values |= {"rule_confidence": same * rule.confidence, "same_" + named: same}
                values["rule_inside"] = float(bool(rule.passages) and one.passage == rule.passages[-1])
            for name, value in values.items():
                row[_AT[name]] = value
        return out

    def _of(self, one: Candidate) -> dict[str, float]:
        """Return the features by name, 0 where they are missing."""
        folded = fold(one.text)
        mine = {
            "length": min(len(folded.split()), 8) / 8,
            "capitals": float(one.text[:1].isupper()),
            "in_question": float(f" {folded} " in self.asked.focus.folded),
            "passages_with": min(len(self.where[one.key]), 5) / 5,
            "occurrences": min(self.keys[one.key], 8) / 8,
            "fits": float(one.kind in _FITS[self.asked.kind]),
            "other_words": self._unasked(folded),
            "first_of_key": float(self.first.get(one.key, one) is one),
        }
        title = self.titles.get(folded)
        if title is not None:
            mine |= {"is_title": 1.0, "is_anchor_title": float(title in self.asked.focus.mentions)}
        if one.passage < 0:
            return mine
        mine |= self.passages[one.passage]
        mine["passage_rank"] = one.passage / 10
        mine["relation_here"] = min(1.0, self.asked.objects.get((one.passage, one.text), 0.0))
        scores = (v for (_, text), v in self.asked.objects.items() if text == one.text)
        mine["relation"] = min(1.0, max(scores, default=0.0))
        if one.sentence >= 0:
            mine |= self.sentences[one.passage, one.sentence]
            mine["sentence_best"] = float(mine["sentence_overlap"] >= self.best)
            mine["sentence_number"] = min(one.sentence, 8) / 8
            mine["part_of_longer"] = float(self.longest.get((one.passage, one.start), 0) > one.end)
            mine |= self._around(one, folded)
        return mine

    def _unasked(self, folded: str) -> float:
        """Return the share of a candidate's words that the question does not have."""
        words = [w for w in folded.split() if w not in STOPWORDS]
        return sum(f" {w} " not in self.asked.focus.folded for w in words) / max(1, len(words))

    def _passage(self, i: int) -> dict[str, float]:
        title = {stem(w) for w in fold(self.reading.passages[i].title).split()}
        bag = title | {w for w, _ in self.words[i]}
        return {
            "passage_overlap": self.asked.share(bag),
            "passage_head": self.asked.share(bag, True),
            "passage_anchor": float(i in self.asked.focus.mentions),
            "passage_linked": self.linked.get(i, 0.0),
            "title_overlap": self.asked.share(title),
        }

    def _sentence(self, text: str) -> dict[str, float]:
        bag = set(_stems(text))
        return {"sentence_overlap": self.asked.share(bag), "sentence_head": self.asked.share(bag, True)}

    def _around(self, one: Candidate, folded: str) -> dict[str, float]:
        text = self.reading.texts[one.passage]
        words = self.words[one.passage]
        before = [w for w, at in words if one.start - 120 < at < one.start][-_NEAR:]
        after = [w for w, at in words if one.end <= at < one.end + 120][:_NEAR]
        near = set(before) | set(after)
        asked, focus = self.asked, self.asked.focus
        steps = [d for d, w in enumerate(reversed(before), 1) if w in asked.weights]
        steps += [d for d, w in enumerate(after, 1) if w in asked.weights]
        left, right = text[max(0, one.start - 14) : one.start], text[one.end : one.end + 2]
        return {
            "near_overlap": asked.share(near),
            "near_head": asked.share(near, True),
            "before_overlap": asked.share(set(before[-4:])),
            "after_overlap": asked.share(set(after[:4])),
            "distance": 1 / min(steps) if steps else 0.0,
            "verb_near": float(bool(focus.verb) and focus.verb in near),
            "noun_near": float(bool(focus.noun) and stem(focus.noun) in near),
            "noun_inside": float(bool(focus.noun) and focus.noun in folded),
            "agent": float(bool(re.search(r"\bby(?: the)? $", left))),
            "preposition": float(bool(re.search(r"\b(?:in|at|near|to|from|of|on)(?: the)? $", left))),
            "bracket": float(left.endswith("(") or right.startswith(")")),
            "after_comma": float(left.endswith(", ")),
            "starts_sentence": float(not left.strip() or left.rstrip().endswith((".", "!", "?"))),
            "overlap_all": asked.share({w for w, _ in words if w not in near}),
        }


def _words(text: str) -> list[tuple[str, int]]:
    """Return the stems of a text's words and where they stand."""
    return [(stem(fold(m.group()).replace(" ", "")), m.start()) for m in _TOKEN.finditer(text)]


def _stems(text: str) -> list[str]:
    return [w for w, _ in _words(text)]
