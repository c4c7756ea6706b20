"""Which entity names mean the same; prompted, and by rules."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator

from gnnrag.parts import part
from gnnrag.prompts.untrusted import Shown, inline, notes_element
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import ReplyModel, read_as
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.roles.writers.base import Curated, CurateTask
from gnnrag.session import Session
from gnnrag.text.normalise import phrase_key, singular


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
        return Curated(tuple(tuple(task.members[i][0] for i in group) for group in outcome.value))


class Groups(ReplyModel):
    groups: list[Annotated[list[int], BeforeValidator(lambda row: row if isinstance(row, list) else [row])]]


def read_partition(reply: str, count: int) -> list[list[int]]:
    """Return the groups of `{"groups": [[1, 3], [2]]}` as positions from 0; MalformedError: no partition."""
    groups = read_as(Groups, reply).groups
    if sorted(n for row in groups for n in row) != list(range(1, count + 1)):
        raise MalformedError(f"the groups are no partition of 1 to {count}")
    return sorted(sorted(n - 1 for n in row) for row in groups if row)


@part("writer", "curator.offline")
class OfflineCurator(Role[CurateTask, Curated]):
    """Groups names of the same words in any order, the last in any number, that have one type or none."""

    async def __call__(self, task: CurateTask, session: Session) -> Curated:
        groups: dict[tuple[str, ...], list[tuple[str, str]]] = {}  # members with their type; of the first, the group's
        for id_, name, kind, _ in task.members:
            key, kind = _form(name), kind.casefold()
            while key in groups and kind and groups[key][0][1] not in ("", kind):
                key = (*key, "")  # a namesake
            groups.setdefault(key, []).append((id_, kind))
        return Curated(tuple(tuple(id_ for id_, _ in group) for group in groups.values()))


def _form(name: str) -> tuple[str, ...]:
    """Return the words of a name, sorted; of several words, the last one in the singular."""
    parts = phrase_key(name).split()
    return tuple(sorted([*parts[:-1], singular(parts[-1])] if len(parts) > 1 else parts or [name]))
