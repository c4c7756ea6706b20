"""Mentions without a language model: names as keywords have them, and the type that the question word asks for."""

from __future__ import annotations

import re

from gnnrag.extract.entity_types import noun_type
from gnnrag.index.index import Index
from gnnrag.roles.asking import Mentions, MentionsTask
from gnnrag.roles.extractive.answer_types import AnswerType, expected_type, head_noun, question_word
from gnnrag.roles.keywords_offline import OfflineKeywords
from gnnrag.session import Session
from gnnrag.text.bounds import beginning

_ASKED = re.compile(r"^(?:what|which) ")
MAX_NAMES = 5  # as released
# What the reader looks for, in the types of `gnnrag.extract.entity_types`.
_TYPES: dict[AnswerType, tuple[str, ...]] = {
    "person": ("person",),
    "place": ("location",),
    "date": ("date",),
    "year": ("date",),
    "number": ("number",),
    "country": ("location", "nationality"),
    "language": ("language",),
}


class OfflineMentions:
    """Names known to the corpus and capitalised spans; types by the question word, else by the noun asked for.

    Of the types only those that the graph has are given, in its spelling. Where the graph's types are not known, they
    are upper case, as the released prompt's examples write them.

    Args:
        index: an opened index.
    """

    stages = OfflineKeywords.stages

    def __init__(self, index: Index, config: None = None) -> None:
        self._keywords = OfflineKeywords(index)

    async def __call__(self, task: MentionsTask, session: Session) -> Mentions:
        """Return the names in the query's order."""
        known = {kind.casefold(): kind for kind in reversed(task.types)}
        types = guessed_types(task.query)
        spelt = [known[kind] for kind in types if kind in known] if known else [kind.upper() for kind in types]
        return Mentions(self._keywords.find(task.query).low[:MAX_NAMES], tuple(spelt))


def guessed_types(query: str) -> tuple[str, ...]:
    """Return the types that the answer to a query may have, most likely first; none where nothing tells."""
    query = beginning(query)
    asked = expected_type(query)
    if asked in _TYPES:
        return _TYPES[asked]
    if asked == "yes_no":
        return ()
    lowered = query.lower()
    nouns = [head_noun(query), *_ASKED.sub("", lowered[question_word(lowered) :]).split()[:3]]
    kind = next((kind for noun in nouns if (kind := noun_type([noun]))), "")
    return (kind,) if kind else ()
