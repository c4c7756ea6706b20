"""Features of (question, chain, passage) for a verifier, each in [0, 1].

They are computed over the whole pool: which passages mention the titles of which others shows where the question's
bridges are.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, words
from gnnrag.types import Passage

_STEM = 5  # letters by which two words count as one: `directed`, `director`
_WINDOW = 10  # words on either side of a mention that tell why it is mentioned
_NAME = re.compile(r"\b[^\W\d_a-z][\w'’-]+")  # a word that begins with a capital
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")


@dataclass(frozen=True)
class VerifierInput:
    """A question, a chain as text, and the pool of passages that is judged."""

    question: str
    chain: str
    passages: Sequence[Passage]  # in pool order
    scores: Sequence[float] = ()  # of the pool, in any scale; empty where they are not known
    cosines: Sequence[float] = ()  # of the question and each passage; empty where they are not known
    support: Collection[str] = ()  # ids of the passages that the chain itself says it rests on


def features_of(read: PoolReading, names: Sequence[str]) -> np.ndarray:
    """Return features of each passage. Shape (len(shown.passages), len(names)), float32."""
    if not read.count:
        return np.zeros((0, len(names)), dtype=np.float32)
    columns = [np.asarray(FEATURES[name](read), dtype=np.float64) for name in names]
    return np.clip(np.stack(columns, axis=1), 0.0, 1.0).astype(np.float32)


class PoolReading:
    """Words, titles and mentions of a pool: what several features need, computed once."""

    def __init__(self, shown: VerifierInput) -> None:
        self.shown, self.count = shown, len(shown.passages)
        self.texts = [words(p.text) for p in shown.passages]
        self.titles = [words(drop_qualifier(p.title)) for p in shown.passages]
        self.padded = [_padded([*words(p.title), *text]) for p, text in zip(shown.passages, self.texts, strict=True)]
        self.asked, self.chain = words(shown.question), words(shown.chain)
        self.stems = [stems_of(text.split()) for text in self.padded]
        self.sentences = [[stems_of(words(s)) for s in sentences_of(p.text)] for p in shown.passages]
        frequency = Counter(stem for mine in self.stems for stem in mine)
        self.rarity = {stem: math.log(1 + self.count / n) for stem, n in frequency.items()}
        self.rarest = math.log(1 + self.count)
        self.question_stems, self.chain_stems = stems_of(self.asked), stems_of(self.chain)
        asked = _padded(self.asked)
        self.anchors = np.array([bool(t) and _padded(t) in asked for t in self.titles])
        named = {w for t, inside in zip(self.titles, self.anchors, strict=True) if inside for w in t}
        self.rest = stems_of([w for w in self.asked if w not in named]) or self.question_stems
        self.head = 1.0 / (1.0 + np.arange(self.count))

    @cached_property
    def mentions(self) -> list[tuple[int, int]]:
        """Pairs (a, b): passage a mentions the title of passage b, which is not a's own title."""
        keys = [_padded(t) if _names(t) else "" for t in self.titles]
        return [
            (a, b)
            for b, key in enumerate(keys)
            for a in range(self.count)
            if key and a != b and self.titles[a] != self.titles[b] and key in self.padded[a]
        ]

    def cover(self, wanted: Collection[str], found: Collection[str]) -> float:
        """Return the share of the wanted stems that are found, each by its rarity among the passages shown."""
        weights = {stem: self.rarity.get(stem, self.rarest) for stem in sorted(wanted)}
        total = math.fsum(weights.values())
        return math.fsum(w for stem, w in weights.items() if stem in found) / total if total else 0.0

    def covers(self, wanted: Collection[str]) -> list[float]:
        return [self.cover(wanted, mine) for mine in self.stems]

    def new_names(self, text: str) -> frozenset[str]:
        """Return stems of the names in a text that are not in the question: they lead on to other passages."""
        return stems_of(words(" ".join(_NAME.findall(text)))) - self.question_stems

    @cached_property
    def strength(self) -> dict[tuple[int, int], float]:
        """For each mention, the share of the question's words near it: `directed by` before a director's name."""
        strength = {}
        for a, b in self.mentions:
            text, title = self.texts[a], self.titles[b]
            best, size = 0.0, len(title)
            for start in range(len(text) - size + 1):
                if text[start] == title[0] and text[start : start + size] == title:
                    near = text[max(start - _WINDOW, 0) : start] + text[start + size : start + size + _WINDOW]
                    best = max(best, self.cover(self.rest, stems_of(near)))
            strength[a, b] = best
        return strength

    @cached_property
    def hops(self) -> np.ndarray:
        """Number of mentions from a passage that the question names (0) to each passage; 3: more than two, or none."""
        hops = np.where(self.anchors, 0, 3)
        for step in (1, 2):
            for a, b in self.mentions:
                if hops[a] == step - 1 and hops[b] > step:
                    hops[b] = step
        return hops

    @cached_property
    def starts(self) -> list[int]:
        """Places of the passages that a chain starts from: those that the question names, else the first two."""
        return np.flatnonzero(self.anchors).tolist() or list(range(min(2, self.count)))

    @cached_property
    def carried(self) -> dict[int, frozenset[str]]:
        """The new names of each start."""
        return {a: self.new_names(self.shown.passages[a].text) for a in self.starts}

    def best(self, pairs: Sequence[tuple[int, float]]) -> np.ndarray:
        """Return the largest value of each passage, 0 where it has none; `pairs` are (passage, value)."""
        out = np.zeros(self.count)
        for place, value in pairs:
            out[place] = max(out[place], value)
        return out


