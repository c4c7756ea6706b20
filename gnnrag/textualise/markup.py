"""Marked text: `<the topic>` and `[a neighbour]`, checked strictly, and stripped before anything is indexed.

A name may hold any character: what would be markup in it is written behind a backslash, and so is a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

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

    Raises:
        MarkupError: a mark that is nested, empty, not opened, not closed, or runs over a line's end.
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
    """Return the neighbours that a text does not mark, in their order.

    Raises:
        MarkupError: as in `read_marked`; something marked as the topic is not the topic, or something marked as a
            neighbour is none. Names must match exactly, their case included.
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
    """Yield pieces of plain text and single marks."""
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
