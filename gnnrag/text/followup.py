"""A question that follows up on another, as one that stands alone: by rules, for there may be no language model."""

from __future__ import annotations

import re
from collections.abc import Sequence

_POSSESSIVE = re.compile(r"\b(his|her|its|their)\b(?=\s+\w)", re.I)
_PERSONAL = re.compile(r"\b(he|she|it|they|him|them|there|this|that one|the latter)\b", re.I)
# By pronoun: the question words after which it refers to a name in that question, and not to the answer.
_NAMED = {
    **dict.fromkeys(("he", "she", "him", "his", "her"), ("where", "when", "how")),
    **dict.fromkeys(("it", "its", "this"), ("who", "whom", "whose", "where", "when", "how")),
    "there": ("who", "whom", "whose", "when", "how"),
}
# Capitalised words in a row, with small ones between them; the first word of a question is no name.
_CAPITAL = r"[^\W\d_a-z][\w'’-]*"
_NAME = re.compile(rf"(?<=\s){_CAPITAL}(?:(?:\s+(?:of|the|and|de|la|van|von))*\s+{_CAPITAL})*")
_NAME_WORDS = 8  # a longer answer is no name


def standalone(question: str, history: Sequence[tuple[str, str]]) -> str:
    """Return a question with a name in the place of its first pronoun; as it is where none is known.

    Args:
        question: as a person typed it.
        history: earlier questions with their answers, oldest first; an empty answer was none.
    """
    owner = _POSSESSIVE.search(question)
    pronoun = owner or _PERSONAL.search(question)
    name = _meant(pronoun[0].lower(), history) if pronoun else ""
    if not pronoun or not name:
        return question
    return f"{question[: pronoun.start()]}{name}{chr(39) + 's' if owner else ''}{question[pronoun.end() :]}"


def _meant(pronoun: str, history: Sequence[tuple[str, str]]) -> str:
    """Return the last name that a pronoun can stand for: an answer, or what a question named."""
    for question, answer in reversed(history):
        answered = answer.strip().rstrip(".")
        answered = answered if len(answered.split()) <= _NAME_WORDS else ""
        named = names[-1] if pronoun in _NAMED and (names := _NAME.findall(question)) else ""
        first = question.split(maxsplit=1)[0].lower() if question.strip() else ""
        if found := named if first in _NAMED.get(pronoun, ()) else answered or named:
            return found
    return ""
