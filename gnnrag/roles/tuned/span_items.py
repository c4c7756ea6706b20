"""What a span reader reads of a question: windows of tokens, candidate answers, their features and places."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, get_args

import numpy as np

from gnnrag.index.embedder import BUCKET
from gnnrag.metrics.answer import normalise_answer
from gnnrag.roles.comparing import DATE_RE, Reading, fold
from gnnrag.text.normalise import drop_qualifier, find_words, is_country_word
from gnnrag.text.questions import AnswerType, expected_type, head_noun, question_word
from gnnrag.text.sentences import beginning, sentence_spans
from gnnrag.text.support import content_stems
from gnnrag.types import Passage

# A text that spells a control token (`[SEP]`) is read as the characters that it is.
_PLAIN = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
_TITLE = 24  # most tokens of a title


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """`[CLS] question [SEP] bridge [SEP] title. text [SEP]`, or a part of the text where it is long."""

    ids: tuple[int, ...]  # token ids
    passage: int  # number of the passage
    first: int  # position of the first token of the text
    spans: np.ndarray  # (tokens of the text, 2) int32: the characters each covers


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may be the answer: a span of a passage's cleaned text, or a title (then `end` is 0)."""

    text: str
    passage: int
    start: int = 0  # characters
    end: int = 0

    @property
    def key(self) -> str:
        """What makes two candidates one answer."""
        return normalise_answer(self.text)


@dataclass(frozen=True, slots=True, eq=False)
class SpanItem:
    """A question with its passages, ready for the network, and its candidates, if they are known yet."""

    asked: Asked
    windows: tuple[Window, ...]  # in the order of the passages
    columns: tuple[int, ...]  # of `FEATURES`, those that the network reads
    candidates: tuple[Candidate, ...]
    places: np.ndarray  # (C, 3) int64: window, first and last token of each candidate; -1 for a title
    features: np.ndarray  # (C, F) float32
    groups: np.ndarray  # (C,) int64: candidates that are one answer have one number
    answers: tuple[str, ...]  # text of each group, as its first candidate has it

    def with_spans(self, places: Sequence[tuple[int, int, int]], most: int) -> SpanItem:
        """Return the item with the first `most` spans at some places (window, first and last token) as candidates."""
        found: dict[Candidate, tuple[int, int, int]] = {}
        for place in places:
            one = self._span(place)
            if one is not None and len(found) < most:
                found.setdefault(one, place)
        return self.of({**found, **{one: (-1, -1, -1) for one in self.candidates if not one.end}})

    def of(self, found: dict[Candidate, tuple[int, int, int]]) -> SpanItem:
        """Return the item with other candidates and their places."""
        numbers: dict[str, int] = {}
        groups = np.array([numbers.setdefault(one.key, len(numbers)) for one in found], np.int64)
        answers: dict[str, str] = {}
        for one in found:
            answers.setdefault(one.key, one.text)
        return replace(
            self,
            candidates=tuple(found),
            places=np.array(list(found.values()), np.int64).reshape(-1, 3),
            features=self.asked.features(list(found))[:, self.columns],
            groups=groups,
            answers=tuple(answers.values()),
        )

    def _span(self, place: tuple[int, int, int]) -> Candidate | None:
        """Return the span at a place; None where it breaks a word, goes beyond a block or says nothing."""
        window = self.windows[place[0]]
        text = self.asked.reading.texts[window.passage]
        start, end = int(window.spans[place[1] - window.first, 0]), int(window.spans[place[2] - window.first, 1])
        if (start and text[start - 1 : start + 1].isalnum()) or (end < len(text) and text[end - 1 : end + 1].isalnum()):
            return None
        one = Candidate(text[start:end], window.passage, start, end)
        return one if one.key and "\n" not in one.text else None


