"""Described entities and relations by a language model, as LightRAG, GraphRAG, PathRAG and MiniRAG extract them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gnnrag.extract.types import EntityRecord, Extraction, RelationRecord
from gnnrag.llm.base import Backend
from gnnrag.roles.gleaning import Conversation, TriplesConfig
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.records import Records, has_failed, longest, read_entity, read_relation, split_records
from gnnrag.roles.writing import Extracted, TriplesTask
from gnnrag.session import Session

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


class LightRAGTriples:
    """Asks for entities and relations with descriptions, keywords and strengths, and then for what was missed.

    Replies of format A and B are read (`roles.records`). Where several replies state a name or a pair, the longer
    description stays (LightRAG). A passage of which more than half the records cannot be used has failed.

    Args:
        backend: the language model.
        config: settings.
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
