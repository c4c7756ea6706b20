"""What passages are known by, in tables that can be mapped: title forms, their words, and how rare words are."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path

import numpy as np
from rapidfuzz.distance import Levenshtein

from gnnrag.common.tables import KeyedLists, Keys, Lists, distinct, map_array, put_arrays_apart
from gnnrag.errors import ArtefactError
from gnnrag.graphs.hierarchy import HierarchyGraph, Names
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, phrase_key
from gnnrag.text.subjects import Subject


@dataclass(frozen=True, slots=True)
class TitleMatch:
    """A name read as a title: the title's form and how sure that is, in (0, 1]; 1 is an exact match."""

    form: str
    confidence: float


@dataclass(frozen=True, slots=True)
class TitleLink:
    """A phrase in a passage that stands for another passage; `sentence` and `phrase` are positions in the graph."""

    sentence: int
    phrase: int
    match: TitleMatch


@dataclass(frozen=True)
class TitleTables:
    """What `TitleMatcher` looks up. A form is a title's `phrase_key`, with or without its qualifier, or a subject's."""

    forms: KeyedLists  # the passages of each form, ascending
    sure: np.ndarray  # (num_forms,) float64, how sure a passage is known by it
    weights: np.ndarray  # (num_forms,) float64, the summed rarity of its content words
    parts: Lists  # the content words of each form, in order
    own: Lists  # the forms of each passage
    kinds: np.ndarray  # (num_own,) uint8, what each of those is to its passage: a sum of `FULL`, `BARE`, `SUBJECT`
    known: np.ndarray  # (num_own,) float64, how sure it is as a subject; 0 where it is none
    is_titled: np.ndarray  # (num_passages,) bool
    words: KeyedLists  # the forms that hold each word, ascending; words are sorted
    num_sentences: int

    def save(self, folder: Path) -> None:
        """Write into a folder."""
        for name in ("forms", "words", "own", "parts"):
            getattr(self, name).save(folder, name)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        put_arrays_apart(folder, **arrays, num_sentences=np.array([self.num_sentences]))

    @classmethod
    def load(cls, folder: Path) -> TitleTables:
        """Map what `save` wrote; ValueError where its parts do not belong together."""
        if not (folder / "kinds.npy").exists():
            raise ArtefactError(f"{folder} is of an earlier version; bring it up to date: gnnrag index build CONFIG")
        arrays = {name: map_array(folder, name) for name in _ARRAYS}
        num_passages, num_forms = len(arrays["is_titled"]), len(arrays["sure"])
        forms, own = KeyedLists.load(folder, "forms", num_passages), Lists.load(folder, "own", num_forms)
        words = KeyedLists.load(folder, "words", num_forms)
        parts = Lists.load(folder, "parts", len(words))
        fits = (
            len(own) == num_passages
            and len(arrays["weights"]) == len(forms) == len(parts) == num_forms
            and len(arrays["kinds"]) == len(arrays["known"]) == len(own.values)
        )
        size = int(map_array(folder, "num_sentences")[0])
        if not fits or size < 1:
            raise ValueError("the tables of titles do not belong together")
        return cls(forms=forms, own=own, words=words, parts=parts, num_sentences=size, **arrays)


_ARRAYS = ("sure", "weights", "kinds", "known", "is_titled")
FULL, BARE, SUBJECT = 1, 2, 4  # a title; a title without its qualifier; what a text is about


