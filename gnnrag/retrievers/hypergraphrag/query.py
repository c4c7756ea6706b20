"""Entities that a question names (HyperGraphRAG); prompted, and by rules."""

from __future__ import annotations

import html
import re

from gnnrag.index.index import Index
from gnnrag.prompts.untrusted import inline
from gnnrag.retrievers.lightrag.keywords import OfflineKeywords
from gnnrag.roles.base import HyperQuery, HyperQueryTask, Role
from gnnrag.roles.parsing import clean_line, in_parentheses, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedRole, at_most
from gnnrag.session import Session

_END = re.compile(r"<\|complete\|>", re.IGNORECASE)
_HYPER = re.compile(r"hyper[-_ ]?(?:relation|edge)", re.IGNORECASE)
_SENTENCE_LIMIT, _NAME_LIMIT = 1000, 256  # characters


class PromptedHyperQuery(PromptedRole[HyperQueryTask, HyperQuery]):
    """Asks once, and once more after a malformed reply. Failing both times gives nothing and `hyper_query_failed`."""

    role = "hyper_query"
    config_class = at_most(1024)

    async def __call__(self, task: HyperQueryTask, session: Session) -> HyperQuery:
        """Return the sentences and the entities, in the order written, without repeats."""
        outcome = await self.ask(session, {"query": inline(task.query)}, parse_hyper_query)
        return HyperQuery(flags=("hyper_query_failed",)) if outcome.value is None else outcome.value


def parse_hyper_query(text: str) -> HyperQuery:
    """Return what a reply in record format C holds; only records of exactly 3 (fact) or 5 (entity) fields count.

    Raises:
        MalformedError: there is no such record, and no end marker that says that this is all.
    """
    text = strip_thinking(text)
    sentences: dict[str, None] = {}
    names: dict[str, None] = {}
    for part in _END.split(text, maxsplit=1)[0].split("##"):
        if (body := in_parentheses(part)) is None:
            continue
        fields = [html.unescape(field).strip().strip("\"'").strip() for field in body.split("<|>")]
        if _HYPER.fullmatch(fields[0]) and len(fields) == 3 and (line := clean_line(fields[1], _SENTENCE_LIMIT)):
            sentences[line] = None
        if fields[0].lower() == "entity" and len(fields) == 5 and (line := clean_line(fields[1], _NAME_LIMIT)):
            names[line] = None
    if not sentences and not names and not _END.search(text):
        raise MalformedError("no complete record and no end marker")
    return HyperQuery(tuple(sentences), tuple(names))


_CLAUSE = re.compile(r"[,;:?!]\s+|\s+(?=(?:that|which|who|whose|whom|where|when)\s)", re.IGNORECASE)
_MIN_WORDS = 4  # a shorter piece says nothing by itself


class OfflineHyperQuery(Role[HyperQueryTask, HyperQuery]):
    """The query itself and its clauses stand for facts, what it names for entities."""

    stages = OfflineKeywords.stages

    def __init__(self, index: Index, config: None = None) -> None:
        self._keywords = OfflineKeywords(index)

    async def __call__(self, task: HyperQueryTask, session: Session) -> HyperQuery:
        """Return sentences and names in the query's order."""
        return HyperQuery(clauses(task.query), self._keywords.find(task.query).low)


def clauses(query: str) -> tuple[str, ...]:
    """Return the query, then its clauses of four words or more where it has several."""
    query = " ".join(query.split())
    parts = [part.strip(" ?.!,;:") for part in _CLAUSE.split(query)]
    parts = [part for part in parts if len(part.split()) >= _MIN_WORDS]
    return (query, *parts) if len(parts) > 1 else (query,)
