"""What the three stages are asked for, and what they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gnnrag.datasets.articles import Part, Triple
from gnnrag.session import Session


@dataclass(frozen=True, slots=True)
class Written:
    """Stage 1: a marked article that covers its part."""

    text: str
    flags: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON data."""
        return {"text": self.text, "flags": list(self.flags)}


@dataclass(frozen=True, slots=True)
class EntityTask:
    """Stage 2: an entity with its first part, and that part's article without markup."""

    part: Part
    article: str


@dataclass(frozen=True, slots=True)
class Described:
    """Stage 2: a type and a description that rests on the article alone."""

    type: str
    description: str
    flags: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON data."""
        return {"type": self.type, "description": self.description, "flags": list(self.flags)}


@dataclass(frozen=True, slots=True)
class RelationsTask:
    """Stage 3: triples to describe from the article that states them, without markup."""

    part: Part
    article: str
    triples: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class Related:
    """Stage 3: a marked sentence or two for each triple, in their order; both ends are in square brackets."""

    texts: tuple[str, ...]
    flags: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON data."""
        return {"texts": list(self.texts), "flags": list(self.flags)}


class Writer(Protocol):
    """Does the three stages for one part at a time; safe to ask for many at once."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """JSON data that changes whenever results would."""
        ...

    async def article(self, task: Part, session: Session) -> Written:
        """Stage 1."""
        ...

    async def entity(self, task: EntityTask, session: Session) -> Described:
        """Stage 2."""
        ...

    async def relations(self, task: RelationsTask, session: Session) -> Related:
        """Stage 3."""
        ...

    async def close(self) -> None:
        """Release what the running event loop holds."""
        ...


def batches(triples: Sequence[Triple], size: int) -> list[tuple[Triple, ...]]:
    """Return triples in batches of at most `size`."""
    return [tuple(triples[start : start + size]) for start in range(0, len(triples), size)]
