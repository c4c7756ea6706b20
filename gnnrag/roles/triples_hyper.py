"""N-ary facts by a language model (HyperGraphRAG, arXiv 2503.21322): a sentence each, and the entities in it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from gnnrag.extract.types import EntityRecord, Extraction, HyperedgeRecord
from gnnrag.llm.base import Backend
from gnnrag.roles.gleaning import Conversation, TriplesConfig
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.records import Records, dropped, has_failed, longest, number, read_entity, split_records
from gnnrag.roles.writing import Extracted, TriplesTask
from gnnrag.session import Session

TYPES = ("organization", "person", "geo", "event", "category")  # as released
IMPORTANCE, COMPLETENESS = 50.0, 1.0  # where the model gives none
_TAG = re.compile(r"^[<(\[\"'\s]*hyper[-_ ]?(?:relation|edge)[\"'\s]*[>)\]:]+\s*", re.IGNORECASE)


@dataclass
class Facts:
    """What the replies on one passage hold: members of each sentence with their importance, and its completeness."""

    members: dict[str, dict[str, float]] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    entities: list[EntityRecord] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class HyperTriples:
    """Asks for n-ary facts, each followed by its entities, and then for what was missed.

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = TriplesConfig
    version = 1

    def __init__(self, backend: Backend, config: TriplesConfig | None = None) -> None:
        self._conversation = Conversation(backend, config or TriplesConfig(), "triples_hyper")
        self.prompters = self._conversation.prompters

    async def __call__(self, task: TriplesTask, session: Session) -> Extracted:
        """Extract from one passage."""
        replies = await self._conversation(task, TYPES, session, read)
        if not replies:
            return Extracted(None, ("passage_failed",))
        found = Facts()
        for reply in replies:
            collect(reply, found)
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


def read(reply: str) -> Records:
    """Return the records of a reply. Raises MalformedError where it holds no fact, and no end marker either."""
    records = split_records(reply)
    if not records.is_complete and not any(tag == "hyper" for tag, _, _ in records.rows):
        raise MalformedError("no hyper-relation and no end marker")
    return records


def collect(records: Records, found: Facts) -> None:
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
