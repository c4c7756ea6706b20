"""Keywords without a language model: what a question names is low level, what it asks about that is high level."""

from __future__ import annotations

import re

from gnnrag.graphs.linking import link_question
from gnnrag.index.index import Index
from gnnrag.roles.asking import Keywords, KeywordsTask
from gnnrag.session import Session
from gnnrag.text.normalise import phrase_key, words
from gnnrag.text.phrases import rule_phrases

_POSSESSIVE_END = re.compile(r"['’]s$")
_EDGE = " ,.;:!?\"“”()[]'’"


class OfflineKeywords:
    """Low: names known to the corpus, and capitalised spans, quotations and dates that are not. High: the other words.

    Never both empty: a query that names nothing and asks nothing is its own low-level keyword.

    Args:
        index: an opened index.
    """

    stages = ("hierarchy",)

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: KeywordsTask, session: Session) -> Keywords:
        """Return the keywords of a query, each list in the query's order."""
        return self.find(task.query)

    def find(self, query: str) -> Keywords:
        """See `__call__`."""
        linked = link_question(query, self.index.hierarchy, self.index.titles)
        raw = query.split()
        found = {name.key: place for name in linked.names if (place := _place(raw, name.key.split()))}
        used = {i for start, stop in found.values() for i in range(start, stop)}
        for phrase in rule_phrases(query):
            key = phrase_key(phrase)
            place = _place(raw, words(phrase))
            if key and place and not used & set(range(*place)):
                found.setdefault(key, place)
                used |= set(range(*place))
        spans = sorted(found.values())
        low = [_POSSESSIVE_END.sub("", " ".join(raw[start:stop]).strip(_EDGE)) for start, stop in spans]
        named = {word for start, stop in spans for token in raw[start:stop] for word in words(token)}
        high = [word for word in linked.rest if word not in named]
        if not low and not high:
            low = [" ".join(raw)]
        return Keywords(tuple(dict.fromkeys(low)), tuple(dict.fromkeys(high)))


def _place(raw: list[str], key: list[str]) -> tuple[int, int] | None:
    """Return where in a text, cut at spaces, some folded words stand: the first place, as a range of the pieces."""
    pieces = [words(token) for token in raw]
    for start in range(len(raw)):
        if not pieces[start] or pieces[start][0] != key[0]:
            continue
        seen: list[str] = []
        for stop in range(start, len(raw)):
            seen += pieces[stop]
            if seen[: len(key)] == key:
                return start, stop + 1
            if len(seen) >= len(key):
                break
    return None
