"""Marked text, and what each of the three stages of writing is asked for and gives (DotRAG, specification 8.2)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gnnrag.datasets.articles import Part, Triple
from gnnrag.session import Session

# Marked text has `<the topic>` and `[a neighbour]`. A name may hold any character: what would be markup in it is
# written behind a backslash, and so is a backslash.
_SPECIAL = re.compile(r"[<>\[\]\\]")
_TOKEN = re.compile(r"\\(.)|([<>\[\]])|(\\$)", re.DOTALL)
_CLOSING = {"<": ">", "[": "]"}


class MarkupError(ValueError):
    """The markup of a text is broken, or marks what it may not; the message says where."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A marked name; `start` and `end` are where it stands in the text without markup."""

    kind: Literal["topic", "neighbour"]
    name: str
    start: int
    end: int


def escape(name: str) -> str:
    """Return a name as it stands inside marked text."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], name)


def mark_topic(name: str) -> str:
    """Return the topic of an article as it is marked."""
    return f"<{escape(name)}>"


def mark_neighbour(name: str) -> str:
    """Return a neighbour as it is marked."""
    return f"[{escape(name)}]"


def read_marked(text: str) -> tuple[str, list[Mention]]:
    """Return a text without its markup, and what was marked, in order.

    Raises MarkupError for a mark that is nested, empty, not opened, not closed, or runs over a line's end.
    """
    plain: list[str] = []
    mentions: list[Mention] = []
    opened, start, length, first = "", 0, 0, 0
    for piece, is_mark in _pieces(text):
        if not is_mark:
            if opened and "\n" in piece:
                raise MarkupError(f"a {opened!r} is not closed on its line, before {_near(plain)!r}")
            plain.append(piece)
            length += len(piece)
        elif piece in _CLOSING:
            if opened:
                raise MarkupError(f"a {piece!r} stands inside {opened!r}, after {_near(plain)!r}")
            opened, start, first = piece, length, len(plain)
        elif _CLOSING.get(opened) != piece:
            raise MarkupError(f"a {piece!r} closes nothing, after {_near(plain)!r}")
        else:
            name = "".join(plain[first:])
            if not name.strip():
                raise MarkupError(f"nothing stands between {opened!r} and {piece!r}")
            mentions.append(Mention("topic" if opened == "<" else "neighbour", name, start, length))
            opened = ""
    if opened:
        raise MarkupError(f"a {opened!r} is not closed, before {_near(plain)!r}")
    return "".join(plain), mentions


def check_marked(text: str, topic: str, neighbours: Collection[str]) -> list[str]:
    """Return the neighbours that a text does not mark, in their order; names must match exactly, case included.

    Raises MarkupError as `read_marked`, and where the topic's or a neighbour's mark is around something else.
    """
    _, mentions = read_marked(text)
    for mention in mentions:
        if mention.kind == "topic" and mention.name != topic:
            raise MarkupError(f"<{mention.name}> is not the topic")
        if mention.kind == "neighbour" and mention.name not in neighbours:
            raise MarkupError(f"[{mention.name}] is not one of the names that were given")
    marked = {mention.name for mention in mentions if mention.kind == "neighbour"}
    return [name for name in neighbours if name not in marked]


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    done = 0
    for match in _TOKEN.finditer(text):
        if match.start() > done:
            yield text[done : match.start()], False
        if match[2]:
            yield match[2], True
        else:
            yield match[1] or "\\", False
        done = match.end()
    if done < len(text):
        yield text[done:], False


def _near(plain: list[str]) -> str:
    return "".join(plain[-3:])[-30:]


@dataclass(frozen=True, slots=True)
class Written:
    """Stage 1: a marked article that covers its part."""

    text: str
    flags: tuple[str, ...] = ()


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
