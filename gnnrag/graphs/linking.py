"""Entity linking without a model: the names in a question, found by what the corpus calls things."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.titles import TitleMatch, TitleMatcher
from gnnrag.text.bounds import beginning
from gnnrag.text.normalise import FUNCTION_WORDS, words

_MAX_WORDS = 12  # longest name looked for
_ARTICLES = ("the", "a", "an")
_TYPO_CONFIDENCE = 0.9  # factor for a match that needed a spelling correction


@dataclass(frozen=True, slots=True)
class LinkedName:
    """A name in a question.

    Attributes:
        key: its spelling-insensitive form.
        title: the title it stands for; None where it is only a phrase of the corpus.
    """

    key: str
    title: TitleMatch | None


@dataclass(frozen=True, slots=True)
class LinkedQuestion:
    """A question taken apart: its names, and the words that remain (what is asked about them)."""

    names: tuple[LinkedName, ...]
    rest: tuple[str, ...]


def link_question(text: str, graph: HierarchyGraph, titles: TitleMatcher) -> LinkedQuestion:
    """Find the names in a question or query: longest match first, no two overlapping.

    Matching ignores case, accents and punctuation. Where the text writes anything in capitals, a name must hold a
    capital or a digit; text all in lower case is searched whole. What looks like a name and equals no phrase is matched
    to titles by its rarer words, and after a spelling correction.
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
            if key in titles or key in graph.phrase_nodes:
                names.append(LinkedName(key, TitleMatch(key, 1.0) if key in titles else None))
                taken[span] = [True] * length
    for span in _capital_runs(tokens, is_capital, taken):
        if match := _loose_match(tokens[span], titles):
            names.append(LinkedName(" ".join(tokens[span]), match))
            taken[span] = [True] * (span.stop - span.start)
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


def _capital_runs(tokens: list[str], is_capital: list[bool], taken: list[bool]) -> Iterator[slice]:
    """Yield the runs of capitalised words that no name has taken; function words may stand inside a run."""
    start = 0
    while start < len(tokens):
        stop = end = start
        while (
            stop < len(tokens)
            and not taken[stop]
            and (is_capital[stop] or (stop > start and tokens[stop] in FUNCTION_WORDS))
        ):
            stop += 1
            end = stop if is_capital[stop - 1] else end
        if end > start:
            yield slice(start, end)
        start = max(end, start + 1)


def _loose_match(run: list[str], titles: TitleMatcher) -> TitleMatch | None:
    if match := titles.match(" ".join(run)):
        return match
    corrected = [titles.correct(word) for word in run]
    match = titles.match(" ".join(corrected)) if corrected != run else None
    return TitleMatch(match.form, _TYPO_CONFIDENCE * match.confidence) if match else None
