"""Which entity names mean the same, and of which type each entity is; prompted, and by rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, StringConstraints

from gnnrag.parts import part
from gnnrag.prompts.untrusted import Shown, inline, notes_element
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import ReplyModel, read_as
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.roles.writers.base import UNSURE, Curated, CurateTask, Typed, TypesTask
from gnnrag.session import Session
from gnnrag.text.normalise import is_variant

_PEOPLE = {"person", "people"}
Trimmed = Annotated[str, StringConstraints(strip_whitespace=True)]
Partition = frozenset[frozenset[int]]


def _listed(rows: Iterable[tuple[str, str, str]], characters: int) -> Shown:
    """Return (name, type, description) rows as a numbered list, so much of each description."""
    lines = []
    for number, (name, kind, description) in enumerate(rows, start=1):
        text = inline(description)[:characters]
        known = (f" ({inline(kind)})" if kind else "") + (f": {text}" if text else "")
        lines.append(f"{number}. {inline(name)}{known}")
    return notes_element("\n".join(lines))


@part("writer", "curator.prompted")
class PromptedCurator(PromptedPart[CurateTask, Curated]):
    """Asks for a partition of the members; without one that can be read they stay apart (`curator_failed`)."""

    max_tokens: int = 1024
    description_characters: int = 300  # of each description that are shown

    async def __call__(self, task: CurateTask, session: Session) -> Curated:
        shown = _listed((member[1:] for member in task.members), self.description_characters)
        read = partial(read_partition, count=len(task.members))
        outcome = await self.ask(session, {"members": shown}, read)
        if outcome.value is None:
            return Curated(tuple((member[0],) for member in task.members), ("curator_failed",))
        groups = sorted(sorted(group) for group in outcome.value)
        return Curated(tuple(tuple(task.members[i][0] for i in group) for group in groups))


class Groups(ReplyModel):
    groups: list[Annotated[list[int], BeforeValidator(lambda row: row if isinstance(row, list) else [row])]]


class Types(ReplyModel):
    types: dict[Trimmed, Trimmed]


def read_partition(reply: str, count: int) -> Partition:
    """Return the groups of `{"groups": [[1, 3], [2]]}` as positions from 0; MalformedError: no partition."""
    groups = read_as(Groups, reply).groups
    if sorted(n for row in groups for n in row) != list(range(1, count + 1)):
        raise MalformedError(f"the groups are no partition of 1 to {count}")
    return frozenset(frozenset(n - 1 for n in row) for row in groups if row)


@part("writer", "curator.offline")
class OfflineCurator(Role[CurateTask, Curated]):
    """Puts each member with the first group whose first member it is a variant of: stars, no chains.

    Initials that fit several of the full names stay alone: nothing tells which of them they stand for.
    """

    async def __call__(self, task: CurateTask, session: Session) -> Curated:
        groups: list[list[tuple[str, str, str, str]]] = []
        for member in task.members:
            fitting = [group for group in groups if _same(member, group[0])]
            # With initials: one of the names has a single letter where the other has none.
            exact = [group for group in fitting if is_variant(member[1], group[0][1])]
            if exact or len(fitting) == 1:
                (exact or fitting)[0].append(member)
            else:
                groups.append([member])
        return Curated(tuple(tuple(member[0] for member in group) for group in groups))


def _same(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> bool:
    kinds = {one[2].casefold(), other[2].casefold()} - {""}
    return len(kinds) < 2 and is_variant(one[1], other[1], is_person=bool(kinds & _PEOPLE))


@part("writer", "types.prompted")
class PromptedTypes(PromptedPart[TypesTask, Typed]):
    """Asks for one type per entity, out of the schema, for a whole batch.

    A reply must decide for exactly the entities that were given, with types of the schema. A batch that gets no such
    reply is halved; a single entity that gets none is `unsure` and counted as `types_failed`.
    """

    max_tokens: int = 1024
    description_characters: int = 300  # of each description that are shown
    tries: int = 3  # replies before a batch is halved

    def setup(self) -> None:
        super().setup()
        self.prompters[0].tries = self.tries

    async def __call__(self, task: TypesTask, session: Session) -> Typed:
        schema = dict(task.schema) | {UNSURE: dict(task.schema).get(UNSURE, "none of these, or too little is known")}
        listed = "\n".join(f"- {inline(name)}: {inline(text)}" for name, text in schema.items())
        decided, failed, waiting = dict[str, str](), 0, [list(task.entities)]
        while waiting:
            batch = waiting.pop(0)
            entities = _listed(((name, "", text) for _, name, text in batch), self.description_characters)
            values = {"schema": listed, "entities": entities}
            outcome = await self.ask(session, values, partial(read_types, count=len(batch), allowed=schema.keys()))
            if outcome.value is None and len(batch) > 1:
                waiting += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
                continue
            failed += outcome.value is None
            decided.update(zip((entity[0] for entity in batch), outcome.value or [UNSURE], strict=True))
        types = tuple((entity[0], decided[entity[0]]) for entity in task.entities)
        return Typed(types, ("types_failed",) * failed)


def read_types(reply: str, count: int, allowed: Collection[str]) -> list[str]:
    """Return the types of `{"types": {"1": "person", ...}}` by number; MalformedError: no such numbers or types."""
    kinds = read_as(Types, reply).types
    if kinds.keys() != {str(n) for n in range(1, count + 1)}:
        raise MalformedError(f"the numbers are not 1 to {count}")
    if unknown := sorted({kind for kind in kinds.values() if kind not in allowed}):
        raise MalformedError(f"types that the schema does not have: {', '.join(unknown)[:200]}")
    return [kinds[str(n)] for n in range(1, count + 1)]


@part("writer", "types.offline")
class OfflineTypes(Role[TypesTask, Typed]):
    """Compares embeddings of `name: description` and `type: definition`; ties go to the schema's first type."""

    floor: float = 0.15  # least cosine of entity and definition; below it the entity is `unsure`

    uses_embedder = True

    async def __call__(self, task: TypesTask, session: Session) -> Typed:
        named = [(name, text) for name, text in task.schema if name != UNSURE]
        if not named or not task.entities:
            return Typed(tuple((entity[0], UNSURE) for entity in task.entities))
        embedder = self.embedder()
        definitions = embedder.encode([f"{name}: {text}" for name, text in named])
        rows = embedder.encode([f"{name}: {text}" if text else name for _, name, text in task.entities])
        types = []
        for (id_, _, _), row in zip(task.entities, rows, strict=True):
            cosines = definitions @ row
            best = int(np.argmax(cosines))
            types.append((id_, named[best][0] if cosines[best] >= self.floor else UNSURE))
        return Typed(tuple(types))
