"""What an open question asks for: its words weighed, its noun, its relation, and where its names lead."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnrag.roles.extractive.answer_types import head_noun, question_word
from gnnrag.roles.extractive.question_words import asked_relation
from gnnrag.roles.extractive.reading import Reading
from gnnrag.roles.extractive.spans import STOPWORDS, fold, name_spans, stem

_WH = frozenset(("who", "whom", "whose", "what", "which", "when", "where", "how", "why"))


@dataclass(frozen=True, slots=True)
class Focus:
    """What a question says: weights of its words, its folded text, the noun and the relation it asks for."""

    weights: dict[str, float]
    folded: str
    noun: str
    relation: str
    verb: str  # `design` in `Who designed ...`
    mentions: frozenset[int]


def links_from(focus: Focus, reading: Reading) -> dict[int, float]:
    """Return how the passages that the question does not name hang on those that it names, in [0, 1]."""
    names = [{fold(name) for _, _, name in name_spans(text)} for text in reading.texts]
    links: dict[int, float] = {}
    for i in set(range(len(names))) - focus.mentions:
        for anchor in focus.mentions:
            mine, other = reading.linker.bare[i], reading.linker.bare[anchor]
            if mine in names[anchor] or other in names[i]:
                links[i] = 1.0
            elif any(len(n) > 3 and f" {n} " not in focus.folded for n in names[i] & names[anchor]):
                links[i] = max(links.get(i, 0.0), 0.5)
    return links


def read_focus(question: str, reading: Reading) -> Focus:
    """Weigh the question's words by their distance to its question word: the last hop is asked for there."""
    tokens = fold(question).split()
    lowered = " ".join(question.lower().split())
    at = len(fold(lowered[: question_word(lowered)]).split())
    mentions = reading.linker.mentions(question)
    named = {i for m in mentions for i in range(m.start, m.end)}
    weights: dict[str, float] = {}
    for i, token in enumerate(tokens):
        if token in STOPWORDS or token in _WH:
            continue
        weight = (0.25 + math.exp(-abs(i - at) / 6)) * (0.3 if i in named else 1.0)
        weights[stem(token)] = max(weights.get(stem(token), 0.0), weight)
    head = " ".join(tokens[max(0, at - 6) : at + 7])
    return Focus(
        weights,
        f" {' '.join(tokens)} ",
        head_noun(question),
        asked_relation(head),
        _verb(tokens, at),
        frozenset(m.passage for m in mentions),
    )


def _verb(tokens: list[str], at: int) -> str:
    """Return the stem of the verb after `who`, or nothing."""
    after = tokens[at + 1] if tokens[at : at + 1] == ["who"] and at + 1 < len(tokens) else ""
    return "" if after in STOPWORDS else stem(after)
