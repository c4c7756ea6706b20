"""The names of passages (titles, subjects), matching names to passages, and the places of passages in documents."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import extractOne

from gnnrag.arrays import Lists, Rows, distinct
from gnnrag.datasets.chunk import document_of
from gnnrag.graphs.hierarchy import HierarchyGraph, bounds_of, numbered
from gnnrag.text.normalise import FUNCTION_WORDS, cached, drop_qualifier, phrase_key
from gnnrag.text.subjects import PATH, Subject, subjects_of
from gnnrag.types import Passage


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

    forms: Sequence[str]
    form_passages: Lists  # the passages of each form, ascending
    sure: np.ndarray  # (num_forms,) float64, how sure a passage is known by it
    weights: np.ndarray  # (num_forms,) float64, the summed rarity of its content words
    passage_forms: Lists  # the forms of each passage
    is_titled: np.ndarray  # (num_passages,) bool
    words: Sequence[str]  # content words of the forms, sorted
    word_forms: Lists  # the forms that hold each word, ascending
    num_sentences: int

    @cached_property
    def position(self) -> Mapping[str, int]:
        return {form: i for i, form in enumerate(self.forms)}

    @cached_property
    def word_position(self) -> Mapping[str, int]:
        return {word: i for i, word in enumerate(self.words)}


FULL, BARE, SUBJECT = 1, 2, 4  # a title; a title without its qualifier; what a text is about
NAMES = pa.list_(pa.struct([("form", pa.string()), ("kinds", pa.uint8()), ("sure", pa.float64())]))


def names_of(passage: Passage) -> list[dict[str, Any]]:
    """Return what a passage is known by: its title, but a path of headings is none; without one, its subjects."""
    subjects = () if passage.title.strip() else subjects_of(passage.text)
    return name_rows("" if PATH in passage.title else passage.title, subjects)


def title_tables(graph: HierarchyGraph, rows: Any) -> TitleTables:
    """Collect the names of passages from an Arrow array of the type `NAMES`."""
    names, bounds = pc.list_flatten(rows), bounds_of(rows)
    forms, spelt = numbered(pc.struct_field(names, "form"))
    kinds, known = (pc.struct_field(names, field).to_numpy() for field in ("kinds", "sure"))
    passage_forms = Lists(bounds, forms)
    passages = passage_forms.owners
    # A passage that bears the very name wins over those that need a qualifier to tell them apart from it, titles win
    # over subjects.
    best = np.full(len(spelt), SUBJECT, dtype=np.uint8)
    for kind in (BARE, FULL):
        best[forms[(kinds & kind) > 0]] = kind
    bears = (kinds & best[forms]) > 0
    sure = np.where(best == SUBJECT, 0.0, 1.0)
    np.maximum.at(sure, forms[bears], known[bears])
    split = pc.split_pattern(spelt, " ")
    every_word = pc.list_flatten(split)
    says_something = pc.invert(pc.is_in(every_word, pa.array(sorted(FUNCTION_WORDS), every_word.type)))
    holders = np.repeat(np.arange(len(spelt)), np.diff(bounds_of(split)))[says_something.to_numpy(zero_copy_only=False)]
    words = every_word.filter(says_something)
    vocabulary = words.unique().sort()
    at = pc.index_in(words, vocabulary).to_numpy(zero_copy_only=False)
    held = Lists.grouped(holders, at, len(spelt)).transposed(len(vocabulary))
    num_sentences = max(len(graph.sentences), 1)
    there = pc.index_in(vocabulary, graph.names.words.columns[0])
    counts = np.append(graph.names.counts, 0)[pc.fill_null(there, -1).to_numpy(zero_copy_only=False)]
    rarities = rarity_of(counts, num_sentences)
    return TitleTables(
        forms=Rows([spelt]),
        form_passages=Lists.grouped(forms[bears], passages[bears], len(spelt)),
        sure=sure,
        weights=np.bincount(held.values, rarities[held.owners], len(spelt)),
        passage_forms=passage_forms,
        is_titled=np.bincount(passages[(kinds & FULL) > 0], minlength=len(passage_forms)) > 0,
        words=Rows([vocabulary]),
        word_forms=held,
        num_sentences=num_sentences,
    )


def name_rows(title: str, subjects: Iterable[Subject]) -> list[dict[str, Any]]:
    """Return rows of `NAMES`: a title with and without its parenthetical qualifier, and what the text is about."""
    bare = drop_qualifier(title)
    kinds = {title: FULL, bare: BARE} if bare != title else {title: FULL | BARE}  # a form takes a while
    names: dict[str, tuple[int, float]] = {}
    for text, kind in kinds.items():
        name = phrase_key(text)
        names[name] = (names.get(name, (0, 0.0))[0] | kind, 0.0)
    for name, confidence in {phrase_key(subject.name): subject.confidence for subject in subjects}.items():
        names[name] = (names.get(name, (0, 0.0))[0] | SUBJECT, confidence)
    return [{"form": form, "kinds": kinds, "sure": sure} for form, (kinds, sure) in names.items() if form]


def content(words: Iterable[str]) -> list[str]:
    """Distinct words that say something, in order."""
    return [word for word in dict.fromkeys(words) if word not in FUNCTION_WORDS]


def rarity_of(count: Any, num_sentences: int) -> Any:
    """Return the weight of a word that so many mentions hold, or of words."""
    return np.log1p(num_sentences / (1 + count))


_ALMOST = 1e-9  # by which sums in another order may differ
_KEPT = 1 << 16  # results that are kept


class TitleMatcher:
    """Finds the passages that names stand for.

    A name that equals no form is compared by its words, weighted by rarity: the shared ones must be `min_overlap` of
    the rarer words of the shorter of name and title, and `min_jaccard` of both. The last results are kept.
    """

    def __init__(
        self, graph: HierarchyGraph, tables: TitleTables, min_overlap: float = 0.8, min_jaccard: float = 0.4
    ) -> None:
        self._graph, self.tables = graph, tables
        self._min_overlap, self._min_jaccard = min_overlap, min_jaccard

        def rarity(word: str) -> float:
            return float(rarity_of(graph.word_count(word), tables.num_sentences))

        self._rarity = cached(_KEPT, 60)(rarity)
        self._close = cached(_KEPT)(self._closest)
        self.links = lru_cache(_KEPT)(self._find_links)

    def __contains__(self, form: str) -> bool:
        return form in self.tables.position

    def passages(self, form: str) -> tuple[int, ...]:
        """Return the passages with this title form, in corpus order."""
        return tuple(self.tables.form_passages[self.tables.position[form]].tolist())

    def rarity(self, words: Iterable[str]) -> float:
        """Return how rare the rarest word is among the corpus's phrases, in [0, 1]."""
        return max(map(self._rarity, words)) / math.log1p(self.tables.num_sentences)

    def match(self, key: str) -> TitleMatch | None:
        """Return the title that the name with this `phrase_key` stands for; ties go by spelling."""
        at = self.tables.position.get(key)
        return self._close(key) if at is None else TitleMatch(key, float(self.tables.sure[at]))

    def _find_links(self, passage: int) -> tuple[TitleLink, ...]:
        """Return every mention in a passage of something that another passage is about, in reading order."""
        own_forms, links = {self.tables.forms[i] for i in self.tables.passage_forms[passage].tolist()}, []
        for sentence in self._graph.passage_sentences[passage].tolist():
            for phrase in self._graph.sentence_phrases[sentence].tolist():
                key = self._graph.phrase_keys[phrase]
                match = self.match(key) if key and key not in own_forms else None
                if match and match.form not in own_forms and self.passages(match.form) != (passage,):
                    links.append(TitleLink(sentence, phrase, match))
        return tuple(links)

    def correct(self, word: str) -> str:
        """Return the title word that a misspelt one means: one letter off, two from eight letters on; else the word."""
        words = self.tables.words
        if len(word) < 5 or not word.isalpha() or word in self.tables.word_position:
            return word
        limit = 1 if len(word) < 8 else 2
        first, last = (bisect_left(words, mark) for mark in (word[0], chr(ord(word[0]) + 1)))
        nearest = extractOne(word, words[first:last], scorer=Levenshtein.distance, score_cutoff=limit)
        return nearest[0] if nearest else word

    def _closest(self, key: str) -> TitleMatch | None:
        words, tables = content(key.split()), self.tables
        weights = {word: self._rarity(word) for word in words}
        total = sum(weights.values())
        candidates = self._candidates(weights, total)
        theirs, shared = tables.weights[candidates], self._shared(weights, candidates)
        alike = shared / np.maximum(total + theirs - shared, _ALMOST)
        is_near = alike >= self._min_jaccard - _ALMOST
        is_near &= shared >= self._min_overlap * np.minimum(total, theirs) - _ALMOST
        candidates, alike = candidates[is_near], alike[is_near]
        if not len(candidates):
            return None
        nearest = candidates[alike >= alike.max() - _ALMOST].tolist()
        best = min(nearest, key=lambda form: tables.forms[form])
        return TitleMatch(tables.forms[best], float(alike.max() * tables.sure[best]))

    def _candidates(self, weights: dict[str, float], total: float) -> np.ndarray:
        """Forms that can reach `min_jaccard`: they hold one of the rarest words, before too little is left."""
        forms, left = [np.zeros(0, dtype=np.int32)], total
        for word, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
            if left < self._min_jaccard * total:
                break
            forms.append(self._forms_with(word))
            left -= weight
        return distinct(np.concatenate(forms))

    def _shared(self, weights: dict[str, float], candidates: np.ndarray) -> np.ndarray:
        """Return the weight of the words that each candidate has. Shape (len(candidates),)."""
        shared = np.zeros(len(candidates))
        for word, weight in weights.items():
            forms = self._forms_with(word)
            if len(forms):
                places = np.searchsorted(forms, candidates).clip(max=len(forms) - 1)
                shared += weight * (forms[places] == candidates)
        return shared

    def _forms_with(self, word: str) -> np.ndarray:
        at = self.tables.word_position.get(word)
        return np.zeros(0, dtype=np.int32) if at is None else self.tables.word_forms[at]


