"""Decide which entity names mean the same, and of which type each is; prompted, and by rules."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnrag.common.files import digest
from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import json_objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, PromptedRole
from gnnrag.roles.writers.base import UNSURE, Curated, CurateTask, Typed, TypesTask
from gnnrag.session import Session
from gnnrag.text.normalise import is_variant

TWICE_FROM = 6  # members of a cluster that is asked about twice
Partition = frozenset[frozenset[int]]


@dataclass
class PromptedCuratorConfig(PromptedConfig):
    """`description_characters`: how much of each description is shown."""

    max_tokens: int = 1024
    description_characters: int = 300


class PromptedCurator(PromptedRole[CurateTask, Curated]):
    """Asks for a partition of the members; clusters of 6 and more are asked about twice, in two orders.

    Then only what both replies put together is merged. A reply that is no partition of the members, asked for again in
    vain, leaves them apart: `curator_failed`.
    """

    role = "curator"
    config_class = PromptedCuratorConfig

    async def __call__(self, task: CurateTask, session: Session) -> Curated:
        """Partition the members; groups and their members are in the order of the task."""
        count = len(task.members)
        orders = [list(range(count))]
        if count >= TWICE_FROM:
            # Decided by the members alone: the same cluster is asked about in the same way whenever it comes up.
            orders = [_shuffled(count, f"{digest([m[0] for m in task.members])}-{turn}") for turn in range(2)]
        batch = [{"members": self._shown(task, order)} for order in orders]
        outcomes = await self.ask_many(session, batch, lambda reply: read_partition(reply, count))
        partitions = [
            frozenset(frozenset(order[i] for i in group) for group in outcome.value)
            for order, outcome in zip(orders, outcomes, strict=True)
            if outcome.value is not None
        ]
        failed = len(partitions) < len(orders)
        agreed = frozenset(frozenset({i}) for i in range(count)) if failed else common(partitions)
        groups = sorted(tuple(sorted(group)) for group in agreed)
        ids = tuple(tuple(task.members[i][0] for i in group) for group in groups)
        return Curated(ids, ("curator_failed",) if failed else ())

    def _shown(self, task: CurateTask, order: Sequence[int]) -> str:
        rows = []
        for number, i in enumerate(order, start=1):
            _, name, kind, description = task.members[i]
            text = inline(description)[: self.config.description_characters]
            rows.append(
                f"{number}. {inline(name)}" + (f" ({inline(kind)})" if kind else "") + (f": {text}" if text else "")
            )
        return notes_element("\n".join(rows))


def read_partition(reply: str, count: int) -> Partition:
    """Return the groups of `{"groups": [[1, 3], [2]]}` as positions from 0; MalformedError: no partition."""
    for data in json_objects(strip_thinking(reply), whole=True):
        rows = data.get("groups")
        if not isinstance(rows, list | tuple):
            continue
        groups = [row if isinstance(row, list | tuple) else [row] for row in rows]
        numbers = [int(n) for row in groups for n in row if str(n).strip().isdecimal()]
        if len(numbers) == sum(map(len, groups)) and sorted(numbers) == list(range(1, count + 1)):
            return frozenset(frozenset(int(n) - 1 for n in row) for row in groups if row)
        raise MalformedError(f"the groups are no partition of 1 to {count}")
    raise MalformedError("no object with a list 'groups'")


def common(partitions: Sequence[Partition]) -> Partition:
    """Return the partition in which two are together where they are in every one."""
    agreed = partitions[0]
    for other in partitions[1:]:
        agreed = frozenset(both for a in agreed for b in other if (both := a & b))
    return agreed


def _shuffled(count: int, seed: str) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


_PEOPLE = ("person", "people")


class OfflineCurator(Role[CurateTask, Curated]):
    """Puts each member with the first group whose first member it is a variant of: stars, no chains.

    Initials that fit several of the full names stay alone: nothing tells which of them they stand for.
    """

    version = 1

    def __init__(self, tools: Any = None, config: None = None) -> None:
        self.tools = tools

    async def __call__(self, task: CurateTask, session: Session) -> Curated:
        """Partition the members, in their order."""
        groups: list[list[tuple[str, str, str, str]]] = []
        for member in task.members:
            fitting = [group for group in groups if _same(member, group[0])]
            exact = [group for group in fitting if not _has_initials(member[1], group[0][1])]
            if exact or len(fitting) == 1:
                (exact or fitting)[0].append(member)
            else:
                groups.append([member])
        return Curated(tuple(tuple(member[0] for member in group) for group in groups))


def _same(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> bool:
    kinds = {one[2].casefold(), other[2].casefold()} - {""}
    return len(kinds) < 2 and is_variant(one[1], other[1], bool(kinds.intersection(_PEOPLE)))


def _has_initials(one: str, other: str) -> bool:
    """Tell whether one of the names has a single letter where the other has none."""
    return is_variant(one, other, is_person=True) and not is_variant(one, other)


@dataclass
class PromptedTypesConfig(PromptedConfig):
    """`description_characters`: how much of each description is shown; `tries`: replies before a batch is halved."""

    max_tokens: int = 1024
    description_characters: int = 300
    tries: int = 3


class PromptedTypes(PromptedRole[TypesTask, Typed]):
    """Asks for one type per entity, out of the schema, for a whole batch.

    A reply must decide for exactly the entities that were given, with types of the schema. A batch that gets no such
    reply is halved; a single entity that gets none is `unsure` and counted as `types_failed`.
    """

    role = "types"
    config_class = PromptedTypesConfig

    def __init__(self, backend: Backend, config: PromptedTypesConfig | None = None) -> None:
        super().__init__(backend, config)
        self.prompters[0].tries = self.config.tries

    async def __call__(self, task: TypesTask, session: Session) -> Typed:
        """Type the entities, in their order."""
        schema = dict(task.schema) | {UNSURE: dict(task.schema).get(UNSURE, "none of these, or too little is known")}
        listed = "\n".join(f"- {inline(name)}: {inline(text)}" for name, text in schema.items())
        waiting, failed = [list(task.entities)], 0
        decided: dict[str, str] = {}
        while waiting:
            batch = waiting.pop(0)
            kinds = await self._ask(batch, listed, frozenset(schema), session)
            if kinds is None and len(batch) > 1:
                waiting += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
                continue
            failed += kinds is None
            decided.update(zip((entity[0] for entity in batch), kinds or [UNSURE], strict=True))
        types = tuple((entity[0], decided[entity[0]]) for entity in task.entities)
        return Typed(types, ("types_failed",) * failed)

    async def _ask(
        self, batch: list[tuple[str, str, str]], listed: str, allowed: frozenset[str], session: Session
    ) -> list[str] | None:
        rows = []
        for number, (_, name, description) in enumerate(batch, start=1):
            text = inline(description)[: self.config.description_characters]
            rows.append(f"{number}. {inline(name)}" + (f": {text}" if text else ""))
        values = {"schema": listed, "entities": notes_element("\n".join(rows))}
        outcome = await self.ask(session, values, lambda reply: read_types(reply, len(batch), allowed))
        return outcome.value


def read_types(reply: str, count: int, allowed: frozenset[str]) -> list[str]:
    """Return the types of `{"types": {"1": "person", ...}}` by number; MalformedError: no such numbers or types."""
    for data in json_objects(strip_thinking(reply), whole=True):
        rows = data.get("types")
        if not isinstance(rows, dict):
            continue
        kinds = {str(number).strip(): str(kind).strip() for number, kind in rows.items()}
        if kinds.keys() != {str(n) for n in range(1, count + 1)}:
            raise MalformedError(f"the numbers are not 1 to {count}")
        if wrong := sorted({kind for kind in kinds.values() if kind not in allowed}):
            raise MalformedError(f"types that the schema does not have: {', '.join(wrong)[:200]}")
        return [kinds[str(n)] for n in range(1, count + 1)]
    raise MalformedError("no object 'types'")


@dataclass
class OfflineTypesConfig:
    """Settings of `OfflineTypes`."""

    floor: float = 0.15  # least cosine of entity and definition; below it the entity is `unsure`


class OfflineTypes(Role[TypesTask, Typed]):
    """Compares embeddings of `name: description` and `type: definition`; ties go to the schema's first type."""

    config_class = OfflineTypesConfig
    version = 1
    uses_embedder = True

    def __init__(self, tools: Any, config: OfflineTypesConfig | None = None) -> None:
        self.tools, self.config = tools, config or OfflineTypesConfig()

    async def __call__(self, task: TypesTask, session: Session) -> Typed:
        """Type the entities, in their order."""
        named = [(name, text) for name, text in task.schema if name != UNSURE]
        if not named or not task.entities:
            return Typed(tuple((entity[0], UNSURE) for entity in task.entities))
        embedder = self.tools.embedder()
        kinds = embedder.encode([f"{name}: {text}" for name, text in named])
        rows = embedder.encode([f"{name}: {text}" if text else name for _, name, text in task.entities])
        types = []
        for (id_, _, _), row in zip(task.entities, rows, strict=True):
            scores = kinds @ row
            best = int(np.argmax(scores))
            types.append((id_, named[best][0] if scores[best] >= self.config.floor else UNSURE))
        return Typed(tuple(types))
