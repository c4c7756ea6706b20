"""Keywords without a language model: what a question names is low level, what it asks about that is high level."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gnnrag.graphs.linking import link_question
from gnnrag.index.index import Index
from gnnrag.roles.asking import Keywords, KeywordsTask
from gnnrag.session import Session
from gnnrag.text.bounds import beginning
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
        query = beginning(query)
        linked = link_question(query, self.index.hierarchy, self.index.titles)
        raw = query.split()
        places = _Places(raw)
        found = {name.key: place for name in linked.names if (place := places.of(name.key.split()))}
        used = {i for start, stop in found.values() for i in range(start, stop)}
        for phrase in rule_phrases(query):
            key = phrase_key(phrase)
            place = places.of(words(phrase))
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


class _Places:
    """Where folded words stand in a text that was cut at blanks.

    Args:
        raw: the pieces of the text.
    """

    def __init__(self, raw: Sequence[str]) -> None:
        self._words: list[str] = []
        self._owners: list[int] = []  # of each word, its piece
        self._starts: dict[str, list[int]] = {}  # of a piece's first word, where it stands
        for number, token in enumerate(raw):
            found = words(token)
            if found:
                self._starts.setdefault(found[0], []).append(len(self._words))
            self._words += found
            self._owners += [number] * len(found)

    def of(self, key: Sequence[str]) -> tuple[int, int] | None:
        """Return the first place of words that begin with a piece, as a range of the pieces."""
        for start in self._starts.get(key[0], ()) if key else ():
            end = start + len(key)
            if self._words[start:end] == key:
                return self._owners[start], self._owners[end - 1] + 1
        return None
