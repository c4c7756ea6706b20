"""What passages state, read by a model: OpenIE's triples, LightRAG's records, n-ary facts of HyperGraphRAG."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gnnrag.extract.base import EntityRecord, Extraction, HyperedgeRecord, RelationRecord, Triple
from gnnrag.llm.base import Message
from gnnrag.parts import part
from gnnrag.prompts.untrusted import escaped_except, inline, notes_element, passage_element
from gnnrag.roles.parsing import json_objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.roles.writers.base import Extracted, TriplesTask
from gnnrag.roles.writers.records import Records, dropped, longest, number, read_entity, read_relation, split_records
from gnnrag.session import Session
from gnnrag.text.tokens import estimate_tokens

NAMES_KEY, TRIPLES_KEY = "named_entities", "triples"
MAX_HISTORY = 20_480  # tokens beyond which nothing more is asked for (LightRAG)
_FORMAT = re.compile(r"<\|(?:(?:COMPLETE|#)\|)?>")  # of records; no chat template has these


@part("writer", "triples.openie")
class OpenIETriples(PromptedPart[TriplesTask, Extracted]):
    """Two calls for each passage: its named entities, then triples that hold them (`prompt` replaces this call's).

    A passage whose names cannot be read is asked for triples without them; one whose triples cannot be read, or of
    which more than half are not triples, has failed.
    """

    max_tokens: int = 4096

    def setup(self) -> None:
        # As the released code does, of a list that was cut off the whole elements are taken.
        self._names = self.prompter("triples_names", is_replaceable=False, keeps_cut=True)
        self._triples = self.prompter("triples_openie", keeps_cut=True)
        self.prompters = (self._names, self._triples)

    async def __call__(self, task: TriplesTask, session: Session) -> Extracted:
        passage = {"passage": passage_element(task.passage, 1)}
        types = inline(", ".join(task.types) or "any")
        outcome = await self._names.ask(session, {**passage, "types": types}, read_names)
        names: tuple[str, ...] = outcome.value or ()
        flags: tuple[str, ...] = ("no_names",) if outcome.value is None else ()
        listed = notes_element(json.dumps({NAMES_KEY: names}, ensure_ascii=False))
        values = {**passage, "names": listed, "language": inline(task.language)}
        answer = await self._triples.ask(session, values, read_triples)
        triples, malformed, seen = answer.value or ((), 0, 0)
        flags += ("records_dropped_fields",) * malformed + ("records_seen",) * seen
        if answer.value is None or malformed > 0.5 * seen:
            return Extracted(None, (*flags, "passage_failed"))
        return Extracted(Extraction(names, triples, malformed), flags)


def read_names(reply: str) -> tuple[str, ...]:
    """Return the distinct names of `{"named_entities": [...]}`, in order; MalformedError without such a list."""
    names = (str(name).strip() for name in _list(reply, NAMES_KEY) if _is_plain(name))
    return tuple(dict.fromkeys(name for name in names if name))


def read_triples(reply: str) -> tuple[tuple[Triple, ...], int, int]:
    """Return the distinct triples of `{"triples": [...]}`, how many rows are none, and how many there are.

    A row of two or four parts, one that holds null or a list, or an empty head, relation or tail, is no triple.
    MalformedError without such a list.
    """
    rows = _list(reply, TRIPLES_KEY)
    lists = [row for row in rows if isinstance(row, list | tuple) and len(row) == 3 and all(map(_is_plain, row))]
    triples: list[Any] = [t for row in lists if all(t := tuple(str(value).strip() for value in row))]
    return tuple(dict.fromkeys(triples)), len(rows) - len(triples), len(rows)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _list(reply: str, key: str) -> list[Any]:
    for data in json_objects(strip_thinking(reply), whole=True):
        value = data.get(key)
        if isinstance(value, list | tuple):
            return list(value)
        if key in data and value is None:
            return []  # a model that finds nothing may say null
    raise MalformedError(f"no object with a list {key!r}")


@dataclass
class GleanedTriples(PromptedPart[TriplesTask, Extracted]):
    """Base of extractors that ask for records, and then for what was missed.

    With gleaning g there are 1 call (g = 0), 2 (g = 1) or up to 2 g: after each turn but the last the model is asked
    whether anything is missing, and only `yes` goes on. A passage of which more than half the records cannot be used
    has failed.
    """

    types: ClassVar[tuple[str, ...]]  # where the task names none

    max_tokens: int = 4096

    def setup(self) -> None:
        # The records before a cut are whole, and what is missing is asked for.
        self._first = self.prompter(self.prompt_name, keeps_cut=True)
        self._more = self.prompter("triples_more", is_replaceable=False, keeps_cut=True)
        self._ask = self.prompter("triples_ask", is_replaceable=False, max_tokens=8, keeps_cut=True)
        self.prompters = (self._first, self._more, self._ask)

    async def __call__(self, task: TriplesTask, session: Session) -> Extracted:
        values = {
            "types": inline(", ".join(task.types or self.types)),
            "language": inline(task.language),
            "passage": passage_element(task.passage, 1),
        }
        first = await self._first.ask(session, values, self.read)
        if first.value is None:
            return Extracted(None, ("passage_failed",))
        replies = [first.value]
        turns = (*self._first.prompt.render(**values), _said(first.reply))
        for left in reversed(range(task.gleaning)):
            if sum(estimate_tokens(turn.content) for turn in turns) > MAX_HISTORY:
                session.flag("triples", "gleaning_skipped")
                break
            more = await self._more.ask(session, {}, self._read_more, turns)
            if more.value is None:
                break
            replies.append(more.value)
            turns = (*turns, *self._more.prompt.render(), _said(more.reply))
            if left:
                is_more = await self._ask.ask(session, {}, lambda reply: re.sub(r"[\W_]", "", reply).casefold(), turns)
                if is_more.value != "yes":  # "yes, but" is a no
                    break
        extraction = self.collect(replies)
        counts = sum((records.counts for records in replies), Counter[str]())
        flags = tuple(flag for records in replies for flag in records.flags)
        if dropped(counts) > 0.5 * counts["seen"]:
            return Extracted(None, (*flags, "passage_failed"))
        return Extracted(replace(extraction, malformed=dropped(counts)), flags)

    def _read_more(self, reply: str) -> Records:
        try:
            return self.read(reply)
        except MalformedError:  # a model that has nothing to add may say so in its own words
            return Records(is_complete=True)

    def read(self, reply: str) -> Records:
        """Return the records of a reply. Raises MalformedError where it has none, and not even the end marker."""
        raise NotImplementedError

    def collect(self, replies: Sequence[Records]) -> Extraction:
        """Return what the records state; what cannot be used is counted in them."""
        raise NotImplementedError


def _said(reply: str) -> Message:
    """Return a reply as a turn of the conversation that goes on: it was written from the passage."""
    return Message("assistant", escaped_except(reply, _FORMAT))


@part("writer", "triples.lightrag")
class LightRAGTriples(GleanedTriples):
    """Asks for entities and relations with descriptions, keywords and strengths.

    Where several replies state a name or a pair, the longer description stays (LightRAG).
    """

    prompt_name = "triples_lightrag"
    types = (  # those of the current release; the prompt allows `other` besides
        "person", "creature", "organization", "location", "event", "concept", "method", "content", "data", "artifact",
        "natural object",
    )  # fmt: skip

    def read(self, reply: str) -> Records:
        records = split_records(reply)
        if not records.rows and not records.is_complete:
            raise MalformedError("no record and no end marker")
        return records

    def collect(self, replies: Sequence[Records]) -> Extraction:
        entities, relations = list[EntityRecord](), list[RelationRecord]()
        for records in replies:
            for tag, fields in records.rows:
                if tag == "entity" and len(fields) == 3:
                    if entity := read_entity(fields, records.counts):
                        entities.append(entity)
                elif tag in ("relation", "entity") and len(fields) > 3:
                    records.counts["repaired"] += tag == "entity"  # a relation under the wrong tag
                    if relation := read_relation(fields, records.counts):
                        relations.append(relation)
                else:
                    records.counts["dropped_fields"] += 1
        details, pairs = longest(entities), merged(relations)
        names = dict.fromkeys([d.name for d in details] + [name for r in pairs for name in (r.head, r.tail)])
        return Extraction(tuple(names), details=details, relations=pairs)


def merged(relations: Sequence[RelationRecord]) -> tuple[RelationRecord, ...]:
    """Return one relation per pair, either way round: the longest description, all keywords, the greatest strength."""
    by_pair: dict[tuple[str, ...], RelationRecord] = {}
    for relation in relations:
        pair = tuple(sorted((relation.head, relation.tail)))
        old = by_pair.setdefault(pair, relation)
        best = relation if len(relation.description) > len(old.description) else old
        keywords = tuple(dict.fromkeys([*old.keywords, *relation.keywords]))
        by_pair[pair] = replace(best, keywords=keywords, weight=max(old.weight, relation.weight))
    return tuple(by_pair.values())


@part("writer", "triples.hyper")
class HyperTriples(GleanedTriples):
    """Asks for n-ary facts, each followed by its entities.

    An entity belongs to the last fact before it, and to none in an earlier reply; a fact that cannot be used takes its
    entities along.
    """

    prompt_name = "triples_hyper"
    types = ("organization", "person", "geo", "event", "category")  # as released
    importance, completeness = 50.0, 1.0  # where the model gives none
    _TAG = re.compile(r"^[<(\[\"'\s]*hyper[-_ ]?(?:relation|edge)[\"'\s]*[>)\]:]+\s*", re.IGNORECASE)

    def read(self, reply: str) -> Records:
        records = split_records(reply)
        if not records.is_complete and not any(tag == "hyper" for tag, _ in records.rows):
            raise MalformedError("no hyper-relation and no end marker")
        return records

    def collect(self, replies: Sequence[Records]) -> Extraction:
        entities = list[EntityRecord]()
        scores, members = dict[str, float](), dict[str, dict[str, float]]()  # of each fact; importance of each entity
        for records in replies:
            fact, counts = None, records.counts
            for tag, fields in records.rows:
                if tag == "hyper":
                    fact = self._TAG.sub("", fields[0]).strip(" \"'") if fields else ""
                    if len(fields) > 2 or not fact:
                        counts["dropped_fields" if len(fields) > 2 else "dropped_empty"] += 1
                        fact = None
                        continue
                    score = _optional(fields, 1, 10.0, self.completeness, counts)
                    members.setdefault(fact, {})
                    scores[fact] = max(score, scores.get(fact, 0.0))
                elif tag == "entity" and fact is None:
                    counts["dropped_orphan"] += 1
                elif tag == "entity":
                    importance = _optional(fields, 3, 100.0, self.importance, counts)
                    if entity := read_entity(fields[:3] if len(fields) == 4 else fields, counts):
                        entities.append(entity)
                        row = members[fact or ""]
                        row[entity.name] = max(importance, row.get(entity.name, 0.0))
                else:
                    counts["dropped_tag"] += 1
        edges = [HyperedgeRecord(fact, scores[fact], tuple(row.items())) for fact, row in members.items() if row]
        details = longest(entities)
        return Extraction(tuple(d.name for d in details), details=details, hyperedges=tuple(edges))


def _optional(fields: list[str], at: int, high: float, default: float, counts: Counter[str]) -> float:
    """Return the number in a field; the default, and a repair, where it is missing or none."""
    value = number(fields[at], high) if len(fields) > at else None
    counts["repaired"] += value is None
    return default if value is None else value