@dataclass(frozen=True)
class Layout:
    """Parts and sections of documents, for each passage."""

    following: np.ndarray  # (num_passages,) int32, the next part of its document; -1: there is none
    sections: np.ndarray  # (num_passages,) int32, from 1: the first heading of its document; 0: there is none


def layout_of(ids: Sequence[str], titles: Iterable[str]) -> Layout:
    """Find parts by their ids (`DOCUMENT#3` follows `DOCUMENT#2`) and sections by their titles."""
    parts = {id_: i for i, id_ in enumerate(ids) if "#" in id_}
    following, sections = (np.full(len(ids), value, dtype=np.int32) for value in (-1, 0))
    numbers: dict[tuple[str, str], int] = {}
    for id_, position in parts.items():
        document, _, number = id_.rpartition("#")
        after = f"{document}#{int(number) + 1}" if number.isdecimal() and len(number) < 10 else ""
        following[position] = parts.get(after, -1)
    for position, (id_, title) in enumerate(zip(ids, titles, strict=True)):
        heading, is_path, _ = title.partition(PATH)
        if is_path:
            sections[position] = numbers.setdefault((document_of(id_), heading), len(numbers) + 1)
    return Layout(following, sections)


@dataclass(frozen=True)
class Titles:
    """The names of passages, and their places in documents."""

    tables: TitleTables
    layout: Layout