class WindowMaker:
    """Cuts token windows (fast tokenizer of transformers); a longer text gives several that overlap by a quarter."""

    def __init__(self, tokenizer: Any, question_tokens: int, bridge_tokens: int, text_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.limits = (question_tokens, bridge_tokens, text_tokens)
        self.pad = tokenizer.pad_token_id or 0
        self._open = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
        self._close = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id

    def windows(
        self, question: str, titles: Sequence[str], texts: Sequence[str], bridges: Sequence[str]
    ) -> list[Window]:
        """Return the windows of a question, in the order of its passages; every passage has at least one."""
        most_question, most_bridge, most_text = self.limits
        lead = [self._open, *self._ids(question)[:most_question], self._close]
        found = []
        for number, (title, text, bridge) in enumerate(zip(titles, texts, bridges, strict=True)):
            head = list(lead)
            if bridge and most_bridge:
                head += [*self._ids(bridge)[:most_bridge], self._close]
            head += self._ids(title + ".")[:_TITLE] if title else []
            encoded = self.tokenizer(text, return_offsets_mapping=True, **_PLAIN)
            ids, spans = encoded["input_ids"], np.array(encoded["offset_mapping"], np.int32).reshape(-1, 2)
            shared = most_text // 4
            for start in range(0, max(1, len(ids) - shared), most_text - shared):
                row = (*head, *ids[start : start + most_text], self._close)
                found.append(Window(row, number, len(head), spans[start : start + most_text]))
        return found

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, **_PLAIN)["input_ids"])


