"""Write triples of passages: OpenIE, LightRAG's records, and n-ary facts of HyperGraphRAG."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gnnrag.extract.base import EntityRecord, Extraction, HyperedgeRecord, RelationRecord, Triple
from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element, passage_element
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import json_objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, Prompter
from gnnrag.roles.writers.base import Extracted, TriplesTask
from gnnrag.roles.writers.records import (
    Conversation,
    Records,
    TriplesConfig,
    dropped,
    has_failed,
    longest,
    number,
    read_entity,
    read_relation,
    split_records,
)
from gnnrag.session import Session

NAMES_KEY, TRIPLES_KEY = "named_entities", "triples"


class OpenIETriples(Role[TriplesTask, Extracted]):
    """Two calls for each passage: its named entities, then triples that hold them (`prompt` replaces this call's).

    A passage whose names cannot be read is asked for triples without them; one whose triples cannot be read, or of
    which more than half are not triples, has failed.
    """

    config_class = TriplesConfig
    version = 1

    def __init__(self, backend: Backend, config: TriplesConfig | None = None) -> None:
        config = config or TriplesConfig()
        plain = TriplesConfig("", config.temperature, config.max_tokens, config.seed)
        # As the released code does, of a list that was cut off the whole elements are taken.
        self._names = Prompter("triples", backend, plain, "triples_names", keeps_cut=True)
        self._triples = Prompter("triples", backend, config, "triples_openie", keeps_cut=True)
        self.prompters = (self._names, self._triples)

    async def __call__(self, task: TriplesTask, session: Session) -> Extracted:
        """Extract from one passage."""
        passage = {"passage": passage_element(task.passage, 1)}
        types = inline(", ".join(task.types) or "any")
        found = await self._names.ask(session, {**passage, "types": types}, read_names)
        names = found.value or ()
        flags: tuple[str, ...] = ("no_names",) if found.value is None else ()
        listed = notes_element(json.dumps({NAMES_KEY: names}, ensure_ascii=False))
        values = {**passage, "names": listed, "language": inline(task.language)}
        outcome = await self._triples.ask(session, values, read_triples)
        if outcome.value is None:
            return Extracted(None, (*flags, "passage_failed"))
        triples, malformed, seen = outcome.value
        flags += ("records_dropped_fields",) * malformed + ("records_seen",) * seen
        if malformed > 0.5 * seen:
            return Extracted(None, (*flags, "passage_failed"))
        return Extracted(Extraction(names, triples, malformed), flags)


def read_names(reply: str) -> tuple[str, ...]:
    """Return the distinct names of `{"named_entities": [...]}`, in order; MalformedError without such a list."""
    rows = _list(reply, NAMES_KEY)
    names = (str(name).strip() for name in rows if isinstance(name, str | int | float) and not isinstance(name, bool))
    return tuple(dict.fromkeys(name for name in names if name))


def read_triples(reply: str) -> tuple[tuple[Triple, ...], int, int]:
    """Return the distinct triples of `{"triples": [...]}`, how many rows are none, and how many there are.

    A row of two or four parts, one that holds null or a list, or an empty head, relation or tail, is no triple.
    MalformedError without such a list.
    """
    rows = _list(reply, TRIPLES_KEY)
    kept = [tuple(str(part).strip() for part in row) for row in rows if _is_triple(row)]
    whole: list[Any] = [row for row in kept if all(row)]
    return tuple(dict.fromkeys(whole)), len(rows) - len(whole), len(rows)


def _is_triple(row: Any) -> bool:
    parts = row if isinstance(row, list | tuple) else ()
    return len(parts) == 3 and all(isinstance(p, str | int | float) and not isinstance(p, bool) for p in parts)


def _list(reply: str, key: str) -> list[Any]:
    for data in json_objects(strip_thinking(reply), whole=True):
        value = data.get(key)
        if isinstance(value, list | tuple):
            return list(value)
        if key in data and value is None:
            return []  # a model that finds nothing may say null
    raise MalformedError(f"no object with a list {key!r}")


# Those of the current release; the prompt allows `other` besides.
TYPES = (
    "person", "creature", "organization", "location", "event", "concept", "method", "content", "data", "artifact",
    "natural object",
)  # fmt: skip


@dataclass
class Described:
    """What the replies on one passage hold."""

    entities: list[EntityRecord] = field(default_factory=list)
    relations: list[RelationRecord] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class LightRAGTriples(Role[TriplesTask, Extracted]):
    """Asks for entities and relations with descriptions, keywords and strengths, and then for what was missed.

    Replies of format A and B are read (`roles.records`). Where several replies state a name or a pair, the longer
    description stays (LightRAG). A passage of which more than half the records cannot be used has failed.
    """

    config_class = TriplesConfig
    version = 1

    def __init__(self, backend: Backend, config: TriplesConfig | None = None) -> None:
        self._conversation = Conversation(backend, config or TriplesConfig(), "triples_lightrag")
        self.prompters = self._conversation.prompters

    async def __call__(self, task: TriplesTask, session: Session) -> Extracted:
        """Extract from one passage."""
        replies = await self._conversation(task, TYPES, session, read)
        if not replies:
            return Extracted(None, ("passage_failed",))
        found = Described()
        for reply in replies:
            collect(reply, found)
        flags = tuple(flag for reply in replies for flag in reply.flags)
        if has_failed(found.counts):
            return Extracted(None, (*flags, "passage_failed"))
        relations = merged(found.relations)
        details = longest(found.entities)
        names = dict.fromkeys([d.name for d in details] + [n for r in relations for n in (r.head, r.tail)])
        malformed = sum(n for name, n in found.counts.items() if name.startswith("dropped"))
        return Extracted(Extraction(tuple(names), (), malformed, details, relations), flags)


def read(reply: str) -> Records:
    """Return the records of a reply. Raises MalformedError where it has none, and not even the end marker."""
    records = split_records(reply)
    if not records.rows and not records.is_complete:
        raise MalformedError("no record and no end marker")
    return records


def collect(records: Records, found: Described) -> None:
    """Add what the records of one reply state; what cannot be used is counted in both."""
    for tag, fields, is_lines in records.rows:
        if tag == "entity" and len(fields) == 3:
            if entity := read_entity(fields, records.counts):
                found.entities.append(entity)
        elif tag in ("relation", "entity") and len(fields) > 3:
            records.counts["repaired"] += tag == "entity"  # a relation under the wrong tag
            if relation := read_relation(fields, is_lines, records.counts):
                found.relations.append(relation)
        else:
            records.counts["dropped_fields"] += 1
    found.counts.update(records.counts)


def merged(relations: Sequence[RelationRecord]) -> tuple[RelationRecord, ...]:
    """Return one relation per pair, either way round: the longest description, all keywords, the greatest strength."""
    kept: dict[tuple[str, ...], RelationRecord] = {}
    for relation in relations:
        pair = tuple(sorted((relation.head, relation.tail)))
        old = kept.get(pair)
        if old is None:
            kept[pair] = relation
            continue
        best = relation if len(relation.description) > len(old.description) else old
        keywords = tuple(dict.fromkeys([*old.keywords, *relation.keywords]))
        kept[pair] = replace(best, keywords=keywords, weight=max(old.weight, relation.weight))
    return tuple(kept.values())


HYPER_TYPES = ("organization", "person", "geo", "event", "category")  # as released
IMPORTANCE, COMPLETENESS = 50.0, 1.0  # where the model gives none
_TAG = re.compile(r"^[<(\[\"'\s]*hyper[-_ ]?(?:relation|edge)[\"'\s]*[>)\]:]+\s*", re.IGNORECASE)


@dataclass
class Facts:
    """What the replies on one passage hold: members of each sentence with their importance, and its completeness."""

    members: dict[str, dict[str, float]] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    entities: list[EntityRecord] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class HyperTriples(Role[TriplesTask, Extracted]):
    """Asks for n-ary facts, each followed by its entities, and then for what was missed."""

    config_class = TriplesConfig
    version = 1

    def __init__(self, backend: Backend, config: TriplesConfig | None = None) -> None:
        self._conversation = Conversation(backend, config or TriplesConfig(), "triples_hyper")
        self.prompters = self._conversation.prompters

    async def __call__(self, task: TriplesTask, session: Session) -> Extracted:
        """Extract from one passage."""
        replies = await self._conversation(task, HYPER_TYPES, session, read_hyper)
        if not replies:
            return Extracted(None, ("passage_failed",))
        found = Facts()
        for reply in replies:
            collect_hyper(reply, found)
        flags = tuple(flag for reply in replies for flag in reply.flags)
        if has_failed(found.counts):
            return Extracted(None, (*flags, "passage_failed"))
        edges = tuple(
            HyperedgeRecord(text, found.scores[text], tuple(members.items()))
            for text, members in found.members.items()
            if members
        )
        details = longest(found.entities)
        names = tuple(d.name for d in details)
        return Extracted(Extraction(names, (), dropped(found.counts), details, (), edges), flags)


def read_hyper(reply: str) -> Records:
    """Return the records of a reply. Raises MalformedError where it holds no fact, and no end marker either."""
    records = split_records(reply)
    if not records.is_complete and not any(tag == "hyper" for tag, _, _ in records.rows):
        raise MalformedError("no hyper-relation and no end marker")
    return records


def collect_hyper(records: Records, found: Facts) -> None:
    """Add what one reply states: an entity belongs to the last fact before it, and to none in an earlier reply."""
    text = None
    for tag, fields, _ in records.rows:
        if tag == "hyper":
            text = _open(fields, records.counts, found)
        elif tag == "entity" and text is None:
            records.counts["dropped_orphan"] += 1
        elif tag == "entity":
            importance = _optional(fields, 3, 100.0, IMPORTANCE, records.counts)
            if entity := read_entity(fields[:3] if len(fields) == 4 else fields, records.counts):
                found.entities.append(entity)
                members = found.members[text or ""]
                members[entity.name] = max(importance, members.get(entity.name, 0.0))
        else:
            records.counts["dropped_tag"] += 1
    found.counts.update(records.counts)


def _open(fields: list[str], counts: Counter[str], found: Facts) -> str | None:
    """Start a fact and return its text; None where the record cannot be used, so that its entities go nowhere else."""
    text = _TAG.sub("", fields[0]).strip(" \"'") if fields else ""
    if len(fields) > 2 or not text:
        counts["dropped_fields" if len(fields) > 2 else "dropped_empty"] += 1
        return None
    score = _optional(fields, 1, 10.0, COMPLETENESS, counts)
    found.members.setdefault(text, {})
    found.scores[text] = max(score, found.scores.get(text, 0.0))
    return text


def _optional(fields: list[str], at: int, high: float, default: float, counts: Counter[str]) -> float:
    """Return the number in a field; the default, and a repair, where it is missing or none."""
    value = number(fields[at], 0.0, high) if len(fields) > at else None
    counts["repaired"] += value is None
    return default if value is None else value
