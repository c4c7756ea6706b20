"""Keywords of a question, low and high level (LightRAG, PathRAG): prompted and by rules."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import AliasChoices, Field

from gnnrag.graphs.linking import link_question
from gnnrag.parts import part, set_up
from gnnrag.prompts.untrusted import inline
from gnnrag.roles.base import Keywords, KeywordsTask, ResultT, Role, TaskT
from gnnrag.roles.parsing import Lines, ReplyModel, read_as
from gnnrag.roles.prompting import PromptedPart
from gnnrag.session import Session
from gnnrag.text.normalise import phrase_key, words
from gnnrag.text.phrases import rule_phrases
from gnnrag.text.sentences import beginning


@part("role", "keywords.prompted")
class PromptedKeywords(PromptedPart[KeywordsTask, Keywords]):
    """Asks, and once more after a malformed reply; failing both times gives no keywords and `keywords_failed`."""

    max_tokens: int = 256
    max_keywords: int = 20  # of each list

    async def __call__(self, task: KeywordsTask, session: Session) -> Keywords:
        outcome = await self.ask(session, {"query": inline(task.query)}, parse_keywords)
        if outcome.value is None:
            return Keywords(flags=("keywords_failed",))
        low, high = (tuple(row[: self.max_keywords]) for row in outcome.value)
        return Keywords(low, high)


class KeywordsReply(ReplyModel):
    low: Lines = Field(validation_alias=AliasChoices("low", "low_level", "low_level_keywords"))
    high: Lines = Field(validation_alias=AliasChoices("high", "high_level", "high_level_keywords"))


def parse_keywords(text: str) -> tuple[list[str], list[str]]:
    """Return low-level and high-level keywords, cleaned, without repeats; MalformedError without both lists."""
    reply = read_as(KeywordsReply, text)
    return reply.low, reply.high


_POSSESSIVE_END = re.compile(r"['’]s$")
_EDGE = " ,.;:!?\"“”()[]'’"


@part("role", "keywords.offline")
class OfflineKeywords(Role[KeywordsTask, Keywords]):
    """Low: names known to the corpus, and capitalised spans, quotations and dates that are not. High: the other words.

    Never both empty: a query that names nothing and asks nothing is its own low-level keyword.
    """

    reads = ("hierarchy",)

    async def __call__(self, task: KeywordsTask, session: Session) -> Keywords:
        return self.find(task.query)

    def find(self, query: str) -> Keywords:
        query = beginning(query)
        linked = link_question(query, self.index.hierarchy, self.index.titles)
        raw = query.split()
        places = _Places(raw)
        spans_by_key = {name.key: place for name in linked.names if (place := places.of(name.key.split()))}
        used = {i for start, stop in spans_by_key.values() for i in range(start, stop)}
        for phrase in rule_phrases(query):
            key = phrase_key(phrase)
            place = places.of(words(phrase))
            if key and place and not used & set(range(*place)):
                spans_by_key.setdefault(key, place)
                used |= set(range(*place))
        spans = sorted(spans_by_key.values())
        low = [_POSSESSIVE_END.sub("", " ".join(raw[start:stop]).strip(_EDGE)) for start, stop in spans]
        named = {word for start, stop in spans for token in raw[start:stop] for word in words(token)}
        high = [word for word in linked.rest if word not in named]
        if not low and not high:
            low = [" ".join(raw)]
        return Keywords(tuple(dict.fromkeys(low)), tuple(dict.fromkeys(high)))


class _Places:
    """Where folded words stand in a text that was cut at blanks."""

    def __init__(self, raw: Sequence[str]) -> None:
        pairs = [(word, number) for number, token in enumerate(raw) for word in words(token)]
        self._words, self._owners = [word for word, _ in pairs], [number for _, number in pairs]  # token of each word

    def of(self, key: Sequence[str]) -> tuple[int, int] | None:
        """Return the first place of words that begin with a token, as a range of the tokens."""
        for start in range(len(self._words) - len(key) + 1) if key else ():
            end = start + len(key)
            begins_token = not start or self._owners[start - 1] != self._owners[start]
            if begins_token and self._words[start:end] == key:
                return self._owners[start], self._owners[end - 1] + 1
        return None


class NamingRole(Role[TaskT, ResultT]):
    """Base of offline roles that need the names in a query."""

    reads = OfflineKeywords.reads

    def setup(self) -> None:
        self.keywords = set_up(OfflineKeywords(), index=self.index)