def build_titles(
    graph: HierarchyGraph, titles: Iterable[str], subjects: Iterable[Sequence[Subject]] = ()
) -> TitleTables:
    """Collect what passages are known by; node i of `graph` is the passage of the i-th title.

    A title is known with and without its parenthetical qualifier; a passage without one, by what its text is about
    (`subjects`, a row a passage, empty where it has a title), which is as sure as the text makes it.
    """
    rows = [_names(title, row) for title, row in zip(titles, chain(subjects, repeat(())), strict=False)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    number = {name: i for i, name in enumerate(names)}
    own = Lists.of([number[name] for name in row] for row in rows)
    known = np.array([sure for row in rows for _, sure in row.values()], dtype=np.float64)
    kinds = np.array([kind for row in rows for kind, _ in row.values()], dtype=np.uint8)
    keys = Keys.of(names)
    words, parts, counts = _words(graph.names, names)
    holders = Lists.grouped(parts.values, len(words))
    holders = Lists(holders.indptr, np.repeat(np.arange(len(keys), dtype=np.int32), parts.sizes)[holders.values])
    num_sentences = max(len(graph.sentences), 1)
    passages, sure, is_titled = _bearers(own, kinds, known, len(keys))
    return TitleTables(
        forms=KeyedLists(keys, passages),
        sure=sure,
        weights=_weights(parts, counts, num_sentences),
        parts=parts,
        own=own,
        kinds=kinds,
        known=known,
        is_titled=is_titled,
        words=KeyedLists(words, holders),
        num_sentences=num_sentences,
    )


def _names(title: str, subjects: Iterable[Subject]) -> dict[str, tuple[int, float]]:
    """Return what a passage is known by, as what, and how sure that is where it is a subject."""
    found: dict[str, tuple[int, float]] = {}
    for name, kind in ((phrase_key(title), FULL), (phrase_key(drop_qualifier(title)), BARE)):
        found[name] = (found.get(name, (0, 0.0))[0] | kind, 0.0)
    for name, confidence in {phrase_key(subject.name): subject.confidence for subject in subjects}.items():
        found[name] = (found.get(name, (0, 0.0))[0] | SUBJECT, confidence)
    found.pop("", None)
    return found


def _words(names: Names, forms: Sequence[str]) -> tuple[Keys, Lists, np.ndarray]:
    """Return the words of forms, sorted; those of each form; and how often sentences name something with the word."""
    split = [content(form.split()) for form in forms]
    words = Keys.of(sorted({word for row in split for word in row}))
    parts = Lists.of([words[word] for word in row] for row in split)
    at = names.words.matched(words)
    counts = np.where(at >= 0, names.counts[at] if len(names.counts) else 0, 0)
    return words, parts, counts


def _weights(parts: Lists, counts: np.ndarray, num_sentences: int) -> np.ndarray:
    """Return the summed rarity of the words of each form, in their order. Shape (len(parts),)."""
    values, which = np.unique(counts, return_inverse=True)
    rarities = np.array([rarity_of(count, num_sentences) for count in values.tolist()])[which.ravel()]
    weights = np.zeros(len(parts))
    for at in range(int(parts.sizes.max(initial=0))):
        there = np.flatnonzero(parts.sizes > at)
        weights[there] += rarities[parts.values[parts.indptr[there] + at]]
    return weights


def _bearers(own: Lists, kinds: np.ndarray, known: np.ndarray, count: int) -> tuple[Lists, np.ndarray, np.ndarray]:
    """Return the passages of each of `count` forms, how sure they are known by it, and which passages have titles.

    A passage that bears the very name wins over those that need a qualifier to tell them apart from it, titles win
    over subjects.
    """
    passages = np.repeat(np.arange(len(own), dtype=np.int32), own.sizes)
    best = np.full(count, SUBJECT, dtype=np.uint8)
    for kind in (BARE, FULL):
        best[own.values[(kinds & kind) > 0]] = kind
    bears = (kinds & best[own.values]) > 0
    at = Lists.grouped(own.values[bears], count)
    sure = np.where(best == SUBJECT, 0.0, 1.0)
    np.maximum.at(sure, own.values[bears], known[bears])
    is_titled = np.zeros(len(own), dtype=bool)
    is_titled[passages[(kinds & FULL) > 0]] = True
    return Lists(at.indptr, passages[bears][at.values]), sure, is_titled


def content(words: Iterable[str]) -> list[str]:
    """Distinct words that say something, in order."""
    return [word for word in dict.fromkeys(words) if word not in FUNCTION_WORDS]


def rarity_of(count: int, num_sentences: int) -> float:
    """Return the weight of a word that so many mentions hold."""
    return math.log1p(num_sentences / (1 + count))



_ALMOST = 1e-9  # by which sums in another order may differ
_KEPT = 1 << 16  # results that are kept
_FEW = 16  # candidates that are looked at one by one at once


class TitleMatcher:
    """Finds the passages that names stand for.

    A name that equals no form is compared by its words, weighted by rarity: the shared ones must be `min_overlap` of
    the rarer words of the shorter of name and title, and `min_jaccard` of both. The last results are kept.
    """

    def __init__(
        self, graph: HierarchyGraph, tables: TitleTables, min_overlap: float = 0.8, min_jaccard: float = 0.4
    ) -> None:
        self._graph, self._tables = graph, tables
        self._min_overlap, self._min_jaccard = min_overlap, min_jaccard
        self._idf = lru_cache(_KEPT)(self._rarity)
        self._close = lru_cache(_KEPT)(self._closest)
        self.links = lru_cache(_KEPT)(self._find_links)
        self.correct = lru_cache(_KEPT)(self._corrected)

    def __contains__(self, form: str) -> bool:
        return form in self._tables.forms

    def is_titled(self, passage: int) -> bool:
        """Tell whether a passage has a title."""
        return bool(self._tables.is_titled[passage])

    def passages(self, form: str) -> tuple[int, ...]:
        """Return the passages with this title form, in corpus order."""
        return self._tables.forms[form]

    def rarity(self, words: Iterable[str]) -> float:
        """Return how rare the rarest word is among the corpus's phrases, in [0, 1]."""
        return max(map(self._idf, words)) / math.log1p(self._tables.num_sentences)

    def match(self, key: str) -> TitleMatch | None:
        """Return the title that the name with this `phrase_key` stands for; ties go by spelling."""
        at = self._tables.forms.keys_.find(key)
        return TitleMatch(key, float(self._tables.sure[at])) if at >= 0 else self._close(key)

    def _find_links(self, passage: int) -> tuple[TitleLink, ...]:
        """Return every mention in a passage of something that another passage is about, in reading order."""
        forms = self._tables.forms
        own, found = {forms.keys_.strings[i] for i in self._tables.own[passage].tolist()}, []
        for sentence in self._graph.sentences_of(passage).tolist():
            for phrase in self._graph.phrases_of(sentence).tolist():
                key = self._graph.phrase_keys[phrase]
                match = self.match(key) if key and key not in own else None
                if match and match.form not in own and forms[match.form] != (passage,):
                    found.append(TitleLink(sentence, phrase, match))
        return tuple(found)

    def _corrected(self, word: str) -> str:
        """Return the title word that a misspelt one means: one letter off, two from eight letters on; else the word."""
        words = self._tables.words
        at = words.keys_.find(word)
        if len(word) < 5 or not word.isalpha() or at >= 0:
            return word
        limit = 1 if len(word) < 8 else 2
        best, distance = word, limit + 1
        for other in self._beginning_with(word[0]):
            if abs(len(other) - len(word)) <= limit:
                between = Levenshtein.distance(word, other, score_cutoff=limit)
                if between < distance:
                    best, distance = other, between
        return best

    def _beginning_with(self, letter: str) -> Iterator[str]:
        """Yield the words of titles that begin with a letter, in order."""
        words = self._tables.words
        first, last = (bisect_left(words.keys_.strings, mark) for mark in (letter, chr(ord(letter) + 1)))
        return iter(words.keys_.strings[first:last])

    def _closest(self, key: str) -> TitleMatch | None:
        words, tables = content(key.split()), self._tables
        weights = {word: self._idf(word) for word in words}
        total = sum(weights.values())
        candidates = self._candidates(weights, total)
        # Sums for all candidates at once find those worth the sums in the order of their words, which decide.
        theirs = tables.weights[candidates]
        shared = np.minimum(total, theirs) if len(candidates) <= _FEW else self._shared(weights, candidates)
        alike = shared / np.maximum(total + theirs - shared, _ALMOST)
        is_near = (alike >= self._min_jaccard - _ALMOST) & (
            shared >= self._min_overlap * np.minimum(total, theirs) - _ALMOST
        )
        best: tuple[float, str, int] | None = None
        for i in np.flatnonzero(is_near)[np.argsort(-alike[is_near], kind="stable")].tolist():
            if best and alike[i] < -best[0] - _ALMOST:
                break
            form, own = tables.forms.keys_.strings[int(candidates[i])], float(theirs[i])
            exact = sum(weights[word] for word in content(form.split()) if word in weights)
            jaccard = exact / (total + own - exact)
            if jaccard >= self._min_jaccard and exact >= self._min_overlap * min(total, own):
                best = min(best or (0.0, form, 0), (-jaccard, form, int(candidates[i])))
        return TitleMatch(best[1], -best[0] * float(tables.sure[best[2]])) if best else None

    def _candidates(self, weights: dict[str, float], total: float) -> np.ndarray:
        """Forms that can reach `min_jaccard`: they hold one of the rarest words, before too little is left."""
        found, left = [np.zeros(0, dtype=np.int32)], total
        for word, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
            if left < self._min_jaccard * total:
                break
            found.append(self._forms_with(word))
            left -= weight
        return distinct(np.concatenate(found))

    def _shared(self, weights: dict[str, float], candidates: np.ndarray) -> np.ndarray:
        """Return the weight of the words that each candidate has, but for rounding. Shape (len(candidates),)."""
        shared = np.zeros(len(candidates))
        for word, weight in weights.items():
            forms = self._forms_with(word)
            if len(forms):
                places = np.searchsorted(forms, candidates).clip(max=len(forms) - 1)
                shared += weight * (forms[places] == candidates)
        return shared

    def _forms_with(self, word: str) -> np.ndarray:
        at = self._tables.words.keys_.find(word)
        return self._tables.words.lists[at] if at >= 0 else np.zeros(0, dtype=np.int32)

    def _rarity(self, word: str) -> float:
        at = self._graph.names.words.find(word)
        return rarity_of(int(self._graph.names.counts[at]) if at >= 0 else 0, self._tables.num_sentences)
