"""Entity linking: the names in a question, and the weights of a passage's mentions of other passages' titles."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.titles import TitleMatch, TitleMatcher
from gnnrag.text.normalise import FUNCTION_WORDS, words
from gnnrag.text.sentences import beginning

_MAX_WORDS = 12  # longest name looked for
_ARTICLES = ("the", "a", "an")
_CAPITALS = re.compile("c(?:[cf]*c)?")  # capitalised words, function words between them
_TYPO_CONFIDENCE = 0.9  # factor for a match that needed a spelling correction


@dataclass(frozen=True, slots=True)
class LinkedName:
    """A name in a question."""

    key: str  # its spelling-insensitive form
    title: TitleMatch | None  # None where it is only a phrase of the corpus


@dataclass(frozen=True, slots=True)
class LinkedQuestion:
    """A question taken apart: its names, and the words that remain (what is asked about them)."""

    names: tuple[LinkedName, ...]
    rest: tuple[str, ...]


def link_question(text: str, graph: HierarchyGraph, titles: TitleMatcher) -> LinkedQuestion:
    """Find the names in a question or query: longest match first, no two overlapping.

    Ignores case, accents and punctuation. Where the text writes anything in capitals, a name must hold a capital or a
    digit. What looks like a name and equals no phrase is matched to titles by its rarer words, then spell-corrected.
    """
    tokens, is_capital = _tokens(beginning(text))
    is_content = [token not in FUNCTION_WORDS for token in tokens]
    has_capitals = any(is_capital)
    taken = [False] * len(tokens)
    names: list[LinkedName] = []
    for length in range(min(_MAX_WORDS, len(tokens)), 0, -1):
        for start in range(len(tokens) - length + 1):
            span = slice(start, start + length)
            if any(taken[span]) or not any(is_content[span]) or tokens[start] in _ARTICLES:
                continue
            if has_capitals and not any(is_capital[span]):
                continue
            key = " ".join(tokens[span])
            if key in titles or graph.phrase_nodes(key):
                names.append(LinkedName(key, titles.match(key) if key in titles else None))
                taken[span] = [True] * length
    flags = zip(taken, is_capital, is_content, strict=True)
    marks = "".join("-" if used else "c" if capital else "-" if content else "f" for used, capital, content in flags)
    for run in _CAPITALS.finditer(marks):
        span = slice(*run.span())
        if match := _loose_match(tokens[span], titles):
            names.append(LinkedName(" ".join(tokens[span]), match))
            taken[span] = [True] * len(run[0])
    rest = tuple(t for t, content, used in zip(tokens, is_content, taken, strict=True) if content and not used)
    return LinkedQuestion(tuple(names), rest)


def _tokens(text: str) -> tuple[list[str], list[bool]]:
    """Return the folded words, and which of them are content words written with a capital or a digit."""
    tokens: list[str] = []
    is_capital: list[bool] = []
    for raw in text.split():
        is_marked = any(c.isupper() or c.isdigit() for c in raw)
        for word in words(raw):
            tokens.append(word)
            is_capital.append(is_marked and word not in FUNCTION_WORDS)
    return tokens, is_capital


def _loose_match(run: list[str], titles: TitleMatcher) -> TitleMatch | None:
    if match := titles.match(" ".join(run)):
        return match
    corrected = [titles.correct(word) for word in run]
    match = titles.match(" ".join(corrected)) if corrected != run else None
    return TitleMatch(match.form, _TYPO_CONFIDENCE * match.confidence) if match else None


_STEM = 5  # letters by which two words count as one (`directed`, `director`)


def stems(tokens: Iterable[str]) -> list[str]:
    """Return the first letters of each word: enough to tell that `directed` answers `director`."""
    return [token[:_STEM] for token in tokens]


class LinkWeigher:
    """Weighs the title links of a passage: near the question's words, to something rare, by a sure match.

    weight = (1 + context_weight * nearness) * confidence / log2(1 + sentences with the phrase), where the nearness of
    the mention to the question's other words falls to 1/e at `context_reach` words.
    """

    def __init__(
        self, graph: HierarchyGraph, titles: TitleMatcher, context_weight: float = 2.0, context_reach: float = 4.0
    ) -> None:
        self._graph, self._titles = graph, titles
        self._weight, self._reach = context_weight, context_reach
        self._stems: dict[int, list[str]] = {}

    def weights(self, passage: int, wanted: Collection[str]) -> dict[str, float]:
        """Return the weight of each title form in a passage, in reading order; `wanted`: question stems but names."""
        weights: defaultdict[str, float] = defaultdict(float)
        for link in self._titles.links(passage):
            weight = self.weight(link.sentence, link.phrase, wanted) * link.match.confidence
            weights[link.match.form] = max(weights[link.match.form], weight)
        return dict(weights)

    def weight(self, sentence: int, phrase: int, wanted: Collection[str]) -> float:
        """Return the weight of one mention, without the confidence of its link."""
        nearness = self._nearness(sentence, self._graph.phrase_keys[phrase], wanted)
        degree = self._graph.degrees[self._graph.first_phrase + phrase]
        return (1 + self._weight * nearness) / math.log2(1 + degree)

    def _nearness(self, sentence: int, key: str, wanted: Collection[str]) -> float:
        """How near the wanted words stand to a mention: one adjacent word counts 1, farther ones less."""
        if sentence not in self._stems:
            self._stems[sentence] = stems(words(self._graph.sentences[sentence]))
        tokens, name = self._stems[sentence], stems(key.split())
        hits = [i for i, token in enumerate(tokens) if token in wanted]
        best = 0.0
        for start in range(len(tokens) - len(name) + 1) if hits else ():
            if tokens[start : start + len(name)] == name:
                gaps = (start - i - 1 if i < start else i - start - len(name) for i in hits)
                best = max(best, sum(math.exp(-gap / self._reach) for gap in gaps if gap >= 0))
        return best
