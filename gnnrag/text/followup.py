"""A question that follows up on another, as one that stands alone: by rules, for there may be no language model."""

from __future__ import annotations

import re
from collections.abc import Sequence

_POSSESSIVE = re.compile(r"\b(his|her|its|their)\b(?=\s+\w)", re.I)
_PERSONAL = re.compile(r"\b(he|she|it|they|him|them|there|this|that one|the latter)\b", re.I)
_NAME_WORDS = 8  # a longer answer is no name


def standalone(question: str, history: Sequence[tuple[str, str]]) -> str:
    """Return a question with its first pronoun replaced by the last answer, where that is a name; else as it is.

    Args:
        question: as a person typed it.
        history: earlier questions with their answers, oldest first; an empty answer was none.
    """
    name = next((answer.strip().rstrip(".") for _, answer in reversed(history) if answer.strip()), "")
    if not name or len(name.split()) > _NAME_WORDS:
        return question
    if _POSSESSIVE.search(question):
        return _POSSESSIVE.sub(lambda _: f"{name}'s", question, count=1)
    return _PERSONAL.sub(lambda _: name, question, count=1)
