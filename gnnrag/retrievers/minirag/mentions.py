"""Entities and answer types of a question (MiniRAG); prompted, and by rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gnnrag.extract.entity_types import noun_type
from gnnrag.index.index import Index
from gnnrag.prompts.untrusted import inline
from gnnrag.retrievers.lightrag.keywords import OfflineKeywords
from gnnrag.roles.base import Mentions, MentionsTask, Role
from gnnrag.roles.offline_reader.question import AnswerType, expected_type, head_noun, question_word
from gnnrag.roles.parsing import clean_line, json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, PromptedRole
from gnnrag.session import Session
from gnnrag.text.sentences import beginning

_TYPES = ("answer_types", "answer_type_keywords", "types")
_NAMES = ("entities", "entities_from_query", "names", "mentions")
_LIMIT = 200  # characters of a name: a longer one is a sentence


@dataclass
class PromptedMentionsConfig(PromptedConfig):
    """Settings of `PromptedMentions`."""

    max_tokens: int = 256
    max_types: int = 60  # how many of the graph's types the prompt shows
    max_names: int = 5  # the first names that are kept


class PromptedMentions(PromptedRole[MentionsTask, Mentions]):
    """Asks once, and once more after a malformed reply; failing both times names nothing: `mentions_failed`."""

    role = "mentions"
    config_class = PromptedMentionsConfig

    async def __call__(self, task: MentionsTask, session: Session) -> Mentions:
        """Return names and answer types as the model wrote them; what no type of the graph equals is for the caller."""
        shown = ", ".join(inline(kind) for kind in task.types[: self.config.max_types]) or "(none given)"
        values = {"types": shown, "query": inline(task.query)}
        outcome = await self.ask(session, values, parse_mentions)
        if outcome.value is None:
            return Mentions(flags=("mentions_failed",))
        names, types = outcome.value
        return Mentions(tuple(names[: self.config.max_names]), tuple(types))


def parse_mentions(text: str) -> tuple[list[str], list[str]]:
    """Return the names and the answer types of a reply, cleaned, without repeats; either list may be missing.

    Raises:
        MalformedError: there is no JSON object with one of the lists.
    """
    for data in json_objects(strip_markup(strip_thinking(text))):
        lowered = {str(k).strip().lower().replace(" ", "_"): v for k, v in data.items()}
        names, types = _list(lowered, _NAMES), _list(lowered, _TYPES)
        if names is not None or types is not None:
            return names or [], types or []
    raise MalformedError("no JSON object with the list 'entities'")


def _list(data: dict[str, Any], keys: tuple[str, ...]) -> list[str] | None:
    """Return the texts under the first key that is there; a single text counts as a list of one."""
    value = next((data[key] for key in keys if isinstance(data.get(key), list | str)), None)
    if value is None:
        return None
    # A name may be a number (`1984`).
    rows = [value] if isinstance(value, str) else [v for v in value if type(v) in (str, int)]
    return list(dict.fromkeys(line for row in rows if (line := clean_line(str(row), _LIMIT))))


_ASKED = re.compile(r"^(?:what|which) ")
MAX_NAMES = 5  # as released
# What the reader looks for, in the types of `gnnrag.extract.entity_types`.
_TYPES_OF_ANSWERS: dict[AnswerType, tuple[str, ...]] = {
    "person": ("person",),
    "place": ("location",),
    "date": ("date",),
    "year": ("date",),
    "number": ("number",),
    "country": ("location", "nationality"),
    "language": ("language",),
}


class OfflineMentions(Role[MentionsTask, Mentions]):
    """Names known to the corpus and capitalised spans; types by the question word, else by the noun asked for.

    Of the types only those that the graph has are given, in its spelling. Where the graph's types are not known, they
    are upper case, as the released prompt's examples write them.
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
    if asked in _TYPES_OF_ANSWERS:
        return _TYPES_OF_ANSWERS[asked]
    if asked == "yes_no":
        return ()
    lowered = query.lower()
    nouns = [head_noun(query), *_ASKED.sub("", lowered[question_word(lowered) :]).split()[:3]]
    kind = next((kind for noun in nouns if (kind := noun_type([noun]))), "")
    return (kind,) if kind else ()
