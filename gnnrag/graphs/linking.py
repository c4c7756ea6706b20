"""Entity linking without a model: the names in a question, found by what the corpus calls things."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.titles import TitleMatch, TitleMatcher
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
    tokens = words(text)
    capitals = _capital_words(text)
    is_free = [token not in FUNCTION_WORDS for token in tokens]
    taken = [False] * len(tokens)
    names: list[LinkedName] = []
    for length in range(min(_MAX_WORDS, len(tokens)), 0, -1):
        for start in range(len(tokens) - length + 1):
            span = slice(start, start + length)
            if any(taken[span]) or not any(is_free[span]) or tokens[start] in _ARTICLES:
                continue
            if capitals and capitals.isdisjoint(tokens[span]):
                continue
            key = " ".join(tokens[span])
            if key in titles or key in graph.phrase_nodes:
                names.append(LinkedName(key, TitleMatch(key, 1.0) if key in titles else None))
                taken[span] = [True] * length
    rest = tuple(t for t, free, used in zip(tokens, is_free, taken, strict=True) if free and not used)
    names.extend(_unknown_names(tokens, taken, capitals, titles))
    return LinkedQuestion(tuple(names), rest)


def _capital_words(text: str) -> set[str]:
    """Content words that the text writes with a capital or a digit."""
    marked = (token for token in text.split() if any(c.isupper() or c.isdigit() for c in token))
    return {word for token in marked for word in words(token)} - FUNCTION_WORDS


def _unknown_names(tokens: list[str], taken: list[bool], capitals: set[str], titles: TitleMatcher) -> list[LinkedName]:
    """Match runs of capitalised words that no phrase equals; function words may stand inside a run."""
    names: list[LinkedName] = []
    run: list[str] = []
    for token, used in zip([*tokens, ""], [*taken, True], strict=True):
        if not used and (token in capitals or (run and token in FUNCTION_WORDS)):
            run.append(token)
            continue
        while run and run[-1] in FUNCTION_WORDS:
            run.pop()
        if run and (match := _loose_match(run, titles)):
            names.append(LinkedName(" ".join(run), match))
        run = []
    return names


def _loose_match(run: list[str], titles: TitleMatcher) -> TitleMatch | None:
    if match := titles.match(" ".join(run)):
        return match
    corrected = [titles.correct(word) for word in run]
    match = titles.match(" ".join(corrected)) if corrected != run else None
    return TitleMatch(match.form, _TYPO_CONFIDENCE * match.confidence) if match else None