def _cosine_rank(read: PoolReading) -> np.ndarray:
    if not len(read.shown.cosines):
        return np.zeros(read.count)
    order = np.argsort(-np.asarray(read.shown.cosines, dtype=np.float64), kind="stable")
    ranks = np.empty(read.count)
    ranks[order] = np.arange(read.count)
    return 1.0 / (1.0 + ranks)


def _in_chain(read: PoolReading) -> list[bool]:
    chain = _padded(read.chain)
    return [bool(t) and _padded(t) in chain for t in read.titles]


def _best_sentence(read: PoolReading) -> list[float]:
    return [max((read.cover(read.rest, s) for s in sentences), default=0.0) for sentences in read.sentences]


def _title_explained(read: PoolReading) -> list[float]:
    """The share of the title's words that the question or a start's text has: `South Korea at the Olympics`."""
    known = {a: read.question_stems | stems_of(read.texts[a]) for a in read.starts}
    out = []
    for i, title in enumerate(read.titles):
        stems = stems_of(title)
        shares = [len(stems & of) / len(stems) for a, of in known.items() if stems and a != i]
        out.append(max(shares, default=0.0))
    return out


def _carried(read: PoolReading) -> list[float]:
    """The rarity of the rarest name that the passage shares with the text of a start."""
    out = []
    for i, mine in enumerate(read.stems):
        shared = {s for a in read.starts if a != i for s in read.carried[a] & mine}
        out.append(max((read.rarity[s] for s in sorted(shared)), default=0.0) / read.rarest)
    return out


def _qualified(read: PoolReading) -> list[bool]:
    """The title's qualifier is a word of the question: `(film)`."""
    asked = set(read.asked)
    return [
        bool(asked & set(words(p.title)[len(t) :]) - FUNCTION_WORDS)
        for p, t in zip(read.shown.passages, read.titles, strict=True)
    ]


FEATURES: dict[str, Callable[[PoolReading], Sequence[float] | Sequence[bool] | np.ndarray]] = {
    "score": lambda r: _spread(r.shown.scores, r.count),
    "rank": lambda r: 1.0 - np.log1p(np.arange(r.count)) / math.log(1 + max(r.count, 50)),
    "first_ranks": lambda r: r.head,
    "cosine": lambda r: np.asarray(r.shown.cosines) if len(r.shown.cosines) else np.zeros(r.count),
    "cosine_spread": lambda r: _spread(r.shown.cosines, r.count),
    "cosine_rank": _cosine_rank,
    "in_question": lambda r: r.anchors,
    "title_words": lambda r: [sum(w in r.asked for w in t) / len(t) if t else 0.0 for t in r.titles],
    "in_chain": _in_chain,
    "support": lambda r: [p.id in r.shown.support for p in r.shown.passages],
    "named": lambda r: r.best([(b, r.head[a]) for a, b in r.mentions]),
    "named_by_anchor": lambda r: r.best([(b, 1.0) for a, b in r.mentions if r.anchors[a]]),
    "reason": lambda r: r.best([(b, value) for (a, b), value in r.strength.items()]),
    "anchor_reason": lambda r: r.best([(b, value) for (a, b), value in r.strength.items() if r.anchors[a]]),
    "names_anchor": lambda r: r.best([(a, 1.0) for a, b in r.mentions if r.anchors[b]]),
    "back_reason": lambda r: r.best([(a, value) for (a, b), value in r.strength.items() if r.anchors[b]]),
    "title_explained": _title_explained,
    "carried": _carried,
    "carried_and_asked": lambda r: np.array(_carried(r)) * np.array(_best_sentence(r)),
    "anchors": lambda r: np.full(r.count, min(1.0, int(r.anchors.sum()) / 4)),
    "two_hops": lambda r: r.hops == 2,
    "question_cover": lambda r: r.covers(r.question_stems),
    "rest_cover": lambda r: r.covers(r.rest),
    "chain_cover": lambda r: r.covers(r.chain_stems),
    "best_sentence": _best_sentence,
    # a better-ranked passage has the same title: a namesake, or another part of the same article
    "twin": lambda r: [bool(t) and t in r.titles[:i] for i, t in enumerate(r.titles)],
    "qualified": _qualified,
    "length": lambda r: [math.log1p(len(t)) / math.log(512) for t in r.texts],
}


def sentences_of(text: str) -> list[str]:
    return _SENTENCE.split(text)


def _padded(tokens: Sequence[str]) -> str:
    return f" {' '.join(tokens)} "


def stems_of(tokens: Sequence[str]) -> frozenset[str]:
    """Return the stems of words: their first `_STEM` letters. Function words are left out."""
    return frozenset(token[:_STEM] for token in tokens if token not in FUNCTION_WORDS)


def _names(title: Sequence[str]) -> bool:
    """Whether a title can be told from an everyday word when another text has it."""
    return len(title) > 1 or bool(title and len(title[0]) > 3 and title[0] not in FUNCTION_WORDS)


def _spread(values: Sequence[float], count: int) -> np.ndarray:
    """Scale values to [0, 1], the least to 0 and the greatest to 1; (count,) zeros where there are none."""
    if not len(values):
        return np.zeros(count)
    array = np.asarray(values, dtype=np.float64)
    width = float(array.max() - array.min())
    return (array - array.min()) / width if width > 0 else np.ones(count)
