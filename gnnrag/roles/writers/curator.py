"""Decide which entity names mean the same; prompted, and by spelling variants."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gnnrag.common.files import digest
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, PromptedRole
from gnnrag.roles.writers.base import Curated, CurateTask
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
    """Return the groups of a reply `{"groups": [[1, 3], [2]]}` as positions from 0.

    Raises:
        MalformedError: they are no partition of the numbers from 1 to `count`.
    """
    for data in objects(strip_thinking(reply)):
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

    Args:
        tools: not used.
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
