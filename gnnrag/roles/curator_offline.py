"""The curator without a language model: names that are spelling variants are one thing, and no others."""

from __future__ import annotations

from typing import Any

from gnnrag.roles.writing import Curated, CurateTask
from gnnrag.session import Session
from gnnrag.text.variants import is_variant

_PEOPLE = ("person", "people")


class OfflineCurator:
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
