"""Every span of the passages that could be an answer, with where it stands: what a trained reader ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from gnnrag.metrics.answer import normalise_answer
from gnnrag.roles.extractive.answer_types import AnswerType, expected_type
from gnnrag.roles.extractive.question_form import parse_comparison
from gnnrag.roles.extractive.reading import Finding, Reading
from gnnrag.roles.extractive.spans import (
    DATE_RE,
    MONTHS,
    NUMBER_RE,
    STOPWORDS,
    UPPER,
    name_spans,
    sentences,
    strip_honorific,
    without_parentheses,
)
from gnnrag.text.countries import country_mentions
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
    """A span that could be the answer.

    Attributes:
        text: the answer as it would be given.
        kind: one of `KINDS`.
        passage: number of the passage; -1 where it stands in none (yes, no, a choice of the question).
        start, end: characters in the passage's cleaned text; of a title, (0, 0).
        sentence: number of the sentence in the passage; -1 outside of the text.
    """

    text: str
    kind: str
    passage: int = -1
    start: int = 0
    end: int = 0
    sentence: int = -1

    @property
    def key(self) -> str:
        """What makes two candidates one answer."""
        return normalise_answer(self.text)


def candidates_of(question: str, reading: Reading, rule: Finding | None = None, limit: int = 400) -> list[Candidate]:
    """Return the candidates of a question, in reading order.

    Args:
        question: the question.
        reading: its passages, best first.
        rule: what the rules answer; it is a candidate, too.
        limit: most candidates of a passage; wordy phrases come last.

    Returns:
        Candidates with distinct (passage, start, text); none is empty once normalised.
    """
    wanted = expected_type(question)
    found: list[Candidate] = []
    if wanted == "yes_no":
        found += [Candidate("yes", "yes"), Candidate("no", "no")]
    comparison = parse_comparison(question, reading.linker)
    if comparison is not None and not comparison.yes_no:
        found += [Candidate(name.strip(" ,"), "option") for name in comparison.names]
    if rule is not None and rule.text:
        place = rule.passages[-1] if rule.passages else -1
        at = reading.texts[place].find(rule.text) if place >= 0 else -1
        end = at + len(rule.text) if at >= 0 else 0
        found.append(Candidate(rule.text, "rule", place, max(at, 0), end, 0 if at >= 0 else -1))
    for i, (text, passage) in enumerate(zip(reading.texts, reading.passages, strict=True)):
        mine = [Candidate(without_parentheses(passage.title), "title", i)]
        mine += [Candidate(t, k, i, s, e, n) for t, k, s, e, n in spans_in(text, wanted in WORDY)]
        found += mine[:limit]
    kept: dict[tuple[int, int, str], Candidate] = {}
    for one in found:
        if one.key or one.kind in ("yes", "no"):
            kept.setdefault((one.passage, one.start, one.text), one)
    return list(kept.values())


@lru_cache(maxsize=4096)
def spans_in(text: str, wordy: bool) -> tuple[tuple[str, str, int, int, int], ...]:
    """Return (answer, kind, start, end, sentence) of the spans of a passage, distinct in start and answer."""
    found: dict[tuple[int, str], tuple[str, str, int, int, int]] = {}
    words: list[tuple[str, str, int, int, int]] = []
    at = 0
    for number, sentence in enumerate(sentences(text)):
        at = text.index(sentence, at)
        for start, answer, kind in _in_sentence(sentence):
            row = (answer, kind, at + start, at + start + len(answer), number)
            found.setdefault((row[2], answer), row)
        if wordy:
            words += [(a, "phrase", at + s, at + s + len(a), number) for s, a in _wordy(sentence)]
        at += len(sentence)
    return (*found.values(), *(row for row in words if (row[2], row[0]) not in found))


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