def padded(windows: Sequence[Window], pad: int, rows: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and mask, (max(rows, len(windows)), length) int64; the length is a multiple of `BUCKET`.

    Rows beyond the windows are filler: a window then meets kernels of one shape, whatever else is asked.
    """
    length = -(-max(len(w.ids) for w in windows) // BUCKET) * BUCKET
    tokens = np.full((max(rows, len(windows)), length), pad, np.int64)
    mask = np.zeros_like(tokens)
    mask[:, 0] = 1
    for row, window in enumerate(windows):
        tokens[row, : len(window.ids)] = window.ids
        mask[row, : len(window.ids)] = 1
    return tokens, mask


def token_range(window: Window, start: int, end: int) -> tuple[int, int] | None:
    """Return the positions of the first and last token that cover the characters [start, end), or None."""
    inside = np.flatnonzero((window.spans[:, 1] > start) & (window.spans[:, 0] < end))
    if not len(inside) or window.spans[inside[0], 0] > start or window.spans[inside[-1], 1] < end:
        return None
    return window.first + int(inside[0]), window.first + int(inside[-1])


def places_of(windows: Sequence[Window], spans: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """Return window, first and last token of each (passage, start, end); -1 where there is none. Shape (n, 3)."""
    out = np.full((len(spans), 3), -1, np.int64)
    for row, (passage, start, end) in zip(out, spans, strict=True):
        for number, window in enumerate(windows):
            is_near = window.passage == passage and end > start
            if is_near and (found := token_range(window, start, end)) is not None:
                row[:] = (number, *found)
                break
    return out


@lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[tuple[int, int, frozenset[str]], ...]:
    """Return (start, end, stems) of the sentences of a text."""
    return tuple((start, end, content_stems(text[start:end])) for start, end in sentence_spans(text))


def bridges(question: str, reading: Reading) -> list[str]:
    """Return per passage the sentence of another that names it and shares most words with the question.

    The title of the other passage opens it. Empty where no other passage names this one.
    """
    asked = content_stems(question)
    rows = [
        (j, text[start:end], stems | content_stems(reading.passages[j].title), f" {fold(text[start:end])} ")
        for j, text in enumerate(reading.texts)
        for start, end, stems in _sentences(text)
    ]
    found = []
    for i, title in enumerate(reading.titles):
        best, best_score = "", 0.0
        for j, sentence, stems, folded in rows:
            if j == i or len(title) < 3 or f" {title} " not in folded:
                continue
            score = 1 + len(asked & stems) - 0.1 * j
            if score > best_score:
                best, best_score = f"{reading.passages[j].title}: {sentence}", score
        found.append(best)
    return found


# ------------------------------------------------------------------------------------------- what is told of candidates
KINDS = ("date", "year", "number", "name", "words", "title")
TYPES: tuple[str, ...] = get_args(AnswerType)
_FITS: dict[str, tuple[str, ...]] = {
    "person": ("name", "title"),
    "place": ("name", "title"),
    "date": ("date", "year"),
    "year": ("year",),
    "number": ("number",),
    "country": ("name", "title"),
    "language": ("name",),
    "name": ("name", "title"),
    "phrase": ("words", "name", "number"),
}
_OWN = (
    "passage_rank passage_overlap passage_named passage_linked title_overlap sentence_overlap sentence_head "
    "sentence_best sentence_first near_overlap near_head distance noun_near noun_inside by preposition bracket "
    "after_comma length is_country in_question other_words same_as_title same_as_named same_as_linked passages_with "
    "occurrences fits"
)
FEATURES: tuple[str, ...] = (*_OWN.split(), *(f"kind_{k}" for k in KINDS), *(f"type_{t}" for t in TYPES))
_AT = {name: i for i, name in enumerate(FEATURES)}
_NEAR = 8  # words on each side that surround a candidate
_COUNTED = re.compile(r"(?i:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|once|twice)\b")


def kind_of(text: str) -> str:
    """Return the kind of a span, one of `KINDS`."""
    if date := DATE_RE.fullmatch(text.strip(" ,.")):
        return "year" if date["y4"] else "date"
    if re.match(r"\D{0,3}\d", text) or _COUNTED.match(text):
        return "number"
    return "name" if any(word[:1].isupper() for word in text.split()[:2]) else "words"


class Asked:
    """What a question says of its passages: weights of its words, and the features of candidates by them."""

    def __init__(self, question: str, reading: Reading) -> None:
        self.question, self.reading, self.folded = question, reading, f" {fold(question)} "
        self.type, self.noun = expected_type(question), content_stems(head_noun(question))
        lowered = " ".join(question.lower().split())
        self.stems = content_stems(question)
        self.head = content_stems(" ".join(lowered[question_word(lowered) :].split()[:7]))
        bags = [bag for text in reading.texts for _, _, bag in _sentences(text)]
        counts = Counter(stem for bag in bags for stem in bag)
        self.weight = {stem: math.log(1 + len(bags) / (1 + counts[stem])) for stem in self.stems}
        named = {passage for passage, _, _ in reading.named(self.folded.strip())}
        folded = [f" {fold(text)} " for text in reading.texts]
        self.linked = {
            i
            for i, title in enumerate(reading.titles)
            if i not in named
            and any((title and f" {title} " in folded[j]) or f" {reading.titles[j]} " in folded[i] for j in named)
        }
        self.named, self.folded_texts = named, folded
        self.passages = [self._passage(i) for i in range(len(reading.texts))]
        shares = [self.share(bag) for bag in bags]
        self.best = max(shares, default=0.0)

    def share(self, bag: Collection[str], of: frozenset[str] | None = None) -> float:
        """Return the weighted share of the question's stems (or of some of them) that a bag has, in [0, 1]."""
        wanted = self.stems if of is None else of & self.stems
        total = sum(self.weight[stem] for stem in wanted)
        return sum(self.weight[stem] for stem in wanted if stem in bag) / total if total else 0.0

    def _passage(self, i: int) -> dict[str, float]:
        title = content_stems(self.reading.passages[i].title)
        return {
            "passage_rank": i / 10,
            "passage_overlap": self.share(title | content_stems(self.reading.texts[i])),
            "passage_named": float(i in self.named),
            "passage_linked": float(i in self.linked),
            "title_overlap": self.share(title),
        }

    def features(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """Return each candidate's features, about in [0, 1]. Shape (len(candidates), len(FEATURES)), float32."""
        where: dict[str, set[int]] = defaultdict(set)
        for one in candidates:
            where[one.key].add(one.passage)
        counts = Counter(one.key for one in candidates)
        titles = {title: i for i, title in reversed(list(enumerate(self.reading.titles)))}
        out = np.zeros((len(candidates), len(FEATURES)), np.float32)
        for row, one in zip(out, candidates, strict=True):
            folded, kind = fold(one.text), kind_of(one.text) if one.end else "title"
            own, title = content_stems(one.text), titles.get(folded)
            values = {
                **self.passages[one.passage],
                **(self._around(one) if one.end else {}),
                "noun_inside": float(bool(self.noun & own)),
                "length": min(len(folded.split()), 8) / 8,
                "is_country": float(is_country_word(one.text)),
                "in_question": float(f" {folded} " in self.folded),
                "other_words": len(own - self.stems) / max(1, len(own)),
                "same_as_title": float(title is not None),
                "same_as_named": float(title in self.named),
                "same_as_linked": float(title in self.linked),
                "passages_with": sum(f" {folded} " in text for text in self.folded_texts) / 5,
                "occurrences": min(counts[one.key], 8) / 8,
                "fits": float(kind in _FITS.get(self.type, ())),
                f"kind_{kind}": 1.0,
                f"type_{self.type}": 1.0,
            }
            for name, value in values.items():
                row[_AT[name]] = value
        return out

    def sentence(self, one: Candidate) -> tuple[int, int, frozenset[str]]:
        """Return where the sentence of a candidate starts and ends, and its stems; of a title the first sentence."""
        rows = _sentences(self.reading.texts[one.passage])
        return next((row for row in reversed(rows) if row[0] <= one.start), (0, 0, frozenset()))

    def _around(self, one: Candidate) -> dict[str, float]:
        text = self.reading.texts[one.passage]
        start, _, bag = self.sentence(one)
        before = [content_stems(w) for w in find_words(text[max(0, one.start - 120) : one.start])[-_NEAR:]]
        after = [content_stems(w) for w in find_words(text[one.end : one.end + 120])[:_NEAR]]
        near = frozenset[str]().union(*before, *after)
        steps = [d for side in (before[::-1], after) for d, stems in enumerate(side, 1) if stems & self.stems]
        left, right, share = text[max(0, one.start - 14) : one.start], text[one.end : one.end + 2], self.share(bag)
        return {
            "sentence_overlap": share,
            "sentence_head": self.share(bag, self.head),
            "sentence_best": float(share >= self.best),
            "sentence_first": float(start == 0),
            "near_overlap": self.share(near),
            "near_head": self.share(near, self.head),
            "distance": 1 / min(steps) if steps else 0.0,
            "noun_near": float(bool(self.noun & near)),
            "by": float(bool(re.search(r"\bby(?: the)? $", left))),
            "preposition": float(bool(re.search(r"\b(?:in|at|near|to|from|of|on)(?: the)? $", left))),
            "bracket": float(left.endswith("(") or right.startswith(")")),
            "after_comma": float(left.endswith(", ")),
        }


@dataclass
class ItemMaker:
    """Makes items, and keeps the last `keep` of them."""

    windows: WindowMaker
    features: Sequence[str]
    keep: int = 0

    def __post_init__(self) -> None:
        self._kept = lru_cache(self.keep)(self._make)

    def make(self, question: str, passages: Sequence[Passage]) -> SpanItem:
        """Return the item of a question; its candidates are the titles of its passages."""
        return self._kept(question, tuple(passages))

    def _make(self, question: str, passages: Sequence[Passage]) -> SpanItem:
        question, reading = beginning(question), Reading.of(passages)
        titles = [p.title for p in reading.passages]
        windows = self.windows.windows(question, titles, reading.texts, bridges(question, reading))
        columns = tuple(FEATURES.index(name) for name in self.features)
        empty = np.zeros((0, 3), np.int64)
        item = SpanItem(
            Asked(question, reading), tuple(windows), columns, (), empty, np.zeros((0, len(columns)), np.float32),
            empty[:, 0], (),
        )  # fmt: skip
        named = [Candidate(drop_qualifier(p.title), i) for i, p in enumerate(reading.passages)]
        return item.of({one: (-1, -1, -1) for one in named if one.key})
