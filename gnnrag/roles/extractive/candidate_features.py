"""What speaks for a candidate answer, as numbers: where it stands, what surrounds it, whether its type is asked for.

Nothing here is learned; the weights of these features are (`gnnrag.tuned.span_reader`).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from gnnrag.metrics.answer import f1
from gnnrag.roles.extractive import relations
from gnnrag.roles.extractive.answer_types import AnswerType, expected_type, question_word
from gnnrag.roles.extractive.candidates import KINDS, Candidate
from gnnrag.roles.extractive.question_focus import Focus, links_from, read_focus
from gnnrag.roles.extractive.reading import Finding, Reading
from gnnrag.roles.extractive.spans import STOPWORDS, fold, sentences, stem

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


def features_of(question: str, reading: Reading, candidates: Sequence[Candidate], rule: Finding | None) -> np.ndarray:
    """Return the features of each candidate.

    Returns:
        (len(candidates), len(FEATURES)) float32, each about in [0, 1].
    """
    asked = _ask(question, reading)
    table = _Table(asked, reading, candidates)
    out = np.zeros((len(candidates), len(FEATURES)), np.float32)
    named = rule_kind(rule)
    for row, one in zip(out, candidates, strict=True):
        values = table.of(one)
        values |= {"kind_" + one.kind: 1.0, "type_" + asked.kind: 1.0}
        if rule is not None:
            same = float(one.key == table.key_of(rule.text))
            values |= {"rule_same": same, "rule_f1": f1(one.text, [rule.text]), "rule_" + named: 1.0}
            values |= {"rule_confidence": same * rule.confidence, "same_" + named: same}
            values["rule_inside"] = float(bool(rule.passages) and one.passage == rule.passages[-1])
        for name, value in values.items():
            row[_AT[name]] = value
    return out


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
        for found in relations.find(focus.relation, text, passage.title)[:4] if focus.relation else ():
            objects[i, found.text] = found.score
    return _Asked(focus, expected_type(question), weights, head, objects)


class _Table:
    """Counts over all candidates and passages of a question, and the features of one candidate from them."""

    def __init__(self, asked: _Asked, reading: Reading, candidates: Sequence[Candidate]) -> None:
        self.asked, self.reading = asked, reading
        self.words = [list(_words(text)) for text in reading.texts]
        self.linked = links_from(asked.focus, reading)
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

    @staticmethod
    def key_of(text: str) -> str:
        """Return what makes two answers one."""
        return Candidate(text, "rule").key

    def of(self, one: Candidate) -> dict[str, float]:
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
            "first_of_key": float(self.first[one.key] is one),
        }
        title = self.titles.get(folded)
        if title is not None:
            mine |= {"is_title": 1.0, "is_anchor_title": float(title in self.asked.focus.mentions)}
        if one.passage < 0:
            return mine
        mine |= self.passages[one.passage]
        mine["passage_rank"] = one.passage / 10
        mine["relation_here"] = min(1.0, self.asked.objects.get((one.passage, one.text), 0.0))
        found = (v for (_, text), v in self.asked.objects.items() if text == one.text)
        mine["relation"] = min(1.0, max(found, default=0.0))
        if one.sentence >= 0:
            mine |= self.sentences[one.passage, one.sentence]
            mine["sentence_best"] = float(mine["sentence_overlap"] >= self.best)
            mine["sentence_number"] = min(one.sentence, 8) / 8
            mine["part_of_longer"] = float(self.longest[one.passage, one.start] > one.end)
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
