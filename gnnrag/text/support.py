"""How much of a statement a text supports, by words: weighted coverage, and support within a few sentences in a row.

Words are compared by their stems, function words left out. The weight of a stem is its inverse document frequency.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import Stemmer

from gnnrag.text.normalise import FUNCTION_WORDS, WORD, cached, terms, words
from gnnrag.text.sentences import content_words, split_sentences

WINDOW = 3  # sentences in a row, at most, that may hold a statement together
Weight = Callable[[str], float]

_STEMMER = Stemmer.Stemmer("english")
_CITATION = re.compile(r"[ \t]*\[\d{1,3}(?:\s*[,;]\s*\d{1,3})*\]")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_CONTRACTED = re.compile(r"(?:\b(?:ca|wo|sha))?n['’]t\b", re.IGNORECASE)
_NOT = re.compile(r"\b(?:not|no|never|none|nor|neither|without|cannot|nobody|nothing)\b", re.IGNORECASE)
_TOKEN = re.compile(rf"{WORD}(?:[-'’.]{WORD})*")


def content_stems(text: str) -> frozenset[str]:
    """Return the stems of the folded words of a text that say something."""
    return _stems(content_words(text))


def content_terms(text: str) -> list[str]:
    """Return the same stems in reading order, as often as they stand there."""
    return list(_STEMMER.stemWords([w for w in terms(text) if w not in FUNCTION_WORDS and len(w) > 1]))


@cached(longest=50)
def _stems(found: frozenset[str]) -> frozenset[str]:
    return frozenset(_STEMMER.stemWords(sorted(found)))


def inverse_frequencies(texts: Iterable[str]) -> Weight:
    """Return the weight of a stem: ln(1 + n / (1 + d)), of `n` texts `d` have it; at most that of a word none has."""
    total, counts = 0, Counter[str]()
    for text in texts:
        counts.update(content_stems(text))
        total += 1
    return lambda stem: math.log(1 + total / (1 + counts[stem])) if total else 1.0


def coverage(wanted: Collection[str], found: Collection[str], weight: Weight) -> float:
    """Return the weighted share of the stems wanted that are found; NaN where none is wanted."""
    of = math.fsum(weight(stem) for stem in wanted)
    return math.fsum(weight(stem) for stem in wanted if stem in found) / of if of else math.nan


def without_citations(text: str) -> str:
    """Return a text without the numbers in brackets that name passages, such as `[2]` or `[1, 3]`."""
    return _CITATION.sub("", text)


@dataclass(frozen=True)
class Said:
    """What a sentence says: its stems, numbers, the stems of names in it, and whether it denies something."""

    stems: frozenset[str]
    numbers: frozenset[str]
    names: frozenset[str]
    is_negated: bool


@cached()
def said(sentence: str) -> Said:
    """Return what a sentence says. Words with a capital are names, except a first word without a second capital."""
    sentence = _CONTRACTED.sub(" not", _THOUSANDS.sub("", sentence))
    names = set[str]()
    for number, match in enumerate(_TOKEN.finditer(sentence)):
        token = match.group()
        capitals = sum(c.isupper() for c in token)
        if capitals and (number or capitals > 1) and token.lower() not in FUNCTION_WORDS:
            names.update(_stems(frozenset(words(token))))
    return Said(
        content_stems(sentence), frozenset(_NUMBER.findall(sentence)), frozenset(names), bool(_NOT.search(sentence))
    )


def windows(text: str) -> list[Said]:
    """Return what each run of one to `WINDOW` sentences of a text says."""
    return joined([said(" ".join(sentence.split())) for sentence in split_sentences(text)])


def joined(sentences: Sequence[Said]) -> list[Said]:
    """Return each sentence, and each run of up to `WINDOW` of them, as one."""
    runs = []
    for start in range(len(sentences)):
        for stop in range(start + 1, min(start + WINDOW, len(sentences)) + 1):
            run = sentences[start:stop]
            runs.append(
                Said(
                    frozenset().union(*(s.stems for s in run)),
                    frozenset().union(*(s.numbers for s in run)),
                    frozenset().union(*(s.names for s in run)),
                    any(s.is_negated for s in run),
                )
            )
    return runs


def support(statement: Said, places: Iterable[Said], weight: Weight) -> float:
    """Return the weighted share of a statement's stems in the best of some places (`windows`); NaN: it has none.

    A place counts 0 where it lacks a number or a name of the statement, or where only one of the two is negated: no
    other words tell "is recommended" from "is not recommended".
    """
    if not statement.stems:
        return math.nan
    weights = {stem: weight(stem) for stem in statement.stems}
    best = 0.0
    for place in places:
        if place.is_negated != statement.is_negated or not statement.numbers <= place.numbers:
            continue
        if statement.names <= place.stems | place.names:
            best = max(best, math.fsum(value for stem, value in weights.items() if stem in place.stems))
    return best / math.fsum(weights.values())
