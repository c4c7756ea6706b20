"""Links by title: which passages a name stands for, although text and title rarely spell it alike."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, phrase_key


@dataclass(frozen=True, slots=True)
class TitleMatch:
    """A name read as a title: the title's form and how sure that is, in (0, 1]; 1 is an exact match."""

    form: str
    confidence: float


@dataclass(frozen=True, slots=True)
class TitleLink:
    """A phrase in a passage that stands for another passage.

    `sentence` and `phrase` are positions in the graph's `sentences` and `phrases`.
    """

    sentence: int
    phrase: int
    match: TitleMatch


class TitleMatcher:
    """Finds the passages that names stand for.

    A title is known by two forms, with and without its parenthetical qualifier. A name that equals neither is compared
    by its words, weighted by rarity: `King Eric XIV` stands for `Eric XIV of Sweden`, because what the two share is
    nearly all of the shorter one (`min_overlap`) and much of both (`min_jaccard`). Results are cached, and links are
    found on first use, so that a large corpus costs nothing up front but its titles.

    Args:
        graph: the corpus's hierarchy graph; node i is the passage of `titles[i]`.
        titles: (num_passages,) titles.
        min_overlap: least shared share of the rarer words of the shorter of name and title.
        min_jaccard: least shared share of the words of both.
    """

    def __init__(
        self, graph: HierarchyGraph, titles: Sequence[str], min_overlap: float = 0.8, min_jaccard: float = 0.4
    ) -> None:
        self._graph, self._min_overlap, self._min_jaccard = graph, min_overlap, min_jaccard
        exact: defaultdict[str, list[int]] = defaultdict(list)
        loose: defaultdict[str, list[int]] = defaultdict(list)
        self._own_forms: list[tuple[str, str]] = []
        for passage, title in enumerate(titles):
            full, bare = phrase_key(title), phrase_key(drop_qualifier(title))
            exact[full].append(passage)
            loose[bare].append(passage)
            self._own_forms.append((full, bare))
        # A passage that bears the very name wins over those that need a qualifier to tell them apart from it.
        self._passages = {form: tuple(row) for form, row in (loose | exact).items() if form}
        counts: Counter[str] = Counter()
        for key, nodes in graph.phrase_nodes.items():
            degree = int(sum(graph.degrees[node] for node in nodes))
            for word in set(key.split()):
                counts[word] += degree
        self._counts, self._num_sentences = counts, max(len(graph.sentences), 1)
        self._forms_with: defaultdict[str, list[str]] = defaultdict(list)
        for form in self._passages:
            for word in _content(form.split()):
                self._forms_with[word].append(form)
        self._alike: defaultdict[str, list[str]] = defaultdict(list)
        for word in sorted(self._forms_with):
            self._alike[word[0]].append(word)
        self._matches: dict[str, TitleMatch | None] = {}
        self._links: dict[int, tuple[TitleLink, ...]] = {}

    def __contains__(self, form: str) -> bool:
        return form in self._passages

    def passages(self, form: str) -> tuple[int, ...]:
        """Return the passages with this title form, in corpus order."""
        return self._passages[form]

    def rarity(self, words: Iterable[str]) -> float:
        """Return how rare the rarest word is among the corpus's phrases, in [0, 1]."""
        return max(map(self._idf, words)) / math.log1p(self._num_sentences)

    def match(self, key: str) -> TitleMatch | None:
        """Return the title that the name with this `phrase_key` stands for; ties go by spelling."""
        if key in self._passages:
            return TitleMatch(key, 1.0)
        if key not in self._matches:
            self._matches[key] = self._closest(_content(key.split()))
        return self._matches[key]

    def links(self, passage: int) -> tuple[TitleLink, ...]:
        """Return every mention in a passage of something that another passage is about, in reading order."""
        if passage not in self._links:
            own, found = self._own_forms[passage], []
            for sentence in self._graph.sentences_of(passage).tolist():
                for phrase in self._graph.phrases_of(sentence).tolist():
                    key = self._graph.phrase_keys[phrase]
                    match = self.match(key) if key and key not in own else None
                    if match and match.form not in own and self._passages[match.form] != (passage,):
                        found.append(TitleLink(sentence, phrase, match))
            self._links[passage] = tuple(found)
        return self._links[passage]

    def correct(self, word: str) -> str:
        """Return the title word that a misspelt one means: one letter off, two from eight letters on; else the word."""
        if word in self._forms_with or len(word) < 5 or not word.isalpha():
            return word
        limit = 1 if len(word) < 8 else 2
        best, distance = word, limit + 1
        for other in self._alike.get(word[0], ()):
            if abs(len(other) - len(word)) <= limit:
                between = Levenshtein.distance(word, other, score_cutoff=limit)
                if between < distance:
                    best, distance = other, between
        return best

    def _closest(self, words: Sequence[str]) -> TitleMatch | None:
        weights = {word: self._idf(word) for word in words}
        total = sum(weights.values())
        best: tuple[float, str] | None = None
        for form in self._candidates(weights, total):
            other = _content(form.split())
            theirs = sum(map(self._idf, other))
            shared = sum(weights[word] for word in other if word in weights)
            jaccard = shared / (total + theirs - shared)
            if jaccard >= self._min_jaccard and shared >= self._min_overlap * min(total, theirs):
                best = min(best or (0.0, form), (-jaccard, form))
        return TitleMatch(best[1], -best[0]) if best else None

    def _candidates(self, weights: dict[str, float], total: float) -> dict[str, None]:
        """Title forms that can reach `min_jaccard`: they hold one of the rarest words, before too little is left."""
        forms: dict[str, None] = {}
        left = total
        for word, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
            if left < self._min_jaccard * total:
                break
            forms.update(dict.fromkeys(self._forms_with.get(word, ())))
            left -= weight
        return forms

    def _idf(self, word: str) -> float:
        return math.log1p(self._num_sentences / (1 + self._counts[word]))


def _content(words: Iterable[str]) -> list[str]:
    """Distinct words that say something, in order."""
    return [word for word in dict.fromkeys(words) if word not in FUNCTION_WORDS]
